"""Prefixes of launchers and log collectors at the start of a line: srun, CRI, kubectl, Kaggle, pdsh, compose, accelerate.

>>> for text in SAMPLE.splitlines():
...     rest, wrap = peel(text)
...     print(wrap.shape, wrap.stream, wrap.host, wrap.stamp is not None, repr(rest[:12]))
srun 12 None False '[rank0]:[W30'
srun 3 None False 'ok'
cri  None True 'epoch 3'
kubectl  None True '  File "x.py'
kaggle  None False '[rank0]:   F'
pdsh node-7 node-7 False '[rank3]: Tra'
pdsh node-7 node-7 False '  File "t.py'
compose trainer-1 None False '2026-11-20 1'
accelerate  None False 'Traceback (m'
>>> [peel(t) for t in ("2026-11-20T11:32:10.216Z step", "host1: refused", "KeyError: 3", "3:4", "12.5s", "a  | b", "704")]
[None, None, None, None, None, None, None]

srun's number is the task, which is the rank only with one task per GPU: it names the stream and nothing else. A time with a zone and
at least seven digits was added by the container runtime, no logger prints one; a line may follow that has its own time.
Source: srun(1) `--label`; formats/08-schedulers.md 8.2, 8.5, 8.7; Kubernetes CRI logging.
"""

from __future__ import annotations

import re

from rca.ingest.formats import LOCAL, Wrap, cloud, mpi
from rca.ingest.formats.words import LEVEL
from rca.ingest.times import of

SAMPLE = """\
12: [rank0]:[W305 03:55:35.235035264 socket.cpp:469] [c10d]
 3: ok
2025-07-03T14:20:51.565839352Z stdout F epoch 3
2025-07-03T14:20:51.565839352+08:00   File "x.py", line 3
704.7s\t1379\t[rank0]:   File "/kaggle/train.py"
node-7: [rank3]: Traceback (most recent call last):
node-7:   File "t.py", line 3, in f
trainer-1  | 2026-11-20 11:32:10,216 INFO ready
stderr: Traceback (most recent call last):"""

SRUN = re.compile(r" {0,2}(\d{1,5}): ", re.ASCII)
CONTAINER = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (?:(?:stdout|stderr) [FP](?: |$)|(?<=\.\d{7}Z )|(?<=\.\d{8}Z )"
    r"|(?<=\.\d{9}Z )|(?<=\.\d{7}.\d\d:\d\d )|(?<=\.\d{8}.\d\d:\d\d )|(?<=\.\d{9}.\d\d:\d\d ))",
    re.ASCII,
)
KAGGLE = re.compile(r"\d{1,7}\.\d{1,3}s\t\d{1,7}\t", re.ASCII)
RAISED = r"[A-Za-z_][\w.]{0,80}(?:Error|Exception): "
#: A host name is only believed where something stands behind it that begins a line of its own.
PDSH = re.compile(
    r"((?=[a-z.-]{0,60}\d)[a-z][A-Za-z\d.-]{0,60}): ?(?=\[rank\d|\[default\d|\[?\d{4}-\d\d-\d\d|  File \"|Traceback \(|[VIWEFC]\d{4} \d\d:"
    rf"|\[[EWIF]\d{{3,4}} |{LEVEL}\b|{RAISED})",
    re.ASCII,
)
ADDRESS = re.compile(rf"((?:\d{{1,3}}\.){{3}}\d{{1,3}}): ?(?=\[rank\d|\[?\d{{4}}-\d\d-\d\d|  File \"|Traceback \(|{LEVEL}\b|{RAISED})", re.ASCII)
COMPOSE = re.compile(r"([A-Za-z][\w.-]{0,60}?[-_](?:\d{1,4}|\d{1,4}-\w{5}(?:[_-]\d{1,2})?)) {1,20}\| ", re.ASCII)


def peel(text: str) -> tuple[str, Wrap] | None:
    """Take one such prefix off."""
    first = text[:1]
    if first.isdecimal() or first == " ":
        if text[4:5] == "-":
            match = CONTAINER.match(text, 0, LOCAL) if text[10:11] == "T" else None
            if match is None:
                return cloud.peel(text) if "/" in text[20:LOCAL] else None
            shape = "cri" if text[match.end() - 3 : match.end() - 1].strip() in ("F", "P") else "kubectl"
            return text[match.end() :], Wrap(shape, stamp=of(match[1]))
        if match := SRUN.match(text):
            return text[match.end() :], Wrap("srun", match[1])
        match = KAGGLE.match(text) if "s\t" in text[:12] else None
        if match:
            return text[match.end() :], Wrap("kaggle")
        if "." in text[1:4] and (match := ADDRESS.match(text, 0, LOCAL)):
            return text[match.end() :], Wrap("pdsh", match[1], host=match[1])
        return cloud.peel(text) if "\t" in text[:LOCAL] else None
    if text.startswith("stderr: "):
        return text[8:], Wrap("accelerate")
    head = text[:LOCAL]
    if "<std" in head:
        return mpi.peel(text)
    if "\t" in head and (peeled := cloud.peel(text)) is not None:
        return peeled
    if ":" in head and first.islower() and (match := PDSH.match(text, 0, LOCAL)):
        return text[match.end() :], Wrap("pdsh", match[1], host=match[1])
    if " | " in head and (match := COMPOSE.match(head)):
        if head[:5] == "algo-":
            return cloud.peel(text)
        return text[match.end() :], Wrap("compose", match[1], actor=match[1])
    return None
