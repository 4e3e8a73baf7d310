"""Any logger's header: time, level, rank, source, process and logger name as fields in whatever order and brackets they come.

Loggers are configured by users, so no list of their formats is ever complete. One regex reads fields until something is no
field; every field is tried at every place and given up for good once read, so the time is linear in the length.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.level, line.rank, line.actor, line.logger, line.step, line.prefixed, repr(line.text[:18]))
info 0 None None 12 True 'step=12 loss=0.31'
error None controller None None True 'call /train failed'
info 0 None train None True 'host=h100-042 pid='
info 3 None train 5 True 'stage=train step=5'
info 0 None data None True 'shard 3'
error None controller None None True '/train failed'
info 3 RemoteHybridTrainWorker None None True 'ready'
info 1 None None None True 'train: uncaught ex'
info None None None None True 'saved model shard '
warning None None root None True 'hello'
error None None None None False '  File "core.py", '
info 3 actor_cell0_rank3 None None True 'Timer train start'
info None None None None True 'gen5 weights @18'
None None None None None True 'Decode batch. #run'
>>> [read(t) for t in ("RuntimeError: x", "[1]:", "[a] b", "[10:200]", "1 2 3", "ERRORS: 3", "2026-11-20", "")]
[None, None, None, None, None, None, None, None]

Source: CPython `logging`; loguru; structlog; absl; formats/03-ray.md, formats/04-frameworks.md.
"""

from __future__ import annotations

import re

from rca.ingest import chinese
from rca.ingest.formats import HEAD, Line, make
from rca.ingest.formats.continued import is_body, is_continued
from rca.ingest.formats.progress import find
from rca.ingest.formats.words import LEVEL, LEVELS, SHORT_LEVEL, is_process
from rca.ingest.times import PATTERN, Stamp, of

SAMPLE = """\
[2026-11-20 11:32:06] [INFO] [train.py:120] [Rank 0] step=12 loss=0.31
[ERROR] [11-20 11:49:08] [controller] [rpc_all] call /train failed
2026-11-20 11:35:43.510 | INFO     | train:main:120 - [h100-042:0] host=h100-042 pid=32743
2026-11-20 11:32:10,216 [rank3] INFO train: stage=train step=5
11/20/2026 11:35:37 - INFO - data - (global_rank=0) shard 3
20261120-11:49:29.471 controller 13427 ERROR controller.py:56] /train failed
20260821-21:02:57.375 [RemoteHybridTrainWorker Rank 3] INFO: ready
2026-12-23 10:22:12,989 [INFO][rank=1] train: uncaught exception
INFO:2026-11-13 12:30:03,784:saved model shard to /mnt/vol2
WARNING:root:hello
ERROR 05-02 21:36:34 [core.py:464]   File "core.py", line 461, in run
[2026-08-20 10:00:00.123 actor_cell0_rank3] INFO timer.py:34 - Timer train start
2026-04-01 09:37:16.390052 INF gen5 weights @18
[2026-09-18 17:38:38] Decode batch. #running-req: 26"""

#: Words that look like a logger before a colon and are the message's own.
NO_LOGGER = r"(?:error|warning|exception|failed|failure|loss|lr|step|epoch|iteration|config|reason|note|args|time|total|using|hint|caused|usage)\b"
SOURCE_FILE = r"\.(?:py|pyx|cpp|cc|cu|cuh|hpp|rs|go|c|h|java|scala)"
RANK = r"(?:(?:[Gg]lobal|[Ww]orld)[_\ ])?(?:[Rr]ank|RANK|[Rr])"
FILES = (".py", ".cc", ".cpp", ".rs", ".go", ".cu")
THREAD = r"(?:MainThread|MainProcess|(?:Thread|SpawnProcess|ForkProcess|Process)-\d[\w-]{0,20}(?:\ \(\w{1,40}\))?)"
ANY_LEVEL = rf"(?:{LEVEL}|debug|info|notice|warn(?:ing)?|error|critical|fatal|Debug|Info|Warn(?:ing)?|Error|Critical|Fatal)"
#: One field, by its first character: what is no field is given up after a character or a word. Numbers are those of the groups.
FIELD = rf"""(?:
    [\[(](?:                                                        # in brackets:
        (?=[A-Za-z])({ANY_LEVEL})(?:\ *|\|[^\]\[]{{1,80}})[\])]      # 1 level, `[WARNING|trainer.py:123]`
      | (?=[\dFJMASONDTW])({PATTERN})([^\]\[()]{{0,60}})[\])]                           # 2 time, 3 what stands behind it
      | [Ll]ocal[_\ ]?[Rr]ank[\ =:]{{0,2}}(\d{{1,6}})[\])]               # 4 local rank
      | (?:node|group|machine|tp|pp|dp|ep|cp|sp|mp|role|TP|PP|DP|EP|CP)[_\ ]?[Rr]ank[\ =:]{{0,2}}\d{{1,6}}[\])]   # of something else than the job
      | (?:([A-Za-z][\w.-]{{0,40}})\ )?{RANK}[\ =:_]{{0,2}}(\d{{1,6}})(?:\ ?(?:/|of)\ ?\d{{1,6}})?[\])](?!:)  # 5 whose, 6 rank
      | [\w./<>-]{{1,100}}{SOURCE_FILE}(?::[\w<>.():]{{1,80}})?[\])]   # `[train.py:120]`
      | {THREAD}[\])]
      | (?:pid[\ =:]|(?=\d{{1,9}}\]\ {{0,8}}\[?{LEVEL}\b))(\d{{1,9}})\]   # 7 pid
      | (?<=\[)([A-Za-z_][\w.-]{{0,60}})\](?!:)(?:\ ?\[(?!{ANY_LEVEL}\]|{RANK}\d)[\w<>.]{{1,60}}\])?   # 8 process or logger, then perhaps a function
    )
  | \{{[\w./-]{{1,80}}{SOURCE_FILE}:\d{{1,6}}\}}                         # `{{pod.py:120}}` of Airflow
  | (?=[\dA-Z])(?:(?=[\dFJMASONDTW])({PATTERN})                      # 9 time
      | ({LEVEL}|(?<=[\dMZ]\ ){SHORT_LEVEL}(?=\ ))(?![\w.=(])\]?      # 10 level
      | {THREAD}(?::(\d{{1,9}}))?(?![\w(])                           # 11 pid, `MainThread:4105`
      | ([DIWEFC])\ (?=\S{{1,160}}:\d{{1,6}}\])                       # 12 level, `F external/x.cc:458] `
      | (\d{{1,9}})(?=\ {{1,8}}\[?{LEVEL}\b|\ --\ )                    # 13 pid
    )
  | {RANK}[=:]?(?:(?<=k)\ (?=\d{{1,6}}\ ?\|))?(\d{{1,6}})(?=\ ?[|:\]]|\ -\ |\ \w+=|\ \[?{LEVEL}\b)   # 14 rank, `rank=3 | `
  | (?<=[A-Z]:)([A-Za-z_][\w.]{{0,120}}+):(?=\S)                     # 15 logger, `WARNING:root:`
  | ([A-Za-z_][\w.-]{{0,80}}+)(?:\ (\d{{1,9}}))?(?:\ [-|]\ |:\ ?|\ )\ {{0,8}}(?=(?:\[?{RANK}[=:]?\d{{1,6}}\]?\ )?\[?{LEVEL}\b)  # 16 process or logger, 17 pid
  | (?!(?:step|epoch|iter|iteration|global_step):)([A-Za-z_/.<][\w./<>-]{{0,100}}+)(?:   # 18 a source or logger, by what follows it:
        (?::[\w<>]{{1,60}}){{0,2}}(?=\ --?\ )                         # `train:main:120 - `, `worker.py:1654 -- `, `root - `
      | :\d{{1,6}}\]                                                # `controller.py:56] `
      | (?<=\.py):\d{{1,6}}(?=[\s:])                               # `train.py:120: `
      | (?:::\w{{1,60}}){{1,8}}(?=:\ )                                # `sglang_router_rs::response: `
    )
)"""
#: What may stand between two fields; only one blank behind the last is taken, because the rest may be the indentation of a traceback.
BETWEEN = r"[\ \t]{0,12}+(?:(?:\||--?|>>?|:|,|~)(?=[\ \t])|[:|])?[\ \t]{0,12}+"
# The outer loop is greedy and nothing follows it, so it is never unwound. It must not be possessive: CPython 3.11 raises SystemError
# on groups inside possessive loops (gh-101955), and possessive groups of its first releases match too much (gh-106052).
AFTER = r"(?:[\ \t]{0,12}(?:\||--?|>>?|:|,|~)(?:[\ \t]|$)|[:|]|[\ \t])?"
COLUMN = 9
EDGE = re.compile(r"([\w.-]{1,80}\.py):\d{1,6}", re.ASCII)
HEADER = re.compile(rf"(?:{BETWEEN}{FIELD})+{AFTER}", re.VERBOSE | re.ASCII)
LOGGER = re.compile(rf"(?!{NO_LOGGER})([a-z_][\w.]{{0,80}}+)(?<!Error): (?![\d{{\[])", re.ASCII)
HOST_RANK = re.compile(r"\[(?=[A-Za-z][\w.]{0,60}[\d-])([A-Za-z][\w-]{0,60}(?:\.[a-z][\w-]{0,40}){0,4}):(\d{1,5})\] ?", re.ASCII)
TAG_RANK = re.compile(r"[\[(](?:[Gg]lobal[_ ])?(?:[Rr]ank|RANK|[Rr])[ =:_]{0,2}(\d{1,6})[\])] ?(?!:)", re.ASCII)
TAGS = re.compile(r"(?:\[(?:[\w.]{1,80}:\d{1,6}|(?:PID|pid|Pid)[:= ]\d{1,9})\] ){1,3}\[(?:RANK|[Rr]ank)[:= ](\d{1,6})\] ", re.ASCII)
QUIET = ("info", "debug")
MAY_CONTINUE = " \tTD"  # with these a body, a heading and a link of a traceback begin
TAIL_LEVEL = re.compile(rf"\b({LEVEL})\b", re.ASCII)
TAIL_RANK = re.compile(r"(?:\b|_)rank[_ =]?(\d{1,6})\b", re.ASCII)
TAIL_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)


def tag_rank(text: str, placed: bool) -> tuple[int | None, str | None, str]:
    """A rank in brackets that opens the message, `[r0]` or `[host:3]`: `(rank, host, the message behind it)`.

    With `placed` the header has named its source already; otherwise `[gpt2:55]` may be a source, and only `[gpt-2:55]` is a host.

    >>> tag_rank("[r0] x", False), tag_rank("[h100-042:0] x", False), tag_rank("[gn41:3] x", True)
    ((0, None, 'x'), (0, 'h100-042', 'x'), (3, 'gn41', 'x'))
    >>> tag_rank("[gpt2:55] x", False)[0], tag_rank("[utils:55] x", True)[0], tag_rank("[10:200]", True)[0]
    (None, None, None)
    """
    if match := TAG_RANK.match(text):
        return int(match[1]), None, text[match.end() :]
    if (match := HOST_RANK.match(text)) and (placed or "-" in match[1]):
        return int(match[2]), match[1], text[match.end() :]
    return None, None, text


def read(text: str, shape: str = "header") -> Line | None:
    """Read the header at the start of `text`; None where there is neither a time nor a level nor a rank."""
    match = HEADER.match(text, 0, HEAD)
    if match is None:
        return None
    level1, time1, tail, local, who, rank1, pid1, name, time2, level2, pid2, letter, pid3, rank2, std, word, pid4, source = match.groups()
    time, level = time2 or time1, level2 or level1 or letter
    rank = rank1 or rank2
    if time is None and level is None and rank is None:
        return None
    end = match.end()
    message = text[end:]
    opens = message[:1]
    if level2 is not None and (opens == " " or len(level2) == 8) and text.startswith(f"{level2} ", end - 1 - len(level2)):
        pad = COLUMN - 1 - len(level2)  # rich pads the level and puts the source at the right edge
        if opens == " " and message[:pad].isspace() and message[pad : pad + 1] != " ":  # a level padded to eight columns
            message = message[pad:]
            opens, end, pad = message[:1], end + pad, 0
        body, _, source = message[pad:].rstrip().rpartition("  ")
        if not message[:pad].strip() and body and (edge := EDGE.fullmatch(source.strip())):
            return _rich(body.rstrip(), edge[1], of(time) if time else None, LEVELS[level2])
    if opens == " " and text[match.end() - 2] == ":" and level1 is None:  # uvicorn pads "INFO:" to ten columns
        message = message.lstrip(" ")
        opens = message[:1]
    stamp = of(time) if time else None
    repeats = level2 is not None and time is not None and text.startswith(level2 + " ")
    if level is not None:
        level = LEVELS[level]
    if rank is not None:
        rank = int(rank)
    local_rank = int(local) if local else None
    host = None
    actor, logger = name, std or word
    if logger is None and source is not None and "/" not in source and not source.endswith(FILES):
        logger = source
    if who is not None:
        actor = who
    elif tail:
        level, rank, actor = _tail(tail, level, rank, actor)
    if rank is None and (opens == "[" or opens == "("):
        rank, host, message = tag_rank(message, source is not None)
        if rank is None and (tagged := TAGS.match(message)):  # "[module:12] [PID:3117] [RANK:0] text"
            rank, message = int(tagged[1]), message[tagged.end() :]
    # "INFO train: message" names a logger; "ERROR: error_type: x" and "[INFO] loading: x" do not.
    if opens.islower() and logger is None and level2 is not None and text[match.end() - 2].isupper() and (found := LOGGER.match(message)):
        logger, message = found[1], message[found.end() :]
    if actor is not None and who is None and not is_process(actor):
        actor, logger = None, logger or actor
    if actor is None and logger is not None and rank is None and is_process(logger):
        actor, logger = logger, None
    if message[:2] > "\x7f" and chinese.may_open(message):
        said, name, message = chinese.peel(message)
        level, actor = level or said, actor or name
    pid = pid4 or pid3 or pid2 or pid1
    if pid is not None:
        pid = int(pid)
    # vLLM and OpenRLHF begin with the level and repeat the header on each line; others may break off into a traceback.
    # What is merely indented behind a header of level info is an indented message.
    if level not in QUIET and (is_continued(message) if repeats else opens in MAY_CONTINUE and is_body(message)):
        return make((message, stamp, level, rank, local_rank, host, pid, actor, None, None, "", shape, False, logger, None))
    if opens == " ":
        message = message.lstrip(" ")  # padding of a column, or an indented message
    stage, step = find(message)
    prefixed = time is not None or level is not None
    return make((message, stamp, level, rank, local_rank, host, pid, actor, stage, step, "", shape, prefixed, logger, None))


def _rich(message: str, source: str, stamp: Stamp | None, level: str) -> Line:
    """A line of rich's handler: the message without the blanks and the source behind it."""
    rank, host, message = tag_rank(message, True)
    stage, step = find(message)
    return make((message, stamp, level, rank, None, host, None, None, stage, step, "", "header", True, source, None))


def _tail(tail: str, level: str | None, rank: int | None, actor: str | None) -> tuple[str | None, int | None, str | None]:
    """What stands behind the time inside its bracket: a level, a rank, the name of a process, or an engine's `DP4 TP4`."""
    if found := TAIL_LEVEL.search(tail):
        level = level or LEVELS[found[1]]
    if found := TAIL_RANK.search(tail):
        rank = int(found[1]) if rank is None else rank
    found = TAIL_NAME.fullmatch(tail.strip(" ,"))
    if found and actor is None and is_process(found[0]) and not found[0][:2].isupper():
        actor = found[0]
    return level, rank, actor
