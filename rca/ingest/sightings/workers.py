"""Workers: lines in which a process says who it is, or in which a controller says where a worker listens.

>>> for text in SAMPLE.splitlines():
...     print([fields for _, fields in sight(Line(text), text.lower())])
[{'name': 'train worker', 'index': 5, 'pid': 24867, 'host': 'pod-33', 'ip': '10.10.102.33', 'port': 18005, 'devices': '5', 'rank': 5, 'local_rank': 5, 'world': 24, 'own': True}]
[{'name': 'reference', 'index': 1, 'ip': '10.10.55.48', 'port': 19002, 'host': 'cn048-g'}]
[{'name': 'rollout', 'index': 9, 'ip': '10.4.7.17', 'port': 30001}]
[{'name': 'server', 'index': 0, 'ip': '10.10.102.70'}]
[{'name': 'rollout engine', 'index': 3, 'host': 'gn12', 'port': 30003}]
[{'name': None, 'index': None, 'rank': 3, 'local_rank': 3, 'devices': '0,1,2,3', 'own': True}]
[]
[]

`devices` is what `CUDA_VISIBLE_DEVICES` or its kin of another vendor holds, as it is written.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.line import Line
from rca.ingest.sightings.hosts import IP, NAME, REGISTERED, ip_of, name_of

SAMPLE = """\
train worker 5 pid=24867 host=pod-33 ip=10.10.102.33 port=18005 CUDA_VISIBLE_DEVICES=5 rank=5 local_rank=5 world_size=24
reference/1 registered: http://10.10.55.48:19002 on cn048-g
Async calling method 'create_engine' on worker 'rollout/9' (attempt 1), url: http://10.4.7.17:30001/create_engine
no answer from server 0 (10.10.102.70)
rollout engine 3 listening on gn12:30003
rank=3 local_rank=3 CUDA_VISIBLE_DEVICES=0,1,2,3
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
KEYS = (
    ("pid", re.compile(r"(?<![\w.-])pid\"?\s?[=:]\s?(\d{1,9})(?!\d)", re.I)),
    ("host", re.compile(rf"(?<![\w.-])(?:host_?name|host|node_?name|node)\"?\s?[=:]\s?[\"']?({NAME})", re.I)),
    ("ip", re.compile(rf"(?<![\w.-])(?:ip|ip_?addr(?:ess)?|node_ip|addr(?:ess)?|host)\"?\s?[=:]\s?[\"']?({IP})(?![\d.])", re.I)),
    ("port", re.compile(r"(?<![\w.-])port\"?\s?[=:]\s?(\d{2,5})(?!\d)", re.I)),
    ("rank", re.compile(r"(?<![\w.-])(?:global_)?rank\"?\s?[=:]\s?(\d{1,6})(?!\d)", re.I)),
    ("local_rank", re.compile(r"(?<![\w.-])local_rank\"?\s?[=:]\s?(\d{1,4})(?!\d)", re.I)),
    ("world", re.compile(r"(?<![\w.-])world(?:_size)?\"?\s?[=:]\s?(\d{1,6})(?!\d)", re.I)),
)
DEVICES = re.compile(r"\b(?:CUDA|HIP|ROCR|NVIDIA|ASCEND(?:_RT)?|MUSA|GPU)_VISIBLE_DEVICES\"?'?\]?\s?[=:]\s?[\"'\[]?((?:\d{1,3}(?:, ?)?){1,64}|(?:(?:GPU|MIG)-[\w/-]{4,80},?){1,16})")
ADDRESS = re.compile(rf"(?<![\w.-])(?:https?://|tcp://)?({IP}|{NAME}):(\d{{4,5}})(?!\d)")
BRACKET = re.compile(rf"\(({IP})(?::(\d{{2,5}}))?\)")
LEADS = re.compile(r"(?:://|@ ?|url|on|at|address|addr|endpoint|listening|serving|registered|ready|started|server)\b", re.I)


def mentions(text: str) -> list[tuple[str, int, int]]:
    """The workers that a text speaks of as `(name, index, where)`.

    >>> mentions("RefWorker 5 and WorkerDict[2] failed, actor_3 not"), mentions("step 3 of rollout, 2 servers, v1/3, engine-2.5")
    ([('RefWorker', 5, 0), ('WorkerDict', 2, 16), ('actor', 3, 38)], [])
    """
    return [(m[1] or m[3], int(m[2] or m[4]), m.start()) for m in MENTION.finditer(text)]


def sight(line: Line, low: str) -> list[tuple[str, dict[str, Any]]]:
    """The worker that a line introduces or gives an address of."""
    text = line.text
    visible = DEVICES.search(text) if "visible_devices" in low else None
    if visible is None and not ("pid" in low or "://" in low or ":" in low or "(" in low):
        return []
    named = list(dict.fromkeys((name, index) for name, index, _ in mentions(text)))
    keyed: dict[str, Any] = {}
    for key, pattern in KEYS:
        if (m := pattern.search(text)) is None:
            continue
        value: Any = ip_of(m[1]) if key == "ip" else name_of(m[1]) if key == "host" else int(m[1])
        if value is not None:
            keyed[key] = value
    if visible is not None:
        keyed["devices"] = visible[1].replace(" ", "").strip(",")
    if len(named) > 1:
        return []
    name, index = named[0] if named else (None, None)
    # A launcher speaks of its children by pid and local rank; only its own role or devices make the line an introduction.
    if "devices" in keyed or (named and len(keyed.keys() & {"pid", "local_rank", "world", "host"}) >= 2):
        order = ("pid", "host", "ip", "port", "devices", "rank", "local_rank", "world") if named else ("pid", "host", "ip", "port", "rank", "local_rank", "world", "devices")
        fields = {"name": name, "index": index, **{k: keyed[k] for k in order if k in keyed}, "own": True}
        return [("worker", fields | ({"stream": line.stream} if line.stream else {}))]
    if not named:
        return []
    place = _place(text)
    return [("worker", {"name": name, "index": index, **place})] if place else []


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
