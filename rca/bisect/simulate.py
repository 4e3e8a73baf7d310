"""How many rounds and tests a search takes and how often its answer is wrong, by trying it on machines whose truth is drawn.

Trials are numbered, and each draws from its own number: the same settings give the same table on any number of cores.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from rca.bisect.group_testing import Search, bits, capacity, z_capacity

MOST_ROUNDS = 5000  # a search that has not ended by then is given up
Z_95 = 1.959964  # of the normal distribution: 95 % lie within


@dataclass(frozen=True)
class Trial:
    """One search: how long it took, and whether it was right."""

    rounds: int
    tests: int
    settled: bool
    right: bool
    confidence: float


def trial(search: Search, number: int, bad: int | None = None) -> Trial:
    """Search for bad machines that are drawn by `number`: `bad` of them, or as many as the prior says."""
    draw = random.Random(f"{number}/{search.machines}")
    posterior = search.start()
    count = bad if bad is not None else draw.choices(range(len(posterior.numbers)), posterior.numbers)[0]
    truth = set(draw.sample(range(search.machines), count))
    rounds = tests = 0
    answer = search.answer(posterior)
    while not answer.settled and rounds < MOST_ROUNDS:
        groups = search.next_round(posterior, rounds)
        if not groups:
            break
        posterior.take_round([(group, draw.random() >= (1 - search.false_alarms) * (1 - search.shows) ** len(truth.intersection(group))) for group in groups])
        rounds, tests = rounds + 1, tests + len(groups)
        answer = search.answer(posterior)
    return Trial(rounds, tests, answer.settled, set(answer.bad) == truth, answer.confidence)


def trials(search: Search, count: int, bad: int | None, jobs: int, heard: Callable[[int], None] = lambda done: None) -> list[Trial]:
    """So many trials, on so many cores."""
    run = partial(trial, search, bad=bad)
    if jobs == 1 or count < 2 * jobs:
        return list(_told(map(run, range(count)), heard))
    with ProcessPoolExecutor(jobs) as pool:
        return list(_told(pool.map(run, range(count), chunksize=max(1, min(16, count // (4 * jobs)))), heard))


def _told(found: Iterable[Trial], heard: Callable[[int], None]) -> Iterable[Trial]:
    for done, one in enumerate(found, 1):
        heard(done)
        yield one


def wilson(wrong: int, of: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share (E. B. Wilson, 1927).

    >>> [round(x, 4) for x in wilson(3, 1000)]
    [0.001, 0.0088]
    """
    share, z2 = wrong / of, Z_95 * Z_95
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = Z_95 * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Summary:
    """What many trials came to; `least_tests` is log2 C(N, d) over the capacity of the Z-channel, `bound` over that of d machines that each show themselves."""

    trials: int
    rounds: float
    rounds_most: int
    tests: float
    tests_half_width: float
    tests_most: int
    wrong: int
    unsettled: int
    error: float
    error_low: float
    error_high: float
    confidence: float
    least_tests: float | None
    bound: float | None


def summary(search: Search, found: list[Trial], bad: int | None) -> Summary:
    """Means, the share of wrong answers with its confidence interval, and what no procedure could do without."""
    count = len(found)
    mean = sum(one.tests for one in found) / count
    spread = math.sqrt(sum((one.tests - mean) ** 2 for one in found) / max(1, count - 1))
    wrong = sum(not one.right for one in found)
    known = bits(search.machines, bad) if bad else None
    return Summary(
        count,
        sum(one.rounds for one in found) / count,
        max(one.rounds for one in found),
        mean,
        Z_95 * spread / math.sqrt(count),
        max(one.tests for one in found),
        wrong,
        sum(not one.settled for one in found),
        wrong / count,
        *wilson(wrong, count),
        sum(one.confidence for one in found) / count,
        known / z_capacity(search.shows) if known is not None else None,
        known / capacity(search.shows, bad, search.false_alarms) if known is not None else None,
    )
