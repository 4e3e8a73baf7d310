"""Prefixes that name the writer in brackets: torchrun's tee, torch's `[rank3]:`, AReaL's merged log, Open MPI, kubectl.

torchrun's number is the local rank and no space follows; `[rank3]:` is the global rank, with a space before tracebacks
and without one before C++ lines. Both stand on every line, so both tell streams apart.

>>> for text in SAMPLE.splitlines():
...     rest, wrap = peel(text)
...     print(wrap.shape, wrap.stream, wrap.rank, wrap.local_rank, wrap.actor, repr(rest[:14]))
tee default3 None 3 None '  File "train.'
tee rollout1 None 1 rollout 'ready'
rank rank3 3 None None '  File "train.'
rank rank1 1 None None '[E1118 20:32:2'
areal_merged actor None None actor '(AReaL) 202603'
areal_merged main None None main 'Traceback (mos'
mpi 1,3 3 None None 'Bus error'
rank rank5 5 None None 'boom'
rank rank3 3 None trainer '  File "train.'
kubectl pod/gpt-worker-1/pytorch None None pytorch 'epoch 3'
>>> [peel(f"[{name}]:x")[1][1:7] for name in ("train-0", "h100-042")]
[('train-0', None, None, None, None, 'train-0'), ('h100-042', None, None, None, None, None)]
>>> [peel(t) for t in ("[1]:", "[INFO]    ready", "[Rank 0]: x", "[step12]: loss 3", "[10:200]", "[E socket.cpp:401]: x", "[")]
[None, None, None, None, None, None, None]

Source: torch/distributed/elastic/multiprocessing/tail_log.py, torch/distributed/distributed_c10d.py (excepthook); areal scheduler
(`sed` in its worker command); kubectl logs `--prefix`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rca.ingest.formats import Wrap, mpi, unpadded
from rca.ingest.formats.words import LEVELS, is_process

SAMPLE = """\
[default3]:  File "train.py", line 3
[rollout1]:ready
[rank3]:   File "train.py", line 3
[rank1]:[E1118 20:32:23.955028747 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog
[actor]   (AReaL) 20260301-16:31:00.425 [FSDPEngine Rank 3] INFO: x
[main]    Traceback (most recent call last):
[1,3]<stderr>:Bus error
[n3:r5] boom
[trainer/rank3]:  File "train.py"
[pod/gpt-worker-1/pytorch] epoch 3"""

LONGEST = 64
TEE = re.compile(r"([A-Za-z_][\w.-]*?)(\d{1,5})", re.ASCII)
#: Words that stand before a number and a colon in messages and are no role of a launcher.
NO_ROLE = frozenset(("step", "epoch", "iter", "iteration", "layer", "errno", "batch", "stage", "phase", "dim", "thread", "node", "e", "w", "i", "f"))
#: `[n3:r5]`, `[trainer/rank3]`: a template of the user's own; the number is believed to be a rank where it is called so.
NAMED = re.compile(r"([A-Za-z][\w.-]{0,50})[:/|](?:global_?)?r(?:ank)?[ =:_]?(\d{1,6})", re.ASCII | re.I)
ROLE = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
COLUMN = 10  # AReaL pads the role to this width


def peel(text: str) -> tuple[str, Wrap] | None:
    """Take one bracketed writer off."""
    end = text.find("]", 1, LONGEST)
    if end < 0:
        return None
    after = text[end + 1 : end + 2]
    if after == ":":
        wrap = _writer(text[1:end])
        if wrap is None:
            return _named(text, end)
        if wrap.local_rank is None and text[end + 2 : end + 3] == " ":
            end += 1
        return text[end + 2 :], wrap
    if after == " ":
        inner = text[1:end]
        if inner[:4] == "pod/":
            return text[end + 2 :], _pod(inner)
        if text[end + 2 : end + 3] not in " (":  # the frequent case: the first field of a header
            return _named(text, end)
        rest = text[end + 1 :].lstrip(" ")
        if rest[:7] == "(AReaL)" or (rest[:2] == "(R" and " pid=" in rest[:LONGEST]):
            return rest, Wrap("areal_merged", inner, actor=inner)
        if len(text) - len(rest) >= COLUMN and end + 2 < COLUMN + 8 and ROLE.fullmatch(inner) and inner not in LEVELS:
            return text[max(COLUMN, end + 3) :], Wrap("areal_merged", inner, actor=inner)
        return _named(text, end)
    return mpi.peel(text) if after == "<" else None


def _named(text: str, end: int) -> tuple[str, Wrap] | None:
    """A name and a rank in the bracket that closes at `end`: `[n3:r5] x`."""
    if not text[end - 1].isdecimal() or (match := NAMED.fullmatch(text, 1, end)) is None:
        return None
    name = match[1]
    host, actor = (None, name) if is_process(name) else (name, None)
    rest = text[end + 2 :]  # behind the colon or the blank
    return unpadded(rest) if text[end + 1] == ":" else rest, Wrap("rank", f"rank{match[2]}", rank=int(match[2]), host=host, actor=actor)


@lru_cache(maxsize=1 << 12)
def _writer(inner: str) -> Wrap | None:
    """The writer that `[inner]:` names."""
    match = TEE.fullmatch(inner)
    if match is None or match[1].lower().rstrip("-_.") in NO_ROLE:
        return None
    if match[1] in ("rank", "r"):
        return Wrap("rank", inner, rank=int(match[2]))
    if match[1][-1] in "-_.":  # a name that ends in a number, such as `train-0` or a host: no launcher counts so
        return Wrap("tee", inner, actor=inner if is_process(match[1].rstrip("-_.")) else None)
    return Wrap("tee", inner, local_rank=int(match[2]), actor=None if match[1] == "default" else match[1])


@lru_cache(maxsize=256)
def _pod(inner: str) -> Wrap:
    _, pod, *container = inner.split("/")
    return Wrap("kubectl", inner, host=pod, actor=container[0] if container else None)
