"""`rca bisect`: which machine computes wrongly, by groups that pass or fail."""

from typing import Any

from rca.console import say
from rca.given import OK

PLAN_HELP = """Plan a search for bad machines on a cluster: print the groups to run, take their results back, until the answer is sure. Works with any scheduler.

Run the same short job on each group (a replay of the step that went wrong, a burn-in, a collective test): it passes or fails, by its exit code or its numbers. Without
--parallel the first round is all rows of the grid of machines at once, the second all columns: one bad machine in two rounds. What is then still open goes on in
groups that tell most. --parallel 1 takes the fewest tests instead of the fewest rounds. Groups are made of whole replicas (--tp, --pp, --gpus-per-host).

The file of --output is the whole state. `--result FILE` shows where it stands, or takes results (3=fail 4-7=pass rest=pass), the same ones twice without harm; with
--bad, --expected, --shows, --false-alarms or --confidence it judges them anew by other settings.

\b
Examples:
  rca bisect plan --hosts 'node[001-064]' -o plan.json
  rca bisect plan --result plan.json 3=fail rest=pass
  rca bisect plan --hosts 1024 --bad 3 --shows 0.5 --parallel 1 -o plan.json
  rca bisect plan --hosts-file nodes.txt --tp 8 --pp 4 --gpus-per-host 8 -o plan.json

\b
In a shell, one group after the other, exit code 0 being a pass:
  while rca bisect plan --result plan.json --groups > groups.txt && [ -s groups.txt ]; do
    while read -r n hosts; do
      if srun -w "$hosts" ./replay.sh < /dev/null; then r=pass; else r=fail; fi
      rca bisect plan --result plan.json "$n=$r" > /dev/null || exit
    done < groups.txt
  done
  rca bisect plan --result plan.json

Exit codes: 0 done, 2 wrong usage, a result that contradicts another, or a damaged plan.
"""
SIMULATE_HELP = """Try the search on machines whose truth is drawn: rounds, tests, share of wrong answers with its confidence interval, beside the information bound.

\b
Examples:
  rca bisect simulate --hosts 1024 --bad 3 --shows 0.5 --trials 200
  rca bisect simulate --hosts 10000 --bad 3 --shows 0.5 --trials 100 --parallel 1
  rca bisect simulate --hosts 256 --bad 2 --unknown --expected 1

Exit codes: 0 done, 2 wrong usage.
"""
RUN_HELP = """Run the search to its end. With --command, a command for each group of hosts, whose exit code says whether the group passed.

Without it, machines are slots on this one, and what they compute is real: each group test is a fresh process that computes the newest recorded step of RUN (a folder of
`rca train`), split over the group, and compares the weights with the recorded ones; without RUN, a small training whose numbers are known. Slots named by --wrong flip
one bit of the output of one matmul.

\b
Examples:
  rca bisect run --machines 64
  rca bisect run runs/mine --machines 64 --wrong 20
  rca bisect run --machines 64 --wrong 3,40 --shows 0.5
  rca bisect run --hosts 'node[01-64]' --command 'srun -w {hosts} ./replay.sh' --jobs 8 -o plan.json

Exit codes: 0 the answer is sure (and, of slots, right), 1 it is not, 2 wrong usage, or a group that could not be run, 130 interrupted.
"""
SELFTEST_HELP = """Test this machine alone for wrong results: a small training whose every number is known beforehand, whatever the machine, library and precision, on each core
in turn or on each GPU.

\b
Examples:
  rca bisect selftest
  rca bisect selftest --cores 0,4-7 --seconds 60
  rca bisect selftest --device cuda:0
  rca bisect selftest --flip 2:y:100:22

--flip STEP:TENSOR:ELEMENT:BIT shows what a wrong number looks like: that bit of the output of that matmul is another one, on the last core.

Exit codes: 0 sound, 1 a wrong number, 2 wrong usage.
"""
WRONG, INTERRUPTED = 1, 130


def add(cli: Any) -> None:
    """Give the group of commands to the app."""
    from typing import Annotated

    import typer

    def option(kind: Any, *names: str, metavar: str | None, help: str) -> Any:
        return Annotated[kind, typer.Option(*names, metavar=metavar, help=help, show_default=False)]

    text, number, real = str | None, int | None, float | None
    Hosts = option(text, "--hosts", metavar="LIST|N", help="Names as node[01-64],login1, or how many.")
    File = option(text, "--hosts-file", metavar="FILE", help="Names, one a line or as lists.")
    Bad = option(number, "--bad", metavar="N", help="Exactly so many are bad; without it the number is unknown.")
    Expected = option(real, "--expected", metavar="X", help="How many are bad on average, if the number is unknown (1).")
    Shows = option(real, "--shows", metavar="Q", help="How often a bad machine makes its group fail (1.0).")
    Alarms = option(real, "--false-alarms", metavar="P", help="How often a sound group fails (0).")
    Confidence = option(real, "--confidence", metavar="P", help="Stop when so sure (0.99).")
    Parallel = option(number, "--parallel", metavar="G", help="Groups at once; without it rows, then columns.")
    Size = Annotated[int, typer.Option(metavar="N", help="Of the job that is replayed: groups are whole replicas.")]
    Output = option(text, "--output", "-o", metavar="FILE", help="Where the plan goes.")
    Result = option(text, "--result", metavar="FILE", help="The plan that results are for.")
    Results = Annotated[list[str] | None, typer.Argument(metavar="[GROUP=pass|fail]...", help="Results: 3=fail 4-7=pass rest=pass.", show_default=False)]
    Correct = Annotated[bool, typer.Option("--correct", help="These results replace what was said before.")]
    Groups = Annotated[bool, typer.Option("--groups", help="Print only the groups to run: number, tab, hosts with commas.")]
    Json = Annotated[bool, typer.Option("--json", help="For scripts.")]
    Trials = Annotated[int, typer.Option(metavar="N", help="How many searches.", min=1)]
    Jobs = option(number, "--jobs", metavar="N", help="Processes; all cores without it.")
    Unknown = Annotated[bool, typer.Option("--unknown", help="The search is not told how many are bad.")]
    Machines = Annotated[int, typer.Option("--hosts", metavar="N", help="How many units.", min=1)]
    group = typer.Typer(rich_markup_mode=None, help="Which machine computes wrongly, by groups that pass or fail.")
    cli.add_typer(group, name="bisect")

    @group.command("plan", help=PLAN_HELP)
    def plan_command(
        results: Results = None, hosts: Hosts = None, hosts_file: File = None, output: Output = None, result: Result = None, bad: Bad = None, expected: Expected = None,
        shows: Shows = None, false_alarms: Alarms = None, confidence: Confidence = None, parallel: Parallel = None, tp: Size = 1, pp: Size = 1, gpus_per_host: Size = 8,
        correct: Correct = False, groups: Groups = False, json: Json = False,
    ) -> int:  # fmt: skip
        settings = {"bad": bad, "expected": expected, "shows": shows, "false_alarms": false_alarms, "confidence": confidence, "parallel": parallel}
        settings = {name: value for name, value in settings.items() if value is not None}
        return plan(results or [], hosts, hosts_file, output, result, settings, (tp, pp, gpus_per_host), correct, "groups" if groups else "json" if json else "text")

    @group.command("simulate", help=SIMULATE_HELP)
    def simulate_command(
        hosts: Machines = 64, bad: Bad = None, expected: Expected = None, shows: Shows = None, false_alarms: Alarms = None, confidence: Confidence = None,
        parallel: Parallel = None, trials: Trials = 100, unknown: Unknown = False, jobs: Jobs = None, json: Json = False,
    ) -> int:  # fmt: skip
        settings = {"expected": expected, "shows": shows, "false_alarms": false_alarms, "confidence": confidence}
        return simulate(hosts, bad, unknown, parallel, {name: value for name, value in settings.items() if value is not None}, trials, jobs, json)

    Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run with a recording.", show_default=False)]
    Slots = option(number, "--machines", metavar="N", help="So many slots on this machine (64).")
    Wrong = option(text, "--wrong", metavar="LIST", help="Slots that compute wrongly, as 20 or 3,40-41; `none`; one that --seed draws without it.")
    Seed = Annotated[int, typer.Option(metavar="N", help="Which slot is wrong, and when a fault shows.")]
    Command = option(text, "--command", metavar="CMD", help="For the shell; {hosts}, {hostlist}, {group}, {count}.")
    Limit = option(real, "--time-limit", metavar="S", help="A command that takes longer has failed.")
    AtOnce = option(number, "--jobs", metavar="N", help="Groups that run at once: all of a round, of slots as many as there are cores.")
    Cores = option(text, "--cores", metavar="LIST", help="all, or 0,2-5.")
    Device = option(text, "--device", metavar="DEVICE", help="cuda, or cuda:0, instead of the cores.")
    Seconds = Annotated[float, typer.Option(metavar="S", help="For how long each core or device is kept at it, at least once through.", min=0)]
    Flip = option(text, "--flip", metavar="SPEC", help="Compute one number wrongly, for demonstration.")

    @group.command("run", help=RUN_HELP)
    def run_command(
        recorded: Run = None, machines: Slots = None, wrong: Wrong = None, seed: Seed = 0, command: Command = None, time_limit: Limit = None, hosts: Hosts = None, hosts_file: File = None,
        output: Output = None, bad: Bad = None, expected: Expected = None, shows: Shows = None, false_alarms: Alarms = None, confidence: Confidence = None,
        parallel: Parallel = None, tp: Size = 1, pp: Size = 1, gpus_per_host: Size = 8, jobs: AtOnce = None, json: Json = False,
    ) -> int:  # fmt: skip
        settings = {"bad": bad, "expected": expected, "shows": shows, "false_alarms": false_alarms, "confidence": confidence, "parallel": parallel}
        settings = {name: value for name, value in settings.items() if value is not None}
        from rca.commands import _bisect_run

        sizes = (tp, pp, gpus_per_host)
        if command is not None:
            return _bisect_run.commands(command, recorded, machines, wrong, lambda: _hosts(hosts, hosts_file), output, settings, sizes, jobs, time_limit, json)
        if hosts is not None or hosts_file is not None or time_limit is not None:
            from rca.errors import RcaError

            raise RcaError("a search on hosts needs the command to run on them", hint="--command 'srun -w {hosts} ./replay.sh'")
        return _bisect_run.slots(recorded, 64 if machines is None else machines, wrong, seed, output, settings, sizes, jobs, json)

    @group.command("selftest", help=SELFTEST_HELP)
    def selftest_command(cores: Cores = None, device: Device = None, seconds: Seconds = 2.0, flip: Flip = None, json: Json = False) -> int:
        return selftest(cores, device, seconds, flip, json)


def plan(
    results: list[str], hosts: str | None, file: str | None, output: str | None, state: str | None, settings: dict[str, Any], sizes: tuple[int, int, int], correct: bool, shape: str
) -> int:
    """Make a plan or go on with one, and print what is to be done; gives the exit code."""
    import dataclasses
    import json
    from pathlib import Path

    from rca.bisect import tell
    from rca.bisect.plan import Plan, checked
    from rca.bisect.units import Layout
    from rca.errors import RcaError
    from rca.report.write import to_file, to_stdout

    if state is None:
        if results:
            raise RcaError(f"results need the plan that they are for: `{results[0]}`", hint="rca bisect plan --result plan.json 3=fail 4=pass")
        found = Plan.new(_hosts(hosts, file), Layout(*sizes), **settings)
        if output is not None:
            if Path(output).exists():
                raise RcaError(f"there is a file already: `{output}`", hint=f"rca bisect plan --result {output} goes on with that plan; or name another file")
            to_file(Path(output), found.text())
        elif shape == "text":
            say("hint: -o plan.json keeps the plan, so that results can come back")
        answer, over = found.proceed()
    else:
        if hosts is not None or file is not None or output is not None or "parallel" in settings or sizes != (1, 1, 8):
            raise RcaError("--result goes on with the hosts, sizes, way and file of the plan", hint="only --bad, --expected, --shows, --false-alarms and --confidence can change")
        found = Plan.read(Path(state))
        before = found.text()
        found.search = checked(dataclasses.replace(found.search, **settings))
        new = found.put(results, correct)
        answer, over = found.proceed()
        if found.text() != before:
            to_file(Path(state), found.text())
        if results and shape == "text":
            say(f"{new} new result{'' if new == 1 else 's'}, {len(results) and len(found.open())} groups without one")
    if shape == "json":
        to_stdout(json.dumps(tell.document(found, answer, over), indent=1) + "\n")
    else:
        to_stdout((tell.lines(found) if not over else "") if shape == "groups" else tell.words(found, answer, over))
    if not over and shape == "text":
        first = found.open()[0].number
        say(f"hint: then, with the results that you get, as in rca bisect plan --result {state or output or 'plan.json'} {first}=fail rest=pass")
    return OK


def _hosts(hosts: str | None, file: str | None) -> list[str]:
    """The names that were given, as a list, a number or a file."""
    from rca.bisect.names import MOST, expand
    from rca.errors import RcaError

    if hosts is not None and file is not None:
        raise RcaError("--hosts and --hosts-file exclude each other")
    if hosts is None and file is None:
        raise RcaError("a plan needs hosts, by --hosts or --hosts-file", hint="rca bisect plan --hosts 'node[01-64]' -o plan.json")
    if file is not None:
        try:
            with open(file, encoding="utf-8") as lines:
                found = expand(lines.read(), file)
        except (OSError, UnicodeDecodeError) as error:
            raise RcaError(f"cannot read the list of hosts: {getattr(error, 'strerror', None) or 'no UTF-8'}", file) from error
    elif hosts.strip().isascii() and hosts.strip().isdigit():
        count = int(hosts) if len(hosts.strip()) < 9 else MOST + 1
        if count > MOST:
            raise RcaError(f"more than {MOST} hosts: `{hosts.strip()[:20]}`")
        found = [f"host{number:0{len(str(count))}d}" for number in range(1, count + 1)]
    else:
        found = expand(hosts)
    if not found:
        raise RcaError("the list of hosts is empty", file)
    return found


def simulate(machines: int, bad: int | None, unknown: bool, parallel: int | None, settings: dict[str, Any], count: int, jobs: int | None, as_json: bool) -> int:
    """Try the search many times and print a table; gives the exit code."""
    import json
    import os
    import sys

    from rca.bisect import simulate as simulation
    from rca.bisect import tell
    from rca.bisect.group_testing import GRID, Search
    from rca.bisect.plan import checked
    from rca.console import is_terminal
    from rca.report.write import to_stdout

    base = checked(Search(machines=machines, bad=bad, **settings))  # also checks `bad` where the search is not told
    ways = [(f"{parallel} at once" if parallel > 1 else "one group at a time", parallel)] if parallel else [("one group at a time", 1), ("rows, columns, parallel", GRID)]
    rows = []
    for name, width in ways:
        search = checked(Search(machines=machines, bad=None if unknown else bad, parallel=width, **settings))

        def heard(done: int, name: str = name) -> None:
            if is_terminal(sys.stderr) and (done % max(1, count // 100) == 0 or done == count):
                print(f"\r{name}: {done} of {count}" + ("\n" if done == count else ""), end="", file=sys.stderr, flush=True)

        found = simulation.trials(search, count, bad, jobs or len(os.sched_getaffinity(0)), heard)
        rows.append((name, simulation.summary(search, found, bad)))
    base = base if not unknown else search
    to_stdout(json.dumps(tell.simulated(base, rows, bad), indent=1) + "\n" if as_json else tell.table(base, rows, bad))
    return OK


def selftest(cores: str | None, device: str | None, seconds: float, flip: str | None, as_json: bool) -> int:
    """Test this machine and print a line for each core or device; gives the exit code."""
    import json
    import sys
    from importlib.util import find_spec

    from rca.console import is_terminal
    from rca.errors import RcaError
    from rca.report.write import to_stdout

    if find_spec("torch") is None or find_spec("numpy") is None:
        raise RcaError("the self-test needs packages that are not installed: torch, numpy", hint="pip install 'trainrca[trainer]'")
    if device not in (None, "cpu") and cores is not None:
        raise RcaError("--cores and --device cannot both be tested at once")
    from rca.bisect import selftest as test

    def heard(where: str) -> None:
        if is_terminal(sys.stderr):
            print(f"\r{where} ...   ", end="", file=sys.stderr, flush=True)

    wrong = test.flip_of(flip) if flip is not None else None
    given = test.on_cores(test.cores_of(cores or "all"), seconds, wrong, heard) if device in (None, "cpu") else test.on_devices(device, seconds, wrong, heard)
    found = []
    for one in given:
        found.append(one)
        if is_terminal(sys.stderr):
            print("\r" + " " * 20 + "\r", end="", file=sys.stderr, flush=True)
        if not as_json:
            state = f"WRONG  {one.difference.text()}" if one.difference else "ok"
            to_stdout(f"{one.where:10} {one.trainings:6} trainings {one.seconds:6.1f} s  {state}\n")
    bad = [one for one in found if one.difference is not None]
    if as_json:
        rows = [{"where": one.where, "trainings": one.trainings, "seconds": round(one.seconds, 3), "wrong": one.difference and one.difference.__dict__} for one in found]
        to_stdout(json.dumps({"schema": "rca.bisect.selftest/1", "sound": not bad, "tested": rows}, indent=1) + "\n")
    elif bad:
        say(f"{', '.join(one.where for one in bad)} computed wrongly: take this machine out of the job and have it tested by its maker's tools")
    return WRONG if bad else OK
