"""Ray's `(Name pid=.., ip=..)` before forwarded lines, and vLLM's prefix of the same shape.

No `ip=` means the driver's node. Ray folds alike lines of several workers into one and appends how many there were.

>>> for text in SAMPLE.splitlines():
...     rest, wrap = peel(text)
...     print(wrap.actor, wrap.pid, wrap.host, repr(rest[:16]), wrap.extra, wrap.stream)
WorkerDict 29884 None '[rank5]:[E929 06' None WorkerDict 29884
RayWorkerWrapper 553 10.0.0.10 'rank 15 in world' {'repeated': 14} RayWorkerWrapper 553 10.0.0.10
MyActor(index=2) 482120 None '  File "x.py"' None MyActor(index=2) 482120
VllmWorker 2120280 None 'INFO 07-28' None VllmWorker 2120280
None 45601 None 'task' None 45601
raylet None 10.0.0.3 '[2025-12-07 09:5' None raylet 10.0.0.3
gcs_server None None 'x' None gcs_server
>>> peel("(PolicyWorker[rank=3] pid=17, ip=10.0.0.4) x")[1][1:7]
('PolicyWorker 17 10.0.0.4', 3, None, '10.0.0.4', 17, 'PolicyWorker')
>>> [peel(t) for t in ("(AReaL) 20260301-16:30:58.375 RLTrainer INFO: x", "(a, b) = f(pid=3)", "(pid", "(raylets)")]
[None, None, None, None]

Source: ray `_private/worker.py` (print_worker_logs), `_private/ray_logging/` (dedup); vllm `utils/system_utils.py` (decorate_logs).
"""

from __future__ import annotations

import re
from functools import lru_cache

from rca.ingest.formats import LOCAL, Wrap

SAMPLE = """\
(WorkerDict pid=29884) [rank5]:[E929 06:42:59.467647529 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog
(RayWorkerWrapper pid=553, ip=10.0.0.10) rank 15 in world size 16 [repeated 14x across cluster]
(MyActor(index=2) pid=482120)   File "x.py"
(VllmWorker rank=0 pid=2120280) INFO 07-28
(pid=45601) task
(raylet, ip=10.0.0.3) [2025-12-07 09:57:19,206 E 3 3] x
(pid=gcs_server) x"""

WORKER = re.compile(r"\((?:([^\s()=,\[][^()=,\[]{0,60}?(?:\([^()]{0,40}\))?)(?:\[([^\[\]()]{1,60})\])?(?: rank=\d+)? )?pid=(\d{1,9}|gcs_server)(?:, ip=([\w.:-]{1,80}))?\)", re.ASCII)
RANK = re.compile(r"(?<![a-z])rank[=:](\d{1,6})(?!\d)", re.ASCII)  # `[rank=3]`, not `[tp_rank=1]`
SYSTEM = re.compile(r"\((raylet|gcs_server|autoscaler|scheduler|log_monitor|dashboard)(?: [+\w]{1,20})?(?:, ip=([\w.:-]{1,80}))?\)", re.ASCII)
REPEATED = re.compile(r" \[repeated (\d{1,7})x across cluster\](?: \(Ray deduplicates logs by default\..*)?$", re.ASCII)


def peel(text: str) -> tuple[str, Wrap] | None:
    """Take one such prefix off."""
    end = text.find(") ", 1, LOCAL * 2)
    if end > 0 and text.count("(", 0, end) > 1:  # a name with brackets of its own
        end = text.find(") ", end + 1, LOCAL * 2)
    if end < 0:
        end = len(text) - 1 if text[-1:] == ")" else 0
    wrap = _writer(text[: end + 1])
    if wrap is None:
        return None
    rest = text[end + 2 :]
    at = rest.rfind(" [repeated ")
    if at >= 0 and (times := REPEATED.match(rest, at)):
        return rest[:at], wrap._replace(extra={"repeated": int(times[1])})
    return rest, wrap


@lru_cache(maxsize=1 << 12)
def _writer(prefix: str) -> Wrap | None:
    """The writer that the text from the first bracket to its end names."""
    rank = None
    match = WORKER.fullmatch(prefix)
    if match:
        name, labels, pid, host = match.groups()
        if labels and (said := RANK.search(labels)):
            rank = int(said[1])
        if pid == "gcs_server":
            name, pid = pid, None
    else:
        match = SYSTEM.fullmatch(prefix)
        if match is None:
            return None
        (name, host), pid = match.groups(), None
    stream = " ".join(part for part in (name, pid, host) if part)
    return Wrap("ray", stream, rank, host=host, pid=int(pid) if pid else None, actor=name)
