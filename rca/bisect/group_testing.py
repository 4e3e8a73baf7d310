"""A search, round by round: what to run next, when to stop, and how many tests it must take at the least.

One group at a time takes the fewest tests; many at once the fewest rounds. A machine is in one group of a round at most, as on a real cluster. In parallel,
suspects are dealt so that every group expects the same number of bad machines, at most the number that makes its result tell most: no two strong suspects
share a group, and the class of a failing group is spread over all groups of the next round, which for one bad machine is rows, then columns.

Sources: Aldridge, Johnson, Scarlett, arXiv:1902.06002, theorem 1.1 (counting bound) and section 3.1 (capacity of the channel).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rca.bisect.choose import Channel, entropy, next_group
from rca.bisect.grid import Grid
from rca.bisect.posterior import KEEP, MOST_BAD, Posterior, prior

CERTAIN = 0.999  # a machine that is bad with this probability would only spoil the group that it is in
GRID = 0  # `parallel`: rows, then columns, then as many groups at once as there were rows


@dataclass(frozen=True)
class Answer:
    """Who is bad, as far as it is known; `settled` when the confidence that was asked for is reached."""

    bad: list[int]
    confidence: float
    settled: bool


@dataclass(frozen=True)
class Search:
    """The settings of a search among machines 0 to machines-1."""

    machines: int
    bad: int | None = None
    expected: float = 1.0
    shows: float = 1.0
    false_alarms: float = 0.0
    confidence: float = 0.99
    parallel: int = GRID

    def problem(self) -> str | None:
        """What is wrong with the settings, if anything is: a plan's file may say anything."""
        if not all(type(value) is int for value in (self.machines, self.parallel, self.bad or 0)):
            return "numbers of machines and groups must be whole"
        if not all(type(value) in (int, float) and math.isfinite(value) for value in (self.expected, self.shows, self.false_alarms, self.confidence)):
            return "probabilities must be numbers"
        if self.machines < 1:
            return "there is no machine to test"
        if self.bad is not None and not 0 < self.bad <= min(self.machines, MOST_BAD):
            return f"the number of bad machines must be from 1 to {min(self.machines, MOST_BAD)}: `{self.bad}`"
        if not 0 < self.expected <= MOST_BAD / 2:
            return f"the expected number of bad machines must be above 0 and at most {MOST_BAD // 2}: `{self.expected:g}`"
        if not 0 < self.shows <= 1:
            return f"how often a fault shows must be above 0 and at most 1: `{self.shows:g}`"
        if not 0 <= self.false_alarms < min(0.5, self.shows):
            return f"the share of false alarms must be below 0.5 and below how often a fault shows: `{self.false_alarms:g}`"
        if not 0.5 <= self.confidence < 1:
            return f"the confidence must be at least 0.5 and below 1: `{self.confidence:g}`"
        if self.parallel < 0:
            return f"the number of groups at once must be 1 or more: `{self.parallel}`"
        return None

    def start(self, keep: int = KEEP) -> Posterior:
        """What is known before the first test."""
        return Posterior(self.machines, self.shows, self.false_alarms, prior(self.machines, self.bad, self.expected), keep)

    def learn(self, rounds: Iterable[Sequence[tuple[list[int], bool]]]) -> Posterior:
        """What is known after rounds of results (group, failed), in the order in which they were chosen.

        Where too much had to be dropped on the way, once more with more hypotheses. Raises Contradiction.
        """
        rounds = list(rounds)
        keep = KEEP
        while True:
            posterior = self.start(keep)
            for results in rounds:
                posterior.take_round(results)
            if posterior.lost < (1 - self.confidence) / 2 or keep > 4 * KEEP:
                return posterior
            keep *= 4

    def answer(self, posterior: Posterior) -> Answer:
        bad, confidence = posterior.best()
        return Answer(bad, confidence, confidence >= self.confidence)

    def next_round(self, posterior: Posterior, done: int) -> list[list[int]]:
        """The groups to run after `done` rounds, all at once; empty when no test would tell anything more."""
        if self.parallel == 1:
            group = next_group(posterior)
            return [group] if group else []
        grid = Grid.of(self.machines)
        if self.parallel == GRID and done < 2:
            return grid.columns() if done else grid.rows()
        return deal(posterior, self.parallel or max(2, len(grid.rows())), seed=done)


def deal(posterior: Posterior, groups: int, seed: int) -> list[list[int]]:
    """Groups for one round, at most so many, that expect the same number of bad machines."""
    shuffle = random.Random(seed).shuffle
    expected = posterior.marginals()
    each = {number: mass / len(posterior.classes[number].members) for number, mass in expected.items()}
    suspects = sorted((n for n, mass in expected.items() if mass > 0 and each[n] < CERTAIN), key=lambda n: (-each[n], n))
    most = best_load(posterior)
    heap = [(0.0, 0, index) for index in range(groups)]
    members: list[list[int]] = [[] for _ in range(groups)]
    for number in suspects:
        machines = sorted(posterior.classes[number].members)
        shuffle(machines)
        for machine in machines:
            load, size, index = heap[0]
            if members[index] and load + each[number] > most:
                break  # the least loaded has enough, so all have
            members[index].append(machine)
            heapq.heapreplace(heap, (load + each[number], size + 1, index))
    return [sorted(group) for group in members if group]


def best_load(posterior: Posterior) -> float:
    """The number of bad machines that a group should expect, for its result to tell most: of a Poisson number of them."""
    channel = Channel(posterior.passes)

    def tells(load: float) -> float:
        return channel.tells([math.exp(-load) * load**k / math.factorial(k) for k in range(len(posterior.passes))])

    return max((step / 20 for step in range(1, 41)), key=tells) if len(posterior.passes) > 2 else 0.5


# --- the least number of tests -------------------------------------------------------------------------------------------


def bits(machines: int, bad: int) -> float:
    """The information that names the bad machines: log2 of the number of sets.

    >>> round(bits(1024, 3), 2)
    27.41
    """
    return math.log2(math.comb(machines, bad))


def z_capacity(shows: float) -> float:
    """Bits per test of a Z-channel: a group with a bad machine fails with probability `shows`, one without never does.

    >>> round(z_capacity(0.5), 4), z_capacity(1.0)
    (0.3219, 1.0)
    """
    if shows >= 1:
        return 1.0
    hidden = 1 - shows
    return math.log2(1 + shows * hidden ** (hidden / shows))


def capacity(shows: float, bad: int, false_alarms: float = 0.0) -> float:
    """Bits that one test can tell at most when `bad` machines may share a group and each shows itself: the bound that no procedure beats.

    The largest mutual information over all distributions of the number of bad members (Blahut and Arimoto's iteration, 1972).

    >>> round(capacity(0.5, 1), 4)
    0.3219
    """
    passes = [(1 - false_alarms) * (1 - shows) ** k for k in range(bad + 1)]
    weights = [1 / (bad + 1)] * (bad + 1)
    for _ in range(3000):
        passed = sum(w * p for w, p in zip(weights, passes))
        gains = [2 ** (_part(p, passed) + _part(1 - p, 1 - passed)) for p in passes]
        total = sum(w * g for w, g in zip(weights, gains))
        weights = [w * g / total for w, g in zip(weights, gains)]
    passed = sum(w * p for w, p in zip(weights, passes))
    return entropy(passed) - sum(w * entropy(p) for w, p in zip(weights, passes))


def _part(p: float, mean: float) -> float:
    return p * math.log2(p / mean) if p > 0 and mean > 0 else 0.0
