"""What Ray says of a call that failed in another process: whose traceback the caller reprints, and who died.

The heading of a reprint names the process that raised it; with several levels of actors there are several headings, and the last one's body is
the cause. A dead actor is described in a block of keys below the exception; the list of potential causes at its end is the same in every report.

>>> heading(HEADING)
{'pid': 18211, 'host': '10.128.0.9', 'actor': 'WorkerDict', 'method': 'actor_rollout_update_actor'}
>>> heading("Unhandled error (suppress with 'X=1'): ray::fetch() (pid=7, ip=node-3)")
{'pid': 7, 'host': 'node-3', 'actor': None, 'method': 'fetch'}
>>> heading("the task ray::fetch ended"), heading("")
(None, None)
>>> died(SAMPLE)
{'pid': 20174, 'host': '10.164.37.106', 'actor': 'WorkerDict', 'node_index': 0, 'local_rank': 1, 'exit_type': 'SYSTEM_ERROR'}
>>> [stage_of_method(m) for m in ("actor_rollout_update_actor", "ref_compute_ref_log_prob", "broadcast_to_vllm", "init_model", "run", None)]
['train', 'reference', 'weights_update', 'init', None, None]

Source: ray python/ray/exceptions.py (RayTaskError, ActorDiedError); verl single_controller/ray/base.py (names of actors).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

HEADING = "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.actor_rollout_update_actor() (pid=18211, ip=10.128.0.9, actor_id=8752, repr=<x>)"
SAMPLE = """\
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict
\tactor_id: d9cc467228965f31cb6dbc9301000000
\tpid: 20174
\tname: Zap04XWorkerDict_0:1
\tip: 10.164.37.106
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits."""

MARK = "ray::"
#: The title of a process may hold brackets and arrows (`MapBatches(fn)->Write`); the call's own brackets come last.
TITLE = re.compile(r"ray::(?P<title>[^\s].{0,160}?)\(\) \(pid=(?P<pid>\d{1,9})(?:, (?:ip|host)=(?P<host>[\w.:-]{1,80}))?", re.ASCII)
DEATH = re.compile(r"(?:[\w.]{0,60}\.)?(?:ActorDiedError|RayActorError|ActorUnavailableError|WorkerCrashedError)\b(?!\()", re.ASCII)
CALLEE = re.compile(r"\b(?:worker|actor|engine|replica) '([\w./-]{1,80})'|\bon engine ([\w./-]{1,80})|\brpc /\S{1,80} to ([\w./-]{1,80})|\b(\w{1,60}\[\d{1,6}\])\.\w+")
CALLED = re.compile(r"\bmethod '(\w{1,80})'|\brpc /(\w{1,80})")
KEY = re.compile(r"^\s{0,12}(class_name|pid|name|ip|actor_id|namespace|repr): {0,2}(\S.{0,200})$", re.M)
EXIT_TYPE = re.compile(r"exit[_ ]type[:=] {0,2}(\w{1,60})", re.I)
PLACE = re.compile(r"_(\d{1,5}):(\d{1,4})$")  # verl: node and process of a worker group
STAGES = (
    ("save", re.compile(r"save", re.I)),
    ("weights_update", re.compile(r"weight|refit|param_sync|update[_ ](?:param|named)|cudaipc|broadcast_to|resume_memory|release_memory|wake_?up", re.I)),
    ("load", re.compile(r"load_(?:checkpoint|state|model)|resume|recover", re.I)),
    ("eval", re.compile(r"eval|validat", re.I)),
    ("reference", re.compile(r"log_?p(?:rob)?s?\b|logp|ref_?(?:policy|model|forward)|compute_ref", re.I)),
    ("rollout", re.compile(r"generat|^rollout$|rollout_(?!update|compute|init|save|load)|run_workflow|sample|execute_model|chat_completion|agent_loop", re.I)),
    ("train", re.compile(r"update_(?:actor|critic|policy)|train|fit_batch|forward_backward|optimi[sz]er?_step|ppo_step", re.I)),
    ("init", re.compile(r"init|create_engine|setup|start_engine|launch|get_master_addr", re.I)),
)  # fmt: skip


def heading(text: str) -> dict[str, Any] | None:
    """The process whose traceback follows, or None: `pid`, `host` and `actor` (None where not said), `method`."""
    match = TITLE.search(text, 0, 2000) if MARK in text else None
    if match is None:
        return None
    owner, _, method = match["title"].rpartition(".")
    actor = owner.rpartition(".")[2].rpartition(":")[2].partition("(")[0] or None
    return {"pid": int(match["pid"]), "host": match["host"], "actor": actor, "method": method}


def quoted(text: str) -> dict[str, Any]:
    """The callee that a caller names before it quotes its traceback; never empty.

    >>> quoted("Failed to call method 'compute_logp' on worker 'ref/3': HTTP 500: error: Engine method 'compute_logp' failed")
    {'actor': 'ref/3', 'method': 'compute_logp'}
    >>> quoted("request failed")
    {'actor': None}
    """
    callee, method = CALLEE.search(text, 0, 600), CALLED.search(text, 0, 600)
    found: dict[str, Any] = {"actor": next((name for name in callee.groups() if name), None) if callee else None}
    return found | ({"method": method[1] or method[2]} if method else {})


def opens(text: str) -> bool:
    """Whether a traceback without a heading of its own begins with this line: a reprint, or the exception that an actor's death is.

    >>> opens(HEADING), opens(SAMPLE.split("\\n")[0]), opens("except ray.exceptions.RayTaskError(ValueError)")
    (True, True, False)
    """
    return (MARK in text and TITLE.search(text, 0, 2000) is not None) or DEATH.match(text) is not None


def fields(whose: dict[str, Any], message: str, attrs: dict[str, Any]) -> dict[str, Any]:
    """The columns of the event that a reprint or an actor's death is; adds what has no column to `attrs`."""
    if DEATH.match(message) and (found := died(message)):
        attrs |= {"victim": True, "how": "ended"}  # it speaks of that process, whoever called it
    else:
        found = dict(whose)
        if whose:
            attrs["remote"] = True  # another process raised it, and may have said so itself
    attrs |= {name: found.pop(name) for name in ("method", "node_index", "exit_type") if name in found}
    return found


def of_another(attrs: dict[str, Any]) -> bool:
    """Whether an event speaks of another process than the one that printed it."""
    return bool(attrs.get("remote") or attrs.get("victim"))


def died(message: str) -> dict[str, Any]:
    """Who died, by the block of keys below an actor's death and the sentence behind it; empty where neither tells."""
    keys = {name: value.strip() for name, value in KEY.findall(message[:4000])}
    found: dict[str, Any] = {}
    if keys.get("pid", "").isdecimal():
        found["pid"] = int(keys["pid"][:9])
    if "ip" in keys:
        found["host"] = keys["ip"]
    if "class_name" in keys:
        found["actor"] = keys["class_name"].rpartition(".")[2].partition("(")[0]
    if place := PLACE.search(keys.get("name", "")):
        found["node_index"], found["local_rank"] = int(place[1]), int(place[2])
    if exit_type := EXIT_TYPE.search(message):
        found["exit_type"] = exit_type[1]
    return found


@lru_cache(maxsize=256)
def stage_of_method(method: str | None) -> str | None:
    """The stage of a run that a remote method belongs to, by its name; None where the name does not tell."""
    return next((stage for stage, pattern in STAGES if pattern.search(method)), None) if method else None
