"""Hyperscan in pure literal mode, given the parts of the literals that it is fast with.

Of each literal Hyperscan compares the last eight bytes first. The phrases of failures end like any sentence ("... timeout",
"... in process"), and a thousand of them make it stop at every other word of a healthy log: 1.2 GB/s. A long literal is
therefore searched by its beginning, cut where ordinary log text rarely has such bytes, and the rest is compared here:
2.7 GB/s with the 1018 literals of 400 signatures, the same answers.

Source: Hyperscan developer reference, "Pure literal patterns"; python-hyperscan 0.9 `extension.c` (literals pass through
`strlen`, hence no NUL; a callback costs about 0.2 us, most of it taking the interpreter lock).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import hyperscan as hs

CUT_MIN = 16  # bytes; in logs of real failed runs 3 % of the places stopped at are no hits then, with 12 bytes 40 %
CUT_PAIRS = 3  # pairs of neighbouring bytes at the cut that must be rare; 2 to 4 measured alike
STORM_HITS = 64  # beginnings in one chunk that the literal did not follow: a log full of them pays for compiling anew
STORMS_MAX = 4  # times to compile anew per matcher
NARROWER_MAX = 8  # muted sets kept compiled, about 0.5 MB each
# With 400 to 950 literals Hyperscan picks tables half as fast (1.2 GB/s) as those it picks from about 960 on (2.7 GB/s), and takes
# longer to compile; a set in between is filled up with literals of control characters that no text holds.
FILL_FROM, FILL_TO = 200, 1024
ORDINARY = b"""2026-01-06 10:00:00,123 INFO [rank 3] trainer.py:412] step=1200 loss=2.0312 lr=2.9871e-04 grad_norm=0.512 tokens/s=120345 mem=61.2GiB
[rank0]:[W106 10:00:00.123456 ProcessGroupNCCL.cpp:1496] Warning: the default process group is not initialized (function operator())
node-3:811:2311 [4] NCCL INFO Channel 00/08 : 0 1 2 3 4 5 6 7 [send] via NET/IB/0/GDRDMA comm 0x55d0c3 nranks 64 busId 9b000
(WorkerDict pid=31173) INFO 01-06 10:00:00 worker.py:77] train/loss: 1.234, train/step: 12, rollout/time_s: 33.1, actor/entropy: 0.9
  File "/usr/lib/python3.11/site-packages/torch/distributed/run.py", line 211, in _run_module_as_main: return func(*args, **kwargs)
Jan  6 10:00:00 node-3 kernel: [12345.678901] pci 0000:9b:00.0: device memory is available, the server is connected to the client
config: nccl_timeout=600 max_retries=3 num_workers=8 exit_on_error=false, worker process started, training completed without failures
saving the model checkpoint to /data/ckpt/step_1200/model.safetensors, this is the number of samples, reading and writing in time
{"time": "2026-01-06T10:00:00.123Z", "level": "info", "message": "request completed", "status": 200, "name": "engine", "id": "abc"}
"""


@cache
def _ordinary() -> dict[bytes, int]:
    """How often each pair of neighbouring bytes stands in ordinary log text."""
    text = ORDINARY.lower()
    return dict(Counter(text[i : i + 2] for i in range(len(text) - 1)))


def cut(literal: bytes) -> int:
    """How many bytes of a literal to search for: all of a short one, of a long one up to its rarest place.

    >>> literal = b"Watchdog caught collective operation timeout"
    >>> literal[:cut(literal)]
    b'Watchdog caught collective ope'
    """
    if len(literal) <= CUT_MIN:
        return len(literal)
    low, seen = literal.lower(), _ordinary()
    pairs = [seen.get(low[i : i + 2], 0) for i in range(CUT_MIN - 1 - CUT_PAIRS, len(low) - 1)]
    rare = [sum(pairs[i : i + CUT_PAIRS]) for i in range(len(low) - CUT_MIN + 1)]
    return len(low) - rare[::-1].index(min(rare))  # the last of the rarest places


def fillers(count: int) -> list[bytes]:
    """So many distinct literals that no text holds."""
    return [bytes(1 + (i >> 3 * place & 7) for place in range(8)) for i in range(count)]


class Matcher:
    """See `rca.ingest.engines`. Compiling takes 5 to 40 ms."""

    def __init__(self, literals: tuple[bytes, ...], once: frozenset[int], muted: frozenset[int] = frozenset()) -> None:
        self.literals, self.once, self._muted = literals, once, muted
        self.longest = max(map(len, literals), default=0)
        self.narrower: dict[frozenset[int], Matcher] = {}
        self.spent: dict[int, int] = {}
        self._whole = set(once)  # never cut: the first beginning may not be the literal
        self._storms = 0
        self._found: dict[int, list[int]] = defaultdict(list)
        found = self._found  # bound early: the callback is the only Python that runs per hit

        def on_hit(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            found[index].append(end)

        self._on_hit = on_hit
        self._compile()

    def _compile(self) -> None:
        ids = [i for i in range(len(self.literals)) if i not in self._muted]
        lengths = {i: len(self.literals[i]) if i in self._whole else cut(self.literals[i]) for i in ids}
        self._rest = {i: self.literals[i][n:] for i, n in lengths.items() if n < len(self.literals[i])}
        self._database = None
        if ids:  # Hyperscan refuses an empty set
            flags = [hs.HS_FLAG_CASELESS | (hs.HS_FLAG_SINGLEMATCH if i in self.once else 0) for i in ids]
            self._database = hs.Database(mode=hs.HS_MODE_BLOCK)
            pieces = [self.literals[i][: lengths[i]] for i in ids]
            if FILL_FROM < len(ids) < FILL_TO:
                pieces += fillers(FILL_TO - len(ids))
                ids += range(len(self.literals), len(self.literals) + len(pieces) - len(ids))
                flags += [0] * (len(ids) - len(flags))
            self._database.compile(expressions=pieces, ids=ids, elements=len(ids), flags=flags, literal=True)

    def scan(self, buffer: bytes | bytearray, low: int, high: int) -> dict[int, list[int]]:
        """All matches in a part of `buffer`, see `rca.ingest.engines`."""
        if self._database is None:
            return {}
        self._database.scan(memoryview(buffer)[low:high], self._on_hit)
        if not self._found:
            return {}
        matches: dict[int, list[int]] = {}
        stormy = []
        for index, ends in self._found.items():
            if index >= len(self.literals):  # a filler, in a file that is no text
                continue
            if (rest := self._rest.get(index)) is None:
                matches[index] = ends
                continue
            length, lowered = len(rest), rest.lower()
            true = [
                end + length for end in ends if buffer.startswith(rest, low + end, high) or buffer[low + end : min(low + end + length, high)].lower() == lowered
            ]
            if true:
                matches[index] = true
            if len(ends) - len(true) > STORM_HITS:
                stormy.append(index)
        self._found.clear()
        if stormy and self._storms < STORMS_MAX:
            self._storms += 1
            self._whole.update(stormy)
            self._compile()
        return matches

    def without(self, muted: frozenset[int]) -> Matcher:
        """The same matcher deaf to the literals `muted`; compiled once per set."""
        if muted not in self.narrower:
            if len(self.narrower) >= NARROWER_MAX:
                self.narrower.clear()
            self.narrower[muted] = Matcher(self.literals, self.once, self._muted | muted)
        return self.narrower[muted]
