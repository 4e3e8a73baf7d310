"""A plan and a simulation in words, and as JSON for scripts."""

from __future__ import annotations

import dataclasses
from typing import Any

from rca.bisect.group_testing import Answer, Search
from rca.bisect.names import compact
from rca.bisect.plan import Plan
from rca.bisect.posterior import Posterior
from rca.bisect.simulate import Summary

SUSPECTS = 8  # named at most
UNLIKELY = 0.005  # less is no suspicion


def suspects(plan: Plan, posterior: Posterior) -> list[tuple[int, float]]:
    """Units with the probability that each is bad, most likely first."""
    expected = posterior.marginals()
    each = [(unit, expected[number] / len(one.members) * (1 - posterior.lost)) for number, one in posterior.classes.items() for unit in one.members if expected[number]]
    return sorted(((unit, p) for unit, p in each if p >= UNLIKELY), key=lambda item: (-item[1], item[0]))


def state(answer: Answer, over: bool) -> str:
    """`run` (there are groups to run), `found`, `none` (no machine is bad), or `open` (no test would tell more)."""
    return "run" if not over else "open" if not answer.settled else "found" if answer.bad else "none"


def document(plan: Plan, answer: Answer, over: bool) -> dict[str, Any]:
    """What scripts get."""
    posterior = plan.posterior()
    likely = suspects(plan, posterior)
    return {
        "schema": "rca.bisect.state/1",
        "state": state(answer, over),
        "round": len(plan.rounds),
        "tests": posterior.tests,
        "groups": [{"group": g.number, "hostlist": compact(plan.hosts_of(g.units)), "hosts": plan.hosts_of(g.units)} for g in plan.open()] if not over else [],
        "confidence": round(answer.confidence, 6),
        "cordon": plan.hosts_of(answer.bad) if answer.settled else [],
        "suspects": [{"hosts": plan.units[unit], "probability": round(p, 6)} for unit, p in likely[:SUSPECTS]],
        "left_over": plan.left_over,
    }


def lines(plan: Plan) -> str:
    """The groups without a result, for a shell: number, tab, hosts with commas."""
    return "".join(f"{g.number}\t{','.join(plan.hosts_of(g.units))}\n" for g in plan.open())


def words(plan: Plan, answer: Answer, over: bool) -> str:
    """What a person reads."""
    posterior = plan.posterior()
    told = [f"{text}\n"] if (text := plan.grid_says()) else []
    if over:
        told.append(_end(plan, answer, posterior))
    else:
        waiting, round_ = plan.open(), plan.rounds[-1]
        size = plan.layout.hosts_per_unit()
        unit = "" if size == 1 else f"; whole replicas of {size} hosts (tp {plan.layout.tp} x pp {plan.layout.pp})"
        done = f", {len(round_) - len(waiting)} of {len(round_)} have a result" if len(waiting) < len(round_) else ""
        one = len(waiting) == 1
        told.append(f"Round {len(plan.rounds)}: run {'this group' if one else f'these {len(waiting)} groups, each as a job of its own'}{unit}{done}\n")
        width = len(str(waiting[-1].number))
        told += [f"  {g.number:{width}}  {compact(plan.hosts_of(g.units))}\n" for g in waiting]
    if not (over and answer.settled):
        likely = suspects(plan, posterior)
        if posterior.tests and 0 < len(likely) <= 4 * SUSPECTS:
            told.append("Suspects: " + ", ".join(f"{compact(plan.units[u])} {p:.1%}" for u, p in likely[:SUSPECTS]) + (f" and {len(likely) - SUSPECTS} more" if len(likely) > SUSPECTS else "") + "\n")
        elif posterior.tests:
            told.append(f"So far {posterior.tests} tests; {sum(p > 0 for p in posterior.marginals().values())} kinds of history, no unit stands out\n")
    if plan.left_over:
        told.append(f"Not tested: {compact(plan.left_over)}: too few for another whole replica; swap them for hosts that are cleared, and plan again\n")
    return "".join(told)


def percent(p: float) -> str:
    """Never rounded up to certainty.

    >>> percent(0.9999999), percent(0.993)
    ('more than 99.99 %', '99.3 %')
    """
    return "more than 99.99 %" if p > 0.9999 else f"{100 * p:.1f} %"


def _end(plan: Plan, answer: Answer, posterior: Posterior) -> str:
    after = f"after {len(plan.rounds)} rounds, {posterior.tests} tests"
    if not answer.settled:
        return f"CANNOT TELL {after}: no further test would tell more with these settings (best guess {compact(plan.hosts_of(answer.bad)) or 'none'}, {percent(answer.confidence)})\n"
    if not answer.bad:
        return f"NOT FOUND: no machine is bad, {percent(answer.confidence)} sure {after}, if a bad one makes its group fail {plan.search.shows:.0%} of the time\n"
    hosts = compact(plan.hosts_of(answer.bad))
    size = plan.layout.hosts_per_unit()
    which = "" if size == 1 else f" Which host of a unit of {size}: `rca bisect selftest` on each."
    return f"FOUND {hosts}  {percent(answer.confidence)} sure {after}\nTo do: cordon {hosts}; run the rest of the job without.{which}\n"


def table(search: Search, rows: list[tuple[str, Summary]], bad: int | None) -> str:
    """A simulation: a row for each way to search."""
    first = rows[0][1]
    fault = f"{search.machines} units, {bad if bad is not None else f'bad ones as the prior says (mean {search.expected:g})'} bad"
    told = "known" if search.bad is not None else f"not known (prior mean {search.expected:g})"
    alarms = f", false alarms {search.false_alarms:.1%}" if search.false_alarms else ""
    out = [f"{fault}, their number {told}; the fault shows {search.shows:.0%} of the time{alarms}; until {search.confidence:.1%} sure; {first.trials} trials\n\n"]
    out.append(f"{'':26}{'rounds':>8}{'most':>6}{'tests':>9}{'±':>7}{'most':>6}{'wrong':>9}  {'95 % interval':16}{'unsettled':>9}\n")
    for name, one in rows:
        interval = f"{one.error_low:.2%} - {one.error_high:.2%}"
        out.append(f"{name:26}{one.rounds:8.1f}{one.rounds_most:6}{one.tests:9.1f}{one.tests_half_width:7.1f}{one.tests_most:6}{one.error:9.2%}  {interval:16}{one.unsettled:9}\n")
    if first.least_tests:
        out.append(f"\nInformation: {first.least_tests:.1f} tests = log2 C(N, d) over the Z-channel's capacity")
        out.append(f"; {first.bound:.1f} if all bad ones were always in one group\n")
        out += [f"  {name}: {one.tests / first.least_tests:.2f} times that\n" for name, one in rows]
    return "".join(out)


def simulated(search: Search, rows: list[tuple[str, Summary]], bad: int | None) -> dict[str, Any]:
    """The same for scripts."""
    return {"schema": "rca.bisect.simulation/1", "settings": dataclasses.asdict(search), "bad": bad, "ways": [{"way": name, **dataclasses.asdict(one)} for name, one in rows]}
