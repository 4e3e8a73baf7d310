"""Workers: lines in which a process says who it is, or in which a controller says where a worker listens.

>>> for text in SAMPLE.splitlines():
...     print([fields for _, fields in sight(Line(text), text.lower())])
[{'name': 'train worker', 'index': 5, 'pid': 24867, 'host': 'pod-33', 'ip': '10.10.102.33', 'port': 18005, 'devices': '5', 'rank': 5, 'local_rank': 5, 'world': 24, 'own': True}]
[{'name': 'reference', 'index': 1, 'ip': '10.10.55.48', 'port': 19002, 'host': 'cn048-g'}]
[{'name': 'rollout', 'index': 9, 'ip': '10.4.7.17', 'port': 30001}]
[{'name': 'server', 'index': 0, 'ip': '10.10.102.70'}]
[{'name': 'rollout engine', 'index': 3, 'host': 'gn12', 'port': 30003}]
[{'name': None, 'index': None, 'rank': 3, 'local_rank': 3, 'devices': '0,1,2,3', 'own': True}]
[{'name': 'actor', 'index': 2, 'pid': 811, 'host': 'gn7', 'ip': '10.0.0.7', 'devices': '2', 'rank': 2, 'world': 4, 'own': True}]
[{'name': None, 'index': None, 'pid': 216, 'host': 'gn9', 'ip': '10.0.0.9', 'rank': 7, 'world': 8, 'devices': '3', 'own': True}]
[]
[]

`devices` is what `CUDA_VISIBLE_DEVICES` or its kin of another vendor holds, as it is written.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ahocorasick_rs import AhoCorasick

from rca.ingest.line import Line
from rca.ingest.sightings.hosts import DOTS, IP, NAME, REGISTERED, ip_of, name_of

SAMPLE = """\
train worker 5 pid=24867 host=pod-33 ip=10.10.102.33 port=18005 CUDA_VISIBLE_DEVICES=5 rank=5 local_rank=5 world_size=24
reference/1 registered: http://10.10.55.48:19002 on cn048-g
Async calling method 'create_engine' on worker 'rollout/9' (attempt 1), url: http://10.4.7.17:30001/create_engine
no answer from server 0 (10.10.102.70)
rollout engine 3 listening on gn12:30003
rank=3 local_rank=3 CUDA_VISIBLE_DEVICES=0,1,2,3
[actor 2] rank=2/4 node=gn7 (10.0.0.7) pid=811 cuda=2
process index 7/8 on gn9 (10.0.0.9) pid 216 device cuda:3
rollout 64 samples took 3 s at http://10.4.7.17:30001/
rollout/3 and rollout/4 asked http://10.4.7.17:17000/"""

LITERALS = (b"visible_devices",)

ROLES = (
    r"train(?:er|ing)?|actor(?:_rollout(?:_ref)?)?|policy|learner|rollout|infer(?:ence)?|generat(?:e|or|ion)|sampl(?:er|e)|sglang(?:http)?|vllm(?:http)?|reference|ref"
    r"|reward|verifier|critic|value|judge|gen|decode|prefill"
)
NOUNS = r"workerdict|worker|engine|server|replica|instance|process|proc|client"
#: `train worker 5`, `RolloutEngine-9`, `rollout/9`, `actor[3]`, `server 0`; a role and a bare number (`rollout 64`) counts samples or steps.
MENTION = re.compile(
    rf"(?<![\w./-])((?:(?:{ROLES})[ _-]?)?(?:{NOUNS}))(?:[ _/-]?#|[ /_:-]|\[| rank | no\.? )(\d{{1,5}})(?![\w.%]|:\d)"
    rf"|(?<![\w./-])({ROLES})(?:[/_#-]|\[| rank )(\d{{1,5}})(?![\w.%]|:\d)",
    re.I,
)
#: Where it is sure already that a process introduces itself: `[actor 2]`, `gen1`, a role in Chinese before its number.
LOOSE = re.compile(
    rf"[\[(<]((?:(?:{ROLES})[ _-]?)?(?:{NOUNS})|{ROLES}) ?(\d{{1,5}})[\])>]|(?<![\w./-])((?:{ROLES})(?:[ _-]?(?:{NOUNS}))?)(\d{{1,4}})(?![\w.%:])"
    r"|((?:训练|推理|采样|生成|参考|奖励|评论|价值)(?:进程|引擎|服务|实例|节点)?) ?#?(\d{1,5})(?!\d)",
    re.I,
)
ROLE_IN = re.compile(ROLES, re.I)
#: What each role and noun begins with; a line without any of them mentions no worker.
BEGINNINGS = frozenset(word.partition("(")[0] for word in re.split(r"\|(?![^(]*\))", f"{ROLES}|{NOUNS}"))
DIGITED = r"(?=[\w.-]{0,62}\d)[A-Za-z][\w.-]{0,62}"  # a word after `host ` is a host's name where it holds a number
#: With the words of which one must be there: one search for all of them costs a tenth of what these expressions do.
KEYS = (
    ("pid", frozenset({"pid", "进程号"}), re.compile(r"(?<![\w.-])pid\"?(?:\s?[=:]\s?|\s)(\d{1,9})(?!\d)|进程号\s?[=:：]?\s?(\d{1,9})", re.I)),
    ("host", frozenset({"host", "node", "on ", "主机", "节点"}), re.compile(rf"(?<![\w.-])(?:host_?name|host|node_?name|node)\"?(?:\s?[=:]\s?[\"']?({NAME})|\s({DIGITED}))|\bon ({DIGITED}) \({IP}|(?:主机|节点)名?\s?[=:：]\s?({NAME})", re.I)),
    ("ip", frozenset({"."}), re.compile(rf"(?<![\w.-])(?:ip|ip_?addr(?:ess)?|node_ip|addr(?:ess)?|host)\"?(?:\s?[=:]\s?|\s)[\"']?({IP})(?![\d.])|[\w-] \(({IP})[:)]|\b(?:on|at) ({IP}):?\d* \((?:host|node)|地址\s?[=:：]\s?({IP})", re.I)),
    ("port", frozenset({"port"}), re.compile(r"(?<![\w.-])port\"?\s?[=:]\s?(\d{2,5})(?!\d)", re.I)),
    ("rank", frozenset({"rank", "index"}), re.compile(r"(?:(?<![\w.-])(?:global_)?|全局)rank(?:\"?\s?[=:]\s?| (?=\d{1,6} ?(?:of|/|world)))(\d{1,6})(?!\d)|\bprocess index:? (\d{1,6})(?= ?(?:of|/) ?\d)", re.I)),
    ("local_rank", frozenset({"local_rank"}), re.compile(r"(?<![\w.-])local_rank\"?\s?[=:]\s?(\d{1,4})(?!\d)", re.I)),
    ("world", frozenset({"world", "rank", "index"}), re.compile(r"(?<![\w.-])world(?:_size)?\"?(?:\s?[=:]\s?|\s)(\d{1,6})(?!\d)|\b(?:rank|index)(?:\s?[=:]\s?| )\d{1,6} ?(?:of|/) ?(\d{1,6})(?!\d)", re.I)),
)
SELF = frozenset({"pid", "host", "world", "local_rank"})  # a line that tells two of these introduces who wrote it
WORDS = tuple(sorted(BEGINNINGS.union(*(words for _, words, _ in KEYS))))
#: The one device of a process, where no variable says which it may see.
DEVICE = re.compile(r"(?<![\w.-])(?:gpu|cuda|dev|device|npu|card)(?:_?(?:id|index))?\"?(?:\s?[=:]\s?| )(\d{1,2})(?![\w.%]|\s?[KMGT]i?B)|(?:显卡|卡号)\s?[=:：]?\s?(\d{1,2})(?!\d)", re.I)
FIRST_OF = re.compile(r"\bbase_gpu_id\s?=\s?(\d{1,3})\b")  # SGLang: the engine takes `tp_size` devices from there
WIDE = re.compile(r"\b(?:tp|tp_size|tensor_parallel_size)[ =](\d{1,2})\b")
#: What is said of somebody else, mostly when it is over.
OTHERS = re.compile(r"\b(?:exit\w*|died|dead|kill\w*|lost|fail\w*|error|time\w? ?out|timed|stop\w*|restart\w*|not|unreachable|evict\w*|retry\w*|missing|crash\w*|memory|Xid)\b|异常|失败|退出|超时|错误", re.I)
DEVICES = re.compile(r"\b(?:CUDA|HIP|ROCR|NVIDIA|ASCEND(?:_RT)?|MUSA|GPU)_VISIBLE_DEVICES\"?'?\]?(?:\s?[=:]\s?| )[\"'\[]?((?:\d{1,3}(?:, ?)?){1,64}|(?:(?:GPU|MIG)-[\w/-]{4,80},?){1,16})")
ADDRESS = re.compile(rf"(?<![\w.-])(?:https?://|tcp://)?({IP}|{NAME}):(\d{{4,5}})(?!\d)")
BRACKET = re.compile(rf"\(({IP})(?::(\d{{2,5}}))?\)")
LEADS = re.compile(r"(?:://|@ ?|url|on|at|address|addr|endpoint|listening|serving|registered|ready|started|server)\b", re.I)


def mentions(text: str) -> list[tuple[str, int, int]]:
    """The workers that a text speaks of as `(name, index, where)`.

    >>> mentions("RefWorker 5 and WorkerDict[2] failed, actor_3 not"), mentions("step 3 of rollout, 2 servers, v1/3, engine-2.5")
    ([('RefWorker', 5, 0), ('WorkerDict', 2, 16), ('actor', 3, 38)], [])
    """
    return [(m[1] or m[3], int(m[2] or m[4]), m.start()) for m in MENTION.finditer(text)]


@cache
def _words() -> AhoCorasick:
    """Looks for all words of the table at once."""
    return AhoCorasick(WORDS)


def sight(line: Line, low: str) -> list[tuple[str, dict[str, Any]]]:
    """The worker that a line introduces or gives an address of."""
    text = line.text
    visible = DEVICES.search(text) if "visible_devices" in low else None
    if visible is None and not ("pid" in low or "://" in low or ":" in low or "(" in low or "进程号" in low):
        return []
    there = {WORDS[found[0]] for found in _words().find_matches_as_indexes(text.lower(), overlapping=True)}
    mentioned = not there.isdisjoint(BEGINNINGS)
    if visible is None and not mentioned and sum(not there.isdisjoint(words) for key, words, _ in KEYS if key in SELF) < 2:
        return []
    named = list(dict.fromkeys((name, index) for name, index, _ in mentions(text))) if mentioned else []
    keyed: dict[str, Any] = {}
    for key, words, pattern in KEYS:
        if there.isdisjoint(words) or (key == "ip" and text.count(".") < DOTS) or (m := pattern.search(text)) is None:
            continue
        said = next(group for group in m.groups() if group is not None)
        value: Any = ip_of(said) if key == "ip" else name_of(said) if key == "host" else int(said)
        if value is not None:
            keyed[key] = value
    if visible is not None:
        keyed["devices"] = visible[1].replace(" ", "").strip(",")
    named = [(name, index) for name, index in named if f"{name}-{index}" != keyed.get("host")]  # hosts are called `worker-36` as well
    if len(named) > 1:
        return []
    itself = len(keyed.keys() & SELF) >= 2 and OTHERS.search(text) is None
    if itself and "devices" not in keyed and (device := _device(text)):
        keyed["devices"] = device
    if itself and not named and (m := LOOSE.search(text)):
        named = [(m[1] or m[3] or m[5], int(m[2] or m[4] or m[6]))]
    if itself and not named and "rank" in keyed and line.actor and ROLE_IN.search(line.actor):
        named = [(line.actor, keyed["rank"])]  # the class of a Ray actor, and which of them it is
    name, index = named[0] if named else (None, None)
    # A launcher speaks of its children by pid and local rank; only its own role or devices make the line an introduction.
    if visible is not None or (named and len(keyed.keys() & SELF) >= 2) or (itself and {"pid", "rank", "devices"} <= keyed.keys()):
        order = ("pid", "host", "ip", "port", "devices", "rank", "local_rank", "world") if named else ("pid", "host", "ip", "port", "rank", "local_rank", "world", "devices")
        fields = {"name": name, "index": index, **{k: keyed[k] for k in order if k in keyed}, "own": True}
        return [("worker", fields | ({"stream": line.stream} if line.stream else {}))]
    if not named:
        return []
    place = _place(text)
    return [("worker", {"name": name, "index": index, **place})] if place else []


def _device(text: str) -> str | None:
    """The indexes of the devices that a process says it uses, as `devices` are written; None where it says nothing or several things."""
    wide = WIDE.search(text)
    if m := FIRST_OF.search(text):
        return ",".join(str(int(m[1]) + n) for n in range(min(int(wide[1]) if wide else 1, 16)))
    found = {m[1] or m[2] for m in DEVICE.finditer(text)}
    if len(found) != 1:
        return None
    first = int(found.pop())
    return ",".join(str(first + n) for n in range(min(int(wide[1]) if wide else 1, 16)))


def _place(text: str) -> dict[str, Any]:
    """The one address that a line gives, with its port; empty where it gives none or several."""
    found = {(m[1], m[2]) for m in ADDRESS.finditer(text)} | {(m[1], m[2]) for m in BRACKET.finditer(text)}
    if len(found) != 1 or not (LEADS.search(text) or BRACKET.search(text)):
        return {}
    where, port = found.pop()
    ip = ip_of(where)
    host = None if ip else name_of(where)
    if ip is None and (host is None or host.endswith((".py", ".cc", ".cpp", ".rs", ".go"))):
        return {}
    place: dict[str, Any] = {"ip": ip} if ip else {"host": host}
    if port:
        place["port"] = int(port)
    if ip and (m := REGISTERED.search(text)) and (name := name_of(m[1])):
        place["host"] = name
    return place
