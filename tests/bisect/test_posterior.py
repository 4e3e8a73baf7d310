"""The posterior is the true one, and what ends at 99 % is right 99 times of 100."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.bisect.choose import Channel, next_group
from rca.bisect.group_testing import Search, capacity, z_capacity
from rca.bisect.posterior import Contradiction, Posterior, prior
from rca.bisect.simulate import trial


@st.composite
def histories(draw):
    machines = draw(st.integers(2, 6))
    shows, alarms = draw(st.sampled_from([1.0, 0.5, 0.3])), draw(st.sampled_from([0.0, 0.05]))
    numbers = prior(machines, bad=draw(st.integers(1, min(3, machines)))) if draw(st.booleans()) else prior(machines, expected=1.0)
    group = st.lists(st.integers(0, machines - 1), min_size=1, unique=True)
    return machines, shows, alarms, numbers, draw(st.lists(st.tuples(group, st.booleans()), max_size=8))


@given(histories())
@settings(max_examples=150, deadline=None)
def test_classes_of_machines_lose_nothing(history):
    """The same probabilities as from all sets of machines, one by one; impossible results are noticed."""
    machines, shows, alarms, numbers, tests = history
    sets = {s: w / math.comb(machines, k) for k, w in enumerate(numbers) for s in itertools.combinations(range(machines), k)}
    posterior = Posterior(machines, shows, alarms, numbers)
    for group, failed in tests:
        for one in sets:
            passes = (1 - alarms) * (1 - shows) ** len(set(group) & set(one))
            sets[one] *= 1 - passes if failed else passes
        if not (total := sum(sets.values())):
            with pytest.raises(Contradiction):
                posterior.take(group, failed)
            return
        sets = {one: weight / total for one, weight in sets.items()}
        posterior.take(group, failed)
    for machine in range(machines):
        assert posterior.probability(machine) == pytest.approx(sum(w for s, w in sets.items() if machine in s), abs=1e-6)
    assert posterior.best()[1] == pytest.approx(max(sets.values()), abs=1e-6)


def test_the_order_within_a_round_does_not_matter():
    """All results of a round are learned together."""
    one, other = (Posterior(20, 0.5, 0.0, prior(20, bad=2)) for _ in range(2))
    results = [([0, 1, 2, 3], True), ([4, 5, 6, 7], False), ([8, 9, 10, 11], True)]
    one.take_round(results)
    other.take_round(results[::-1])
    assert [one.probability(m) for m in range(20)] == pytest.approx([other.probability(m) for m in range(20)])


def test_the_first_group_is_as_good_as_any():
    """Of one class of machines the best part is taken: no other size tells more."""
    posterior = Posterior(30, 0.5, 0.0, prior(30, bad=1))
    channel = Channel(posterior.passes)
    size = len(next_group(posterior))
    assert channel.tells([1 - size / 30, size / 30]) == max(channel.tells([1 - n / 30, n / 30]) for n in range(1, 30))
    assert channel.tells([0.6, 0.4]) == pytest.approx(z_capacity(0.5), abs=1e-9)


def test_capacity_is_that_of_the_channel():
    """With one bad machine the Z-channel's; more can only tell more."""
    assert capacity(0.5, 1) == pytest.approx(math.log2(1.25), abs=1e-4)
    assert capacity(0.3, 1) == pytest.approx(z_capacity(0.3), abs=1e-4)
    assert capacity(0.5, 3) > capacity(0.5, 2) > capacity(0.5, 1)


@pytest.mark.parametrize(
    ("search", "bad", "count"),
    [
        (Search(64, bad=2, shows=0.5, parallel=1), 2, 250),
        (Search(64, bad=2, shows=0.5), 2, 300),
        (Search(100, bad=1, shows=0.7, false_alarms=0.02, parallel=4), 1, 300),
        (Search(24, shows=0.6, expected=0.7, parallel=1), None, 120),
    ],
    ids=["one at a time", "grid", "false alarms", "unknown number"],
)
def test_what_ends_at_99_percent_is_right_99_times_of_100(search, bad, count):
    """The share of right answers is what the stated confidences promise, within three standard deviations."""
    found = [trial(search, number, bad) for number in range(count)]
    assert all(one.settled for one in found)
    promised = sum(1 - one.confidence for one in found)
    assert promised <= 0.01 * count
    wrong = sum(not one.right for one in found)
    assert wrong <= promised + 3 * math.sqrt(promised) + 1


def test_confidence_at_a_lower_bar_is_honest_too():
    """Stopped at 80 %, one in five or fewer is wrong, as said; not none, which would be wasted tests."""
    found = [trial(Search(32, bad=1, shows=0.5, parallel=1, confidence=0.8), number, 1) for number in range(400)]
    promised = sum(1 - one.confidence for one in found)
    wrong = sum(not one.right for one in found)
    assert abs(wrong - promised) <= 3.5 * math.sqrt(promised)
    assert wrong > 0


def test_one_bad_of_64_in_two_rounds():
    """The bar, for the grid; and one group at a time needs as many tests as there are bits."""
    assert {(one.rounds, one.right) for one in (trial(Search(64, bad=1), n, 1) for n in range(30))} == {(2, True)}
    assert {(one.tests, one.right) for one in (trial(Search(64, bad=1, parallel=1), n, 1) for n in range(30))} == {(6, True)}


def test_three_intermittent_ones_of_1024_within_the_bar():
    """The mean of 60 searches is far below 1.5 times the information bound, 127.7 tests; `make bench-bisect` measures more."""
    found = [trial(Search(1024, bad=3, shows=0.5, parallel=1), number, 3) for number in range(60)]
    assert sum(one.tests for one in found) / 60 < 100
    assert sum(not one.right for one in found) <= 3


def test_a_machine_is_in_one_group_of_a_round():
    """Groups that run at once share no machine, and all of what is suspected is in one."""
    search = Search(50, bad=2, shows=0.5, parallel=6)
    posterior = search.start()
    for done in range(4):
        groups = search.next_round(posterior, done)
        members = [machine for group in groups for machine in group]
        assert 0 < len(groups) <= 6 and len(members) == len(set(members))
        posterior.take_round([(group, 7 in group) for group in groups])
