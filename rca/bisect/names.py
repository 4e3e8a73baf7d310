"""Host lists as people and schedulers write them: `node[01-08,11],login1`.

Source: the hostlist syntax of Slurm (`scontrol show hostnames`); numbers keep their leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rca.errors import RcaError

MOST = 100_000  # hosts; a mistyped range must not fill the memory
PART = re.compile(r"[^\[\],\s]*(?:\[[^\[\]]{1,4000}\][^\[\],\s]*)*")
NUMBERS = re.compile(r"([0-9]{1,18})")


def expand(text: str, where: str | None = None) -> list[str]:
    """The names in a list, in order; a name that is there twice is an error.

    >>> expand("node[08-10,12],login1")
    ['node08', 'node09', 'node10', 'node12', 'login1']
    """
    names: list[str] = []
    for line in text.splitlines():
        position, line = 0, line.split("#", 1)[0].strip()
        while position < len(line):
            match = PART.match(line, position)
            if not match or match.end() == position:
                if line[position] not in ", \t":
                    raise RcaError(f"cannot read this list of hosts: `{line[:80]}`", where, "name[01-08,11],other1; or one name a line")
                position += 1
                continue
            names += _one(match.group(), where, MOST - len(names))
            position = match.end()
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RcaError(f"a host is named twice: `{name}`", where)
        seen.add(name)
    return names


def _one(part: str, where: str | None, room: int) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    ranges, _, after = rest.partition("]")
    ends = _one(after, where, room)
    found: list[str] = []
    for piece in ranges.split(","):
        first, dash, last = piece.strip().partition("-")
        last = last if dash else first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()) or len(last) > 18 or len(first) > 18 or int(last) < int(first):
            raise RcaError(f"no range of hosts: `{piece.strip()[:40]}`", where, "[01-08,11]")
        if (int(last) - int(first) + 1) * len(ends) > room - len(found):
            raise RcaError(f"more than {MOST} hosts: `{part[:80]}`", where)
        found += [f"{before}{number:0{len(first)}d}{end}" for number in range(int(first), int(last) + 1) for end in ends]
    return found


def compact(names: Iterable[str]) -> str:
    """The same list, short.

    >>> compact(["node08", "node09", "node10", "node12", "login1"])
    'node[08-10,12],login1'
    """
    parts = [NUMBERS.split(name) for name in names]
    most = max((len(part) // 2 for part in parts), default=0)
    # The number that differs is the last one in most fleets, but not where names end in `-ib0`: the one that makes the shortest list is it.
    return min((_compact(parts, which) for which in range(1, most + 1)), key=len, default=None) or ",".join(part[0] for part in parts)


def _compact(parts: list[list[str]], which: int) -> str:
    """The list with ranges of the number that is `which` from the end."""
    groups: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        at = len(part) - 2 * which
        if at > 0:
            groups.setdefault(("".join(part[:at]), "".join(part[at + 1 :])), []).append(part[at])
        else:
            groups.setdefault(("".join(part), ""), [])
    return ",".join(f"{before}{_ranges(numbers)}{after}" for (before, after), numbers in groups.items())


def _ranges(numbers: list[str]) -> str:
    """`[08-10,12]`: numbers that are as long as one with a leading zero keep their length."""
    padded = {len(number) for number in numbers if number[0] == "0" and len(number) > 1}
    runs: list[list[int]] = []
    for width, number in sorted((len(number) if len(number) in padded else 0, int(number)) for number in numbers):
        if runs and runs[-1][0] == width and number == runs[-1][2] + 1:
            runs[-1][2] = number
        else:
            runs.append([width, number, number])
    texts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for width, a, b in runs]
    return "".join(texts) if len(numbers) < 2 else f"[{','.join(texts)}]"
