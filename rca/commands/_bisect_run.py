"""`rca bisect run`: the search run to its end, by a command for each group or by slots on this machine."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rca.bisect import tell
from rca.bisect.drive import Ask, drive
from rca.bisect.names import compact
from rca.bisect.plan import Plan
from rca.bisect.units import Layout
from rca.console import say
from rca.errors import RcaError
from rca.given import OK
from rca.report.write import to_file, to_stdout

OPEN, INTERRUPTED = 1, 130


def commands(
    command: str, recorded: str | None, machines: int | None, wrong: str | None, hosts: Callable[[], list[str]], output: str | None, settings: dict[str, Any],
    sizes: tuple[int, int, int], jobs: int | None, limit_s: float | None, as_json: bool,
) -> int:  # fmt: skip
    """A command for each group; a plan that is there already is gone on with."""
    from rca.bisect.commands import Commands

    if recorded is not None or machines is not None or wrong is not None:
        raise RcaError("RUN, --machines and --wrong are for slots on this machine, not for --command")
    run = Commands(command, limit_s)
    if output is not None and Path(output).exists():
        plan = Plan.read(Path(output))
        say(f"going on with {output}: {len(plan.rounds)} rounds, {len(plan.open())} groups without a result")
    else:
        plan = Plan.new(hosts(), Layout(*sizes), **settings)
    return _end(plan, *_drive(plan, lambda group: run.ask(group.number, plan.hosts_of(group.units)), jobs or len(plan.units), output, run.end), as_json)


def slots(recorded: str | None, machines: int, wrong: str | None, seed: int, output: str | None, settings: dict[str, Any], sizes: tuple[int, int, int], jobs: int | None, as_json: bool) -> int:
    """Slots on this machine, some of which compute wrongly."""
    import random

    from rca.bisect.slots import Task, ask
    from rca.commands.train import needs_trainer

    if not 1 <= machines <= 100_000:
        raise RcaError(f"the number of machines must be from 1 to 100000: `{machines}`")
    names = [f"slot{number:0{len(str(machines))}d}" for number in range(1, machines + 1)]
    bad = [random.Random(seed).randrange(machines)] if wrong is None else [] if wrong == "none" else _numbers(wrong, machines)
    plan = Plan.new(names, Layout(*sizes), **settings)
    needs_trainer()
    if recorded is not None and not os.path.exists(recorded):
        raise RcaError(f"no such run: `{recorded}`")
    run = str(Path(recorded).resolve()) if recorded is not None else None
    if run is not None:
        say("replaying the recorded step on this machine as it is")
        failed, text = ask(Task([], [], 1.0, 0, run))
        if failed:
            raise RcaError(f"the recorded step gives other numbers here, without a wrong slot: {text}", hint="another version of torch or another processor; `rca bisect run` without RUN needs no recording")
    index = {name: number for number, name in enumerate(names)}

    def test(group: Any) -> tuple[bool, str]:
        members = [index[name] for name in plan.hosts_of(group.units)]
        return ask(Task(members, bad, plan.search.shows, seed * 1_000_003 + group.number, run))

    answer, over = _drive(plan, test, jobs or len(os.sched_getaffinity(0)), output)
    code = _end(plan, answer, over, as_json)
    truth = sorted({unit for unit, hosts in enumerate(plan.units) for host in hosts if index[host] in bad})
    right = answer.bad == truth
    say(f"truth: {compact(names[number] for number in bad) or 'none'} computed wrongly; the answer is {'right' if right else 'WRONG'}")
    return code if right else OPEN


def _drive(plan: Plan, ask: Ask, jobs: int, output: str | None, stop: Callable[[], object] = lambda: None) -> tuple[Any, bool]:
    """Run it, and keep the plan in a file after each result if one is named. Ctrl-C leaves what is known."""
    import signal

    from rca.commands.train import interrupted

    def keep(plan: Plan) -> None:
        if output is not None:
            to_file(Path(output), plan.text())

    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, interrupted)
    return drive(plan, ask, jobs, say, keep, stop), True


def _end(plan: Plan, answer: Any, over: bool, as_json: bool) -> int:
    """Print the answer; gives the exit code."""
    to_stdout(json.dumps(tell.document(plan, answer, over), indent=1) + "\n" if as_json else tell.words(plan, answer, over))
    return OK if answer.settled else OPEN


def _numbers(text: str, most: int) -> list[int]:
    """`3,40-41`, counted from 1, as numbers from 0. Raises RcaError."""
    found = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        last = last if dash else first
        if not (first.isascii() and last.isascii() and first.isdigit() and last.isdigit()) or len(last) > 6 or not 1 <= int(first) <= int(last) <= most:
            raise RcaError(f"no slots: `{text[:60]}`", hint=f"numbers from 1 to {most}, as in 3,40-41; or `none`")
        found += range(int(first) - 1, int(last))
    return sorted(set(found))
