"""Which machines are bad, given the groups that passed and failed: an exact posterior over sets of machines.

A group with k bad members passes with probability (1-f)(1-q)^k: each bad machine shows itself with probability q (`shows`), and a sound group fails with
probability f (`false_alarms`). Two facts keep the number of hypotheses small, however many machines there are:

* Machines with the same history cannot be told apart, so a hypothesis is a number of bad machines in each *class* of machines with the same history.
* A test that passed multiplies the weight of a set by (1-q) for each bad member, whichever test it was. So a history is the number of tests
  passed and the set of tests failed, and classes that agree in both are one.

A hypothesis is written as a sorted tuple of class numbers, one for each bad machine. Hypotheses too light to matter are dropped, and what they weighed is kept
in `lost`: it is taken off every confidence, so that a stated 99 % stays one.

Sources: R. Dorfman, "The Detection of Defective Members of Large Populations", 1943; M. Aldridge, O. Johnson, J. Scarlett, "Group Testing: An Information Theory
Perspective", arXiv:1902.06002, sections 3 (noise: the "dilution", or Z-channel, model) and 5.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

KEEP = 4000  # hypotheses at most; a search for three of 1,024 has 50 to 1,000 that weigh anything
LIGHT = 1e-9  # share of the whole below which a hypothesis is dropped: thousands of them cost less than a hundredth of a per cent
NIL = 1e-14  # the same within a round, of which only a part is known yet
WITHIN_A_ROUND = 8  # times as many hypotheses
TAIL = 1e-6  # probability of a number of bad machines below which it and higher ones are not considered
MOST_BAD = 16  # bad machines at most, as the number of hypotheses grows with their power

Hypothesis = tuple[int, ...]


class Contradiction(Exception):
    """No set of bad machines that the settings allow gives these results."""


def prior(machines: int, bad: int | None = None, expected: float = 1.0) -> list[float]:
    """The probability of 0, 1, 2 ... bad machines: `bad` exactly, or a Poisson distribution with the mean `expected`, as if each machine were bad by itself.

    >>> prior(10, bad=2)
    [0.0, 0.0, 1.0]
    >>> [round(p, 3) for p in prior(3, expected=1)]
    [0.375, 0.375, 0.188, 0.062]
    """
    if bad is not None:
        return [0.0] * bad + [1.0]
    weights = [math.exp(-expected)]
    while len(weights) <= min(machines, MOST_BAD) and (len(weights) <= expected or weights[-1] > TAIL):
        weights.append(weights[-1] * expected / len(weights))
    return [w / sum(weights) for w in weights]


@dataclass
class Class:
    """Machines with the same history."""

    members: list[int]
    passed: int = 0
    failed: tuple[int, ...] = ()  # numbers of the tests that failed with them in the group


@dataclass
class Posterior:
    """What is known after some tests; `take` adds one."""

    machines: int
    shows: float = 1.0
    false_alarms: float = 0.0
    numbers: Sequence[float] = (0.0, 1.0)  # the prior on the number of bad machines
    keep: int = KEEP
    lost: float = 0.0  # the probability that the truth was dropped as too light
    tests: int = 0
    classes: dict[int, Class] = field(default_factory=dict)
    weights: dict[Hypothesis, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.passes = [(1 - self.false_alarms) * (1 - self.shows) ** k for k in range(len(self.numbers))]
        self.next_class = 1
        self.classes = {0: Class(list(range(self.machines)))}
        self.class_of = [0] * self.machines
        self.weights = {(0,) * k: weight for k, weight in enumerate(self.numbers) if weight}

    def take_round(self, results: Iterable[tuple[Sequence[int], bool]]) -> None:
        """Learn the results (group, failed) of tests that were chosen together.

        Those that passed come first, as they make classes one; what is light is judged when all of the round is known. Raises Contradiction.
        """
        for group, failed in sorted(results, key=lambda result: result[1]):
            self._take(group, failed)
        self._drop(LIGHT, self.keep)
        self._merge()

    def take(self, group: Sequence[int], failed: bool) -> None:
        """Learn the result of a test of these machines. Raises Contradiction."""
        self.take_round([(group, failed)])

    def _take(self, group: Iterable[int], failed: bool) -> None:
        inside = self.carve(group)
        weights: dict[Hypothesis, float] = {}
        passes = self.passes
        for hypothesis, weight in self.weights.items():
            k = sum(number in inside for number in hypothesis)
            likelihood = 1 - passes[k] if failed else passes[k]
            if likelihood > 0:
                weights[hypothesis] = weight * likelihood
        total = sum(weights.values())
        if not total > 0:
            raise Contradiction
        self.weights = {hypothesis: weight / total for hypothesis, weight in weights.items()}
        self.tests += 1
        for number in inside:
            one = self.classes[number]
            if failed:
                one.failed = (*one.failed, self.tests)
            else:
                one.passed += 1
        self._drop(NIL, WITHIN_A_ROUND * self.keep)
        self._merge()

    def carve(self, group: Iterable[int]) -> set[int]:
        """Split classes so that the group is made of whole ones; gives their numbers."""
        wanted: dict[int, list[int]] = {}
        for machine in set(group):
            wanted.setdefault(self.class_of[machine], []).append(machine)
        inside = set()
        for number, members in sorted(wanted.items()):
            if len(members) == len(self.classes[number].members):
                inside.add(number)
            else:
                inside.add(self._split(number, sorted(members)))
        return inside

    def _split(self, number: int, members: list[int]) -> int:
        """Make a class of its own of some members of one: k bad ones fall on both sides as drawn without putting back."""
        old = self.classes[number]
        new, self.next_class = self.next_class, self.next_class + 1
        taken = set(members)
        size, out = len(members), len(old.members) - len(members)
        self.classes[new] = Class(members, old.passed, old.failed)
        old.members = [machine for machine in old.members if machine not in taken]
        for machine in members:
            self.class_of[machine] = new
        weights: dict[Hypothesis, float] = {}
        for hypothesis, weight in self.weights.items():
            k = hypothesis.count(number)
            if not k:
                weights[hypothesis] = weight
                continue
            rest = tuple(n for n in hypothesis if n != number)
            ways = math.comb(size + out, k)
            for inside in range(max(0, k - out), min(k, size) + 1):
                # The new number is the highest of all, so it goes to the end.
                key = tuple(sorted(rest + (number,) * (k - inside))) + (new,) * inside
                weights[key] = weight * math.comb(size, inside) * math.comb(out, k - inside) / ways
        self.weights = weights
        return new

    def _drop(self, light: float, most: int) -> None:
        """Forget the lightest hypotheses, and remember how much they weighed."""
        kept = {hypothesis: weight for hypothesis, weight in self.weights.items() if weight >= light}
        if len(kept) > most:
            kept = dict(heapq.nlargest(most, kept.items(), key=lambda item: (item[1], item[0])))
        if len(kept) < len(self.weights):
            total = sum(kept.values())
            self.lost += (1 - self.lost) * max(0.0, 1 - total)
            self.weights = {hypothesis: weight / total for hypothesis, weight in kept.items()}

    def _merge(self) -> None:
        """Make one class of those with the same history, and one of all those that are in no hypothesis."""
        used = set().union(*self.weights)
        first: dict[object, int] = {}
        renamed: dict[int, int] = {}
        for number in sorted(self.classes):
            one = self.classes[number]
            key = (one.passed, one.failed) if number in used else None
            if (target := first.setdefault(key, number)) != number:
                renamed[number] = target
                self.classes[target].members += one.members
                for machine in one.members:
                    self.class_of[machine] = target
                del self.classes[number]
        for target in set(renamed.values()):
            self.classes[target].members.sort()
        if not (renamed := {a: b for a, b in renamed.items() if a in used}):
            return
        weights: dict[Hypothesis, float] = {}
        for hypothesis, weight in self.weights.items():
            if any(number in renamed for number in hypothesis):
                hypothesis = tuple(sorted(renamed.get(number, number) for number in hypothesis))
            weights[hypothesis] = weights.get(hypothesis, 0.0) + weight
        self.weights = weights

    def best(self) -> tuple[list[int], float]:
        """The most probable set of bad machines, and its probability; of sets that weigh the same, the first."""
        found, most = (), -1.0
        for hypothesis, weight in sorted(self.weights.items()):
            ways = math.prod(math.comb(len(self.classes[n].members), hypothesis.count(n)) for n in set(hypothesis))
            if weight / ways > most * (1 + 1e-9):
                found, most = hypothesis, weight / ways
        members = [machine for n in sorted(set(found)) for machine in self.classes[n].members[: found.count(n)]]
        return sorted(members), min(1.0, most) * (1 - self.lost)

    def marginals(self) -> dict[int, float]:
        """For each class, how many bad machines it is expected to have."""
        expected = dict.fromkeys(self.classes, 0.0)
        for hypothesis, weight in self.weights.items():
            for number in hypothesis:
                expected[number] += weight
        return expected

    def probability(self, machine: int) -> float:
        """The probability that a machine is bad."""
        number = self.class_of[machine]
        return self.marginals()[number] / len(self.classes[number].members)
