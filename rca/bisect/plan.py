"""A search on a real cluster, in one file: what was to run, what came back, and what follows from it.

The file holds settings, hosts, groups and results; what is known is worked out from them each time, so a corrected result or other settings need nothing else.
It is written aside and renamed: a killed command leaves the old state or the new one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rca.bisect.grid import Grid, intersect
from rca.bisect.group_testing import GRID, Answer, Search
from rca.bisect.posterior import Contradiction, Posterior
from rca.bisect.units import Layout
from rca.errors import RcaError, did_you_mean

SCHEMA = "rca.bisect/1"
PASS, FAIL = "pass", "fail"
SPELLINGS = {"pass": PASS, "passed": PASS, "ok": PASS, "0": PASS, "fail": FAIL, "failed": FAIL, "1": FAIL}
MOST_BYTES = 64 << 20  # of a plan file; 10,000 hosts and a hundred rounds take 4 MB


@dataclass
class Group:
    """Units to run together as one job; `number` is never used twice in a plan."""

    number: int
    units: list[int]
    result: str | None = None


@dataclass
class Plan:
    """The state of a search. `units` are lists of hosts; `left_over` the hosts that make no whole unit and are not tested."""

    search: Search
    layout: Layout
    hosts: list[str]
    rounds: list[list[Group]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.units, self.left_over = self.layout.units(self.hosts)

    @classmethod
    def new(cls, hosts: list[str], layout: Layout, **settings: Any) -> Plan:
        """A plan with its first round. Raises RcaError for settings that cannot work."""
        units, _ = layout.units(hosts)
        plan = cls(checked(Search(machines=len(units), **settings)), layout, hosts)
        plan.proceed()
        return plan

    # --- what is known --------------------------------------------------------------------------------------------------

    def open(self) -> list[Group]:
        """The groups that have no result yet."""
        return [group for groups in self.rounds for group in groups if group.result is None]

    def posterior(self) -> Posterior:
        """What the results say. Raises RcaError where no set of bad machines gives them."""
        try:
            return self.search.learn([[(g.units, g.result == FAIL) for g in groups if g.result is not None] for groups in self.rounds])
        except Contradiction:
            bad = f"{self.search.bad} bad" if self.search.bad is not None else "any number of bad machines"
            raise RcaError(
                f"these results contradict each other: {bad}, a fault that shows {self.search.shows:.0%} of the time and {self.search.false_alarms:.0%} false alarms never give them",
                hint="none of them was taken; correct a result with --correct, or allow for faults that show sometimes: --shows 0.5 --false-alarms 0.01",
            ) from None

    def answer(self, posterior: Posterior) -> Answer:
        return self.search.answer(posterior)

    def hosts_of(self, units: Iterable[int]) -> list[str]:
        return [host for unit in units for host in self.units[unit]]

    def grid_says(self) -> str | None:
        """What rows and columns alone say, once both are complete."""
        if self.search.parallel != GRID or len(self.rounds) < 2 or any(group.result is None for groups in self.rounds[:2] for group in groups):
            return None
        failed = [[index for index, group in enumerate(groups) if group.result == FAIL] for groups in self.rounds[:2]]
        return intersect(Grid.of(len(self.units)), failed[0], failed[1], self.search.shows).text

    # --- what happens ---------------------------------------------------------------------------------------------------

    def put(self, results: Iterable[str], correct: bool = False) -> int:
        """Take results like `3=fail`, `4-7=pass`, `rest=pass`; gives how many were new. All or none of them are taken."""
        known = {group.number: group for groups in self.rounds for group in groups}
        wanted: dict[int, str] = {}
        rest: str | None = None
        for text in results:
            what, equals, word = text.partition("=")
            result = SPELLINGS.get(word.strip().lower())
            if not equals or result is None:
                near = did_you_mean(word.strip().lower(), SPELLINGS) if equals else None
                raise RcaError(f"no result: `{text}`", hint=near or "GROUP=pass or GROUP=fail, as in 3=fail 4-7=pass rest=pass")
            if what.strip() == "rest":
                rest = result
                continue
            for number in _numbers(what, text):
                if number not in known:
                    numbers = ", ".join(str(group.number) for group in self.open()[:20]) or "none"
                    raise RcaError(f"there is no group {number} in this plan", hint=f"groups without a result: {numbers}")
                if wanted.setdefault(number, result) != result:
                    raise RcaError(f"group {number} both passes and fails in this call")
        for group in self.open() if rest else []:
            wanted.setdefault(group.number, rest)
        for number, result in wanted.items():
            if (old := known[number].result) not in (None, result) and not correct:
                raise RcaError(f"group {number} has the result {old} already, and now it is {result}", hint="--correct takes the new one; a second run of the same group is one more test: ask for the next round")
        new = 0
        for number, result in wanted.items():
            new += known[number].result != result
            known[number].result = result
        if correct and new:
            self._forget_after(min(index for index, groups in enumerate(self.rounds) for group in groups if group.number in wanted))
        return new

    def _forget_after(self, index: int) -> None:
        """Rounds that were chosen by a result that was wrong, and never ran, are chosen again; one that ran still counts."""
        while len(self.rounds) > index + 1 and all(group.result is None for group in self.rounds[-1]):
            self.rounds.pop()

    def proceed(self) -> tuple[Answer, bool]:
        """Choose the next round if the last is complete and the answer is open; gives the answer, and whether the search is over."""
        posterior = self.posterior()
        answer = self.answer(posterior)
        if answer.settled:
            return answer, True
        if self.open():
            return answer, False
        groups = self.search.next_round(posterior, len(self.rounds))
        first = 1 + max((group.number for each in self.rounds for group in each), default=0)
        if groups:
            self.rounds.append([Group(first + index, units) for index, units in enumerate(groups)])
        return answer, not groups

    # --- the file -------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The plan as its file has it."""
        rounds = [[{"group": g.number, "units": g.units, "result": g.result} for g in groups] for groups in self.rounds]
        settings = {name: value for name, value in dataclasses.asdict(self.search).items() if name != "machines"}
        return json.dumps({"schema": SCHEMA, "settings": settings, "layout": dataclasses.asdict(self.layout), "hosts": self.hosts, "rounds": rounds}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Raises RcaError that names the file and what is wrong with it."""
        where = str(path)
        try:
            with open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise RcaError(f"cannot read the plan: {(error.strerror or str(error)).lower()}", where, "rca bisect plan --hosts N -o plan.json makes one") from error
        if len(data) > MOST_BYTES:
            raise RcaError("this file is too large for a plan", where)
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RcaError("the plan is damaged: it is no JSON", where, "make a new one, or take a copy") from error
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            found = document.get("schema") if isinstance(document, dict) else None
            raise RcaError(f"no plan of this version: schema `{str(found)[:60]}` instead of `{SCHEMA}`", where)
        try:
            return _of(cls, document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RcaError(f"the plan is damaged: {error}", where, "make a new one, or take a copy") from error


def checked(search: Search) -> Search:
    """The settings, or RcaError that says what is wrong with them."""
    if problem := search.problem():
        raise RcaError(problem)
    return search


def _of(cls: type[Plan], document: dict[str, Any]) -> Plan:
    """A plan of its document. Raises the errors of a damaged one."""
    hosts = document["hosts"]
    if not isinstance(hosts, list) or not all(isinstance(host, str) and host for host in hosts) or len(set(hosts)) != len(hosts):
        raise ValueError("`hosts` must be different names")
    layout = Layout(**document["layout"])
    units, _ = layout.units(hosts)
    plan = cls(checked(Search(machines=len(units), **document["settings"])), layout, hosts)
    seen: set[int] = set()
    for groups in document["rounds"]:
        found = []
        for group in groups:
            number, members, result = group["group"], group["units"], group["result"]
            if type(number) is not int or number in seen:
                raise ValueError(f"group `{number}` is no number or there twice")
            if result not in (None, PASS, FAIL):
                raise ValueError(f"group {number} has the result `{result}`")
            if not isinstance(members, list) or not members or not all(type(u) is int and 0 <= u < len(units) for u in members) or len(set(members)) != len(members):
                raise ValueError(f"group {number} has units that are not there")
            seen.add(number)
            found.append(Group(number, members, result))
        plan.rounds.append(found)
    return plan


def _numbers(what: str, text: str) -> list[int]:
    """`3`, `4-7`, `1,5,9-12`."""
    found: list[int] = []
    for piece in what.split(","):
        first, dash, last = piece.strip().partition("-")
        last = last if dash else first
        if not (first.isascii() and last.isascii() and first.isdigit() and last.isdigit()) or len(last) > 9 or int(last) < int(first) or int(last) - int(first) > 100_000:
            raise RcaError(f"no result: `{text}`", hint="GROUP=pass or GROUP=fail, as in 3=fail 4-7=pass rest=pass")
        found += range(int(first), int(last) + 1)
    return found
