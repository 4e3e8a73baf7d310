"""Marks: lines by which a program announces a stage, ends it, or sums it up.

>>> for text in SAMPLE.splitlines():
...     print([(m.stage, m.step, m.phase, m.seconds) for m in read(text)])
[('weights_update', 13, 'start', None)]
[('rollout', 13, 'end', 154.4)]
[('weights_update', 4, 'start', None)]
[('rollout', 13, 'end', None)]
[('periodic_recover_save', 4, 'failed', 3600.0)]
[('weights_update', 122, 'after', 25.0), ('rollout', 122, 'after', 101.3)]
[('train', None, 'start', None)]
[]
[]

A line is looked at only where one search found both the root of a stage's name and a verb in it, or a phrase of a framework. Which phrases there are is
data: `courses/`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ahocorasick_rs import AhoCorasick

from rca.ingest import calls, courses, settings
from rca.ingest.courses import FRAMEWORK, ROOT, SETTING, STRONG, VERB

if TYPE_CHECKING:
    from rca.ingest.line import Line

SAMPLE = """\
[step 13] weight-sync: start
[step 13] gen: done in 154.4s
第 4 步 开始同步权重
第13步 采样完成
[step 4] ckpt-periodic: trainer rank 0 timed out after 3600s, continuing
step:122 - timing_s/update_weights:25.0 - timing_s/gen:101.3
▶ Training policy...
Generating train split: 100%|#| 1000/1000
Starting rollout worker 3"""

LONGEST = 600  # characters of a line in which an announcement is looked for; timers are looked for in all of it
TIMERS_CUT = 16 << 10
MOST = 640  # marks kept of a stream that announces stages, the newest; of others what `Reader.marks` says
RAW_CUT = 200

STEP = re.compile(
    r"""(?<![a-z_])(?:(?:global|train|training)[ _-]?)?(?:step|iteration|iter)s?["']?\ {0,2}[=:#]?\ {0,2}\#?(\d{1,9})(?![\d.]\d)
    |第\ ?(\d{1,9})\ ?(?:个)?(?:步|轮|次迭代|step)|步(?:骤|数)?\ ?[:：=]?\ ?(\d{1,9})|(?<![a-z])(?:rollout(?:_id)?|round)["']?\ ?[=:]\ ?(\d{1,9})(?![\d.]\d)""",
    re.X | re.I,
)
IN_PATH = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt|epoch)[_-]?0*(\d{1,9})(?![\d.]\d)", re.I)
SECONDS = re.compile(r"(?:\bin|took|costs?|elapsed|time|after|耗时|用时)\W{0,3}(\d{1,7}(?:\.\d{1,6})?) ?(ms|s|secs?|seconds?|min|minutes|毫秒|秒)(?![a-z])|[ (](\d{1,7}\.\d{1,4}) ?s\b", re.I)
#: What may stand before an announcement: tags in brackets, the step, bullets, the name of who speaks.
LEAD = re.compile(
    r"""(?:[^\w\[【(<]|[\[【(<][^\]】)>]{0,60}[\]】)>]
    |(?:(?:global|train|training)[ _-]?)?(?:step|iteration|iter|epoch|round|rollout_id)s?[ =:#]{0,3}\d{1,9}(?:\ ?(?:/|of)\ ?\d{1,9})?(?!\w)
    |第\ ?\d{1,9}\ ?(?:个)?(?:步|轮|次迭代|step)|步(?:骤|数)?\ ?[:：=]?\ ?\d{1,9}
    |(?:trainer|controller|driver|coordinator|master|main|orchestrator|scheduler|runner|rank\d{1,6}|阶段|控制器)(?:[ \]]?[:：|]|\ (?=\[))
    |(?:phase|stage)\ ?[=:]\ ?|\d\d?:\d\d:\d\d(?:[.,]\d{1,6})?
    ){0,12}""",
    re.X | re.I,
)
#: What follows the name makes it that of a thing and not of a stage.
THING = re.compile(
    r"[\s_-]{0,2}(?:workers?|servers?|engines?|managers?|process(?:es)?|groups?|nodes?|threads?|services?|controllers?|pools?|replicas?|clients?|datasets?|data|loaders?|dataloaders?|configs?|config\w*|modes?|scripts?"
    r"|from scratch|args|arguments|with config|system|clusters?|environment|envs?|backends?|routers?|api|endpoints?|url|http\S*|intervals?|every|freq\w*|timeouts?|splits?|shards?|files?|actors?|jobs? \d|examples|samples/s|settings?|params? ?[=:]|size|length|num\w*)(?![a-z])",
    re.I,
)
FILLERS = r"(?:[\s_:：=|>.,-]{0,3}(?:to|of|the|a|new|on|for|stage|phase|step|with|all|next|本次|新一轮)?\b){0,4}[\s_:：=|>.,-]{0,3}"
DECORATED = re.compile(r"^\W*(?:={2,}|>{2,}|-{2,}>?|\*{2,}|▶|#{2,})|\b(?:phase|stage)\b\W{0,4}|阶段|正在", re.I)
FAILS_AFTER = 160  # characters behind the name within which a failure is said


class Told(NamedTuple):
    """One mark as a line states it."""

    stage: str
    step: int | None
    phase: str
    seconds: float | None = None
    framework: str | None = None
    call: bool = False  # one request of many: it shows what goes on, and neither begins nor ends the stage


@cache
def _gate() -> tuple[AhoCorasick, list[tuple[int, str]], AhoCorasick]:
    words = courses.load().gate()
    first = sorted(w for w in words if words[w] != ROOT)
    return AhoCorasick(first), [(words[w], w) for w in first], AhoCorasick(sorted(w for w in words if words[w] & ROOT))


def look(low: str) -> tuple[int, list[str]]:
    """What a line in lower case may hold, and the phrases and frameworks that it does; `(0, [])` for nearly all lines."""
    search, shows, roots = _gate()
    found = search.find_matches_as_indexes(low, overlapping=True)
    if not found:
        return 0, []
    seen = 0
    words: list[str] = []
    for index in {m[0] for m in found}:
        bits, word = shows[index]
        seen |= bits
        if bits & (STRONG | FRAMEWORK | SETTING):
            words.append(word)
    if seen & VERB and roots.find_matches_as_indexes(low):
        seen |= ROOT
    return (seen, sorted(words)) if words or seen & ROOT else (0, words)


class _Name(NamedTuple):
    """What an entry of `plain.toml` names: a stage; `how` is names, doing or did; `bare` ones are ordinary words too."""

    stage: str
    how: str
    bare: bool


class _Plain(NamedTuple):
    names: dict[str, _Name]  # by the words without anything between them
    beginnings: frozenset[str]
    behind: re.Pattern[str]  # what may stand between a name and its verb, and the verb
    before: re.Pattern[str]
    fails: re.Pattern[str]
    phase_of: dict[str, str]


@cache
def _plain() -> _Plain:
    """The tables of plain words; made when a line first needs them."""
    course = courses.load()
    names: dict[str, _Name] = {}
    for stage, words in course.stages.items():
        bare = {_joined(b) for b in words.get("bare", ())}
        for how in ("did", "doing", "names"):
            for entry in words.get(how, ()):
                key = _joined(entry)
                names[key] = _Name(stage, how, key in bare)
    phase_of = {w: p for p in ("start", "end", "failed") for w in course.phases[p]}
    verb = "|".join(re.escape(w) for w in sorted(phase_of, key=len, reverse=True))
    failed = "|".join(re.escape(w) for w in course.phases["failed"])
    between = (
        r"(?:[ _-]{0,2}(?:phase|stage|process|task|request)s?(?![a-z]))?(?:[\s(,]{0,3}(?:for|of|at|in|on|to)?\s?(?:global[ _])?(?:step|iter\w{0,6}|round|version|epoch|v)\W{0,3}\d{1,9}\)?)?"
        r"[\s:：=|>.,()\[\]⏱✅✓→-]{0,6}(?:(?:is|was|has|have|been|now|status|successfully|已|已经)[\s:=]{1,2}){0,3}"
    )
    return _Plain(
        names, frozenset(key[:n] for key in names for n in range(1, len(key) + 1)), re.compile(rf"{between}({verb})(?![a-z])", re.I),
        re.compile(rf"({verb})(?![a-z]){FILLERS}", re.I), re.compile(failed, re.I), phase_of,
    )  # fmt: skip


WORD = re.compile(r"[ _.:=/-]{0,3}([A-Za-z]+|\d[\d,]{0,15}|[\u4e00-\u9fff]+)")
MOST_WORDS = 8


def _joined(words: str) -> str:
    """Words in lower case without a plural's s and without anything between them; numbers are `#`."""
    return "".join("#" if w[0].isdigit() or w == "#" else _singular(w) for w in re.findall(r"[A-Za-z]+|\d[\d,]*|[\u4e00-\u9fff]+|#", words.lower()))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] != "s" else word


def _name_at(plain: _Plain, text: str, at: int, hows: tuple[str, ...]) -> tuple[_Name, int] | None:
    """The longest name that stands at a place, and where it ends."""
    joined, best = "", None
    for _ in range(MOST_WORDS):
        match = WORD.match(text, at)
        if match is None:
            break
        word = match[1].lower()
        if word[0] >= "\u4e00":  # no blanks between words: the name may be the beginning of it
            for size in range(len(word), 0, -1):
                if (found := plain.names.get(joined + word[:size])) and found.how in hows:
                    best = (found, match.start(1) + size)
                    break
            joined += word
        else:
            joined += "#" if word[0].isdigit() else _singular(word)
            if (found := plain.names.get(joined)) and found.how in hows and not text[match.end() : match.end() + 1].isdigit():
                best = (found, match.end())
        if joined not in plain.beginnings:
            break
        at = match.end()
    return best


def read(text: str, low: str | None = None, step: int | None = None, words: list[str] | None = None, seen: int | None = None) -> list[Told]:
    """The marks that a message states. `step` is what its header or its words say already."""
    low = text.lower() if low is None else low
    if words is None or seen is None:
        seen, words = look(low)
    if not seen:
        return []
    course = courses.load()
    for word in words:
        for timer in course.timers.get(word, ()):
            if found := _timed(timer, text, low, step):
                return found
    for word in words:
        for mark in course.marks.get(word, ()):
            if found := _phrase(mark, text, low, step):
                return found
    if seen & ROOT and seen & VERB and (told := _words(text[:LONGEST], low[:LONGEST], step)):
        return [told]
    return []


def _number(match: re.Match[str] | None) -> int | None:
    return int(match[match.lastindex or 1]) if match else None


def _step(text: str, step: int | None, stage: str) -> int | None:
    if step is not None:
        return step
    found = _number(STEP.search(text, 0, LONGEST))
    return _number(IN_PATH.search(text, 0, LONGEST)) if found is None and stage == "recover" else found


def _seconds(text: str) -> float | None:
    match = SECONDS.search(text, 0, LONGEST)
    if match is None:
        return None
    value, unit = float(match[1] or match[3]), (match[2] or "s").lower()
    return value / 1000 if unit in ("ms", "毫秒") else value * 60 if unit.startswith("min") else value


def _timed(timer: courses.Timer, text: str, low: str, step: int | None) -> list[Told]:
    found = []
    for match in re.finditer(timer.pattern, text[:TIMERS_CUT]):
        groups = match.groupdict() or dict(zip(("name", "phase", "seconds") if match.re.groups >= 3 else ("name", "seconds"), match.groups(), strict=False))
        stage = timer.stages.get(groups["name"].strip().lower())
        if stage is None:
            continue
        phase = (groups.get("phase") or "after").lower()
        phase = {"started": "start", "finished": "end", "done": "end"}.get(phase, phase)
        try:
            seconds = float(groups["seconds"]) if groups.get("seconds") else None
        except ValueError:
            continue
        found.append(Told(stage, _step(text, step, stage), phase, seconds, timer.framework))
    return found


def _phrase(mark: courses.Mark, text: str, low: str, step: int | None) -> list[Told]:
    match = re.search(mark.pattern, text[:LONGEST], re.I) if mark.pattern else None
    if mark.pattern and match is None:
        return []
    stage, phase = mark.stage, mark.phase
    if mark.call or mark.group:
        named = calls.method(match["name"] if mark.group else match[1]) if match else None
        if named is None:
            return []
        stage = named
        if mark.group and match:
            phase = {"begin": "start", "done": "end", "finish": "end", "error": "failed"}.get(match["phase"].lower(), match["phase"].lower())
            if phase not in courses.PHASES:
                return []
    return [Told(_which_save(stage, low), _step(text, step, stage), phase, None if phase == "start" else _seconds(text), mark.framework, mark.call)]


def _which_save(stage: str, low: str) -> str:
    """A save by the words or the path beside it: the one that is overwritten every step, or the one that is kept."""
    if stage == "save":
        if "periodic" in low or "周期" in low or "定期" in low:
            return "periodic_recover_save"
        if "latest" in low or "最新" in low:
            return "latest_recover_save"
    return stage


def _words(text: str, low: str, step: int | None) -> Told | None:
    """An announcement in plain words. The name of the stage, or the verb before it, must open the message: elsewhere it is a mention."""
    plain = _plain()
    lead = LEAD.match(text)
    at = lead.end() if lead else 0

    def told(name: _Name, named: int, phase: str, end: int, strict: bool = True) -> Told | None:
        if strict and THING.match(text, end):
            return None
        if name.bare and text[end : end + 1] not in (":", "：") and not DECORATED.match(text) and step is None and STEP.search(text) is None:
            return None
        if phase == "failed" and name.bare and name.stage == "train" and "step" not in low[:named]:
            return None  # "Training failed" is said of the whole run
        if phase == "start":
            phase = _ends(text, end) or phase
        return Told(_which_save(name.stage, low), _step(text, step, name.stage), phase, None if phase == "start" else _seconds(text))

    if named := _name_at(plain, text, at, ("names",)):
        name, end = named
        if (match := plain.behind.match(text, end)) and (found := told(name, end, plain.phase_of[match[1].lower()], match.end())):
            return found
        if ALONE.match(text, end) and DECORATED.search(text):
            return told(name, end, "start", len(text), strict=False)
        # "weight sync: engines 0-1 timed out after 3600s": who failed stands between
        if text[end : end + 2].strip()[:1] in (":", "：") and plain.fails.search(text, end, end + FAILS_AFTER):
            return told(name, end, "failed", end, strict=False)
    verb = plain.before.match(text, at)
    named = _name_at(plain, text, verb.end(), ("names", "doing")) if verb else None
    if verb and named and EDGE.match(text, named[1]) and (found := told(named[0], named[1], plain.phase_of[verb[1].lower()], named[1])):
        return found
    if (named := _name_at(plain, text, at, ("did", "doing"))) and EDGE.match(text, named[1]):
        name, end = named
        if name.how == "did":
            return told(name, end, "start" if name.stage == "cleanup" else "end", end, strict=False)
        return None if "%|" in text else told(name, end, "start", end, strict=False)
    return None


ALONE = re.compile(r"(?:[ _-]?(?:phase|stage|阶段))?\W*$", re.I)
EDGE = re.compile(r"(?![A-Za-z0-9_])")
OVER = re.compile(r"(?:\bdone|\bfinished|\bcompleted?|\bsucceeded|完成|结束|成功)(?![a-z])")
NOT_YET = re.compile(r"\b(?:after|once|until|before|when)\b")


def _ends(text: str, end: int) -> str | None:
    """Whether behind "syncing weights" or "start rollout" it says that this is over or failed: `... done in 3s`."""
    rest = text[end : end + 60].lower()
    if any(word in rest for word in ("failed", "timed out", "失败", "超时")):
        return "failed"
    return "end" if OVER.search(rest) and not NOT_YET.search(rest) else None


class Marks:
    """The marks of one stream, the newest kept; the same one again is no news."""

    __slots__ = ("announces", "kept", "most", "step_seen")

    def __init__(self, most: int) -> None:
        self.kept: list[tuple] = []
        self.most, self.announces = most, False
        self.step_seen = -1  # number of the line that stated a step

    def add(self, mark: tuple, told: Told) -> None:
        """Take one mark `(ns, stage, step, phase, line, offset, raw, role, seconds, whether the time is its own, whether it is one request)`."""
        kept = self.kept
        if kept and kept[-1][1:4] == mark[1:4] and kept[-1][10] == mark[10] and told.seconds is None:
            if told.phase == "start":
                return  # one of many workers that are told to begin
            if len(kept) > 1 and kept[-2][1:4] == mark[1:4]:
                kept.pop()  # of many that ended the first and the last
        kept.append(mark)
        self.announces = self.announces or (told.phase == "start" and told.stage not in ("cleanup", "init", "recover"))
        limit = MOST if self.announces else self.most
        if len(kept) > 2 * limit:
            del kept[: len(kept) - limit]

    def finish(self) -> list[tuple]:
        """What is kept, oldest first."""
        return self.kept[-(MOST if self.announces else self.most) :]


def take(stream: Any, line: Line, at: tuple, seen: int, words: list[str], low: str, frameworks: set[str]) -> None:
    """Hold a line of a stream against all phrases; an announcement becomes the stream's stage and step."""
    known = courses.load().frameworks
    frameworks.update(known[w] for w in words if w in known)
    if seen & SETTING and "settings" not in stream.facts and (found := settings.read(line.text)):
        stream.facts["settings"] = found
    for told in read(line.text, low, line.step, words, seen):
        if told.framework:
            frameworks.add(told.framework)
        stamp = line.stamp or stream.stamp
        step = told.step if told.step is not None else stream.step if told.phase == "after" else None
        mark = (stamp.ns if stamp else None, told.stage, step, told.phase, at[0], at[1], at[2][:RAW_CUT], None, told.seconds, line.stamp is not None, told.call)
        stream.marks.add(mark, told)
        if told.step is not None:
            stream.step = told.step
        if told.phase == "start":
            stream.stage, stream.said_stage = told.stage, True
        elif told.phase in ("end", "failed") and not told.call and stream.stage == told.stage:
            stream.stage, stream.said_stage = None, False
