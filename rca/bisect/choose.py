"""Which group to test next: the one whose result tells most.

What a result tells about the set of bad machines is the mutual information H(Y) - H(Y|k), k the number of bad members. Classes of machines with the same
history join the group one by one, each time the one that raises it most; a class that would be too much joins in part. As mutual information is concave in
the distribution of k, the best part is found by bisection.

Source: Aldridge, Johnson, Scarlett, arXiv:1902.06002, sections 1.5 and 5.1 (adaptive tests; halving the entropy is optimal without noise).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rca.bisect.posterior import Hypothesis, Posterior

WHOLE = 0.985  # a group of whole classes is taken if it tells this share of what one with a part would: parts make more hypotheses
HEAVY = 1e-3  # share of what is still uncertain: a class that holds less is not considered
NOTHING = 1e-9  # bits
LOOKED_AT = 500  # hypotheses, the heaviest: they choose the group, all others still count when its result is learned


def entropy(p: float) -> float:
    """Of an event with this probability, in bits.

    >>> entropy(0.5)
    1.0
    """
    return 0.0 if p <= 0 or p >= 1 else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


@dataclass(frozen=True)
class Channel:
    """How a result depends on the number of bad members."""

    passes: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", [entropy(p) for p in self.passes])

    def tells(self, counts: Sequence[float]) -> float:
        """Mutual information in bits, `counts` being the distribution of the number of bad members."""
        passed = unsure = 0.0
        for count, p, noise in zip(counts, self.passes, self.noise):
            passed += count * p
            unsure += count * noise
        if passed <= 0 or passed >= 1:
            return 0.0
        return -passed * math.log2(passed) - (1 - passed) * math.log2(1 - passed) - unsure


def next_group(posterior: Posterior) -> list[int]:
    """The machines to test next, alone; empty when no group would tell anything."""
    channel = Channel(posterior.passes)
    width = len(posterior.passes)
    hypotheses = _heaviest(posterior)
    expected = posterior.marginals()
    inside: set[int] = set()
    has = [0] * len(hypotheses)  # bad members of the group so far
    counts = [0.0] * width
    counts[0] = 1.0
    light = HEAVY * (1 - max(posterior.weights.values()))
    where: dict[int, list[tuple[int, int]]] = {number: [] for number, mass in expected.items() if mass > light}
    for index, (hypothesis, _) in enumerate(hypotheses):
        for number in set(hypothesis):
            if number in where:
                where[number].append((index, hypothesis.count(number)))
    told = 0.0
    # How the distribution changes when a class joins, kept up to date as classes do.
    change = {number: [0.0] * width for number in where}
    for number, places in where.items():
        for index, k in places:
            weight = hypotheses[index][1]
            change[number][0] -= weight
            change[number][k] += weight
    while True:
        best, most = None, told
        for number, delta in change.items():
            if number not in inside:
                tells = channel.tells([a + b for a, b in zip(counts, delta)])
                if tells > most + NOTHING:
                    best, most = number, tells
        part = _best_part(posterior, channel, hypotheses, where, expected, inside, has, counts, max(most, told))
        if part is not None and part[0] > told + NOTHING and part[0] * WHOLE > max(told, most if best is not None else 0.0):
            return sorted([*_members(posterior, inside), *posterior.classes[part[1]].members[: part[2]]])
        if best is None:
            return _members(posterior, inside)
        inside.add(best)
        told = most
        counts = [a + b for a, b in zip(counts, change[best])]
        for index, k in where[best]:
            hypothesis, weight = hypotheses[index]
            old, new = has[index], has[index] + k
            has[index] = new
            for number in set(hypothesis):
                if number in where and number not in inside:
                    delta, r = change[number], hypothesis.count(number)
                    delta[old] += weight
                    delta[old + r] -= weight
                    delta[new] -= weight
                    delta[new + r] += weight


def _heaviest(posterior: Posterior) -> list[tuple[Hypothesis, float]]:
    """The heaviest hypotheses, their weights made to add up to 1."""
    found = list(posterior.weights.items())
    if len(found) > LOOKED_AT:
        found = heapq.nlargest(LOOKED_AT, found, key=lambda item: (item[1], item[0]))
    total = sum(weight for _, weight in found)
    return [(hypothesis, weight / total) for hypothesis, weight in found]


def _members(posterior: Posterior, numbers: set[int]) -> list[int]:
    return sorted(machine for number in numbers for machine in posterior.classes[number].members)


def _best_part(posterior, channel, hypotheses, where, expected, inside, has, counts, beat) -> tuple[float, int, int] | None:
    """The part of one class that tells most with the group so far: bits, class, how many members; None where no part beats `beat`."""
    found = None
    heaviest = sorted((number for number in where if number not in inside and len(posterior.classes[number].members) > 1), key=lambda n: (-expected[n], n))[:3]
    for number in heaviest:
        size = len(posterior.classes[number].members)
        by_count: dict[tuple[int, int], float] = {}
        for index, k in where[number]:
            key = (has[index], k)
            by_count[key] = by_count.get(key, 0.0) + hypotheses[index][1]

        def tells(part: int, size: int = size, by_count: dict = by_count) -> float:
            changed = list(counts)
            for (old, k), weight in by_count.items():
                changed[old] -= weight
                ways = math.comb(size, k)
                for taken in range(max(0, k - size + part), min(k, part) + 1):
                    changed[old + taken] += weight * math.comb(part, taken) * math.comb(size - part, k - taken) / ways
            return channel.tells(changed)

        low, high = 1, size - 1
        while low < high:
            middle = (low + high) // 2
            if tells(middle) < tells(middle + 1):
                low = middle + 1
            else:
                high = middle
        if (most := tells(low)) > beat:
            found, beat = (most, number, low), most
    return found
