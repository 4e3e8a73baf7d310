"""Who this process is: host, pid, role, rank, run and attempt, from what the launcher put into the environment.

Sources: torchrun (`RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `TORCHELASTIC_RUN_ID`, `TORCHELASTIC_RESTART_COUNT`), Slurm (`SLURM_PROCID`, `SLURM_JOB_ID`), Open MPI
(`OMPI_COMM_WORLD_RANK`), Ray (`RAY_JOB_ID`); `RCA_ROLE`, `RCA_RUN` and `RCA_RANK` say it outright.
"""

from __future__ import annotations

import os
import re
import socket
import time

UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")
RANK = ("RCA_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
RUN = ("RCA_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "RAY_JOB_ID")


_born = time.time_ns()


def born() -> int:
    """When this process began to live, or to know this package: all files of one process say the same, and another process under its pid says another."""
    return _born


def _in_child() -> None:
    global _born
    _born = time.time_ns()


os.register_at_fork(after_in_child=_in_child)


def number(names: tuple[str, ...]) -> int | None:
    """The first of some variables that holds a whole number."""
    for name in names:
        value = os.environ.get(name, "")
        if value.isdecimal() and len(value) < 9:
            return int(value)
    return None


def describe(role: str | None = None, rank: int | None = None, run: str | None = None) -> dict[str, str | int]:
    """The fields of a journal's header that say whose it is; what nobody said is left out."""
    found: dict[str, str | int | None] = {
        "host": socket.gethostname()[:120], "pid": os.getpid(), "ppid": os.getppid(),
        "role": role or os.environ.get("RCA_ROLE") or ("train" if "RANK" in os.environ else None),
        "rank": number(RANK) if rank is None else rank, "local_rank": number(LOCAL_RANK), "world_size": number(WORLD),
        "run": run or next((os.environ[n] for n in RUN if os.environ.get(n)), None), "attempt": number(("TORCHELASTIC_RESTART_COUNT",)),
    }  # fmt: skip
    return {k: v[:200] if isinstance(v, str) else v for k, v in found.items() if v is not None}


def file_name(about: dict[str, str | int], segment: int = 0, ending: str = ".rca.jsonl") -> str:
    """`<role>-<rank>-<host>-<pid>.rca.jsonl`, with a number before the ending for later segments.

    >>> file_name({"host": "gpu-7.example", "pid": 41, "role": "train", "rank": 3}), file_name({"host": "a/b", "pid": 1}, 2)
    ('train-3-gpu_7.example-41.rca.jsonl', 'process-x-a_b-1.2.rca.jsonl')
    """
    host = UNSAFE.sub("_", str(about["host"]))[:80]
    role = UNSAFE.sub("_", str(about.get("role", "process")))[:40]
    return f"{role}-{about.get('rank', 'x')}-{host}-{about['pid']}{f'.{segment}' if segment else ''}{ending}"


def trace_of_run(about: dict[str, str | int]) -> str | None:
    """The trace that all ranks of one attempt share without talking: a hash of what the launcher told each of them. None where it told nothing.

    >>> a = trace_of_run({"run": "job-1", "attempt": 0, "host": "a", "rank": 0})
    >>> a == trace_of_run({"run": "job-1", "host": "b", "rank": 7}), a == trace_of_run({"run": "job-1", "attempt": 1}), trace_of_run({"host": "a"}), len(a)
    (True, False, None, 32)
    """
    if "run" not in about:
        return None
    from hashlib import blake2b

    return blake2b(f"{about['run']}/{about.get('attempt', 0)}".encode("utf-8", "replace"), digest_size=16).hexdigest()
