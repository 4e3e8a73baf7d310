"""`rca scenarios`: ten ways to break the reference trainer for real, and whether the analyzer finds out."""

from typing import Any

from rca.console import say
from rca.given import OK

LIST_HELP = """Name the scenarios, what breaks in each, and whether this machine can break it so.

\b
Examples:
  rca scenarios list
"""
RUN_HELP = """Break the reference trainer for real, and keep what it leaves: OUT/<scenario>/logs, recording, truth.json.

NAME is a scenario, its number, or `all`. Variation 0 is the plain one; others differ in rank, step, mechanism, clocks and telemetry. Hosts are network, host-name and
mount namespaces of this machine, which takes root. What this machine does not allow is skipped, and said.

\b
Examples:
  rca scenarios run 04 -o /tmp/runs
  rca scenarios run all -o /tmp/runs && rca scenarios check all -o /tmp/runs
  rca scenarios run 10 --variations 5

Exit codes: 0 all were played, 1 one did not come about, 2 wrong usage, 3 some were skipped.
"""
CHECK_HELP = """Analyze the logs of scenarios that were played, and compare with what really broke. The analyzer is given a copy of `logs/` and nothing else.

Without -o the small bundles that come with the program are checked.

\b
Examples:
  rca scenarios check all
  rca scenarios check 04 -o /tmp/runs

Exit codes: 0 all right, 1 a verdict, cause, stage, step or place is wrong, or one was not played, 2 wrong usage or nothing was played.
"""
WRONG, SKIPPED = 1, 3
DEFAULT_OUT = "scenario-runs"


def add(cli: Any) -> None:
    """Give the group of commands to the app."""
    from typing import Annotated

    import typer

    Name = Annotated[str, typer.Argument(metavar="NAME", help="A scenario, its number, or `all`.")]
    Out = Annotated[str, typer.Option("--output", "-o", metavar="OUT", help="Where the folders of the runs go.")]
    From = Annotated[str | None, typer.Option("--output", "-o", metavar="OUT", help="Where `run` put them.", show_default=False)]
    Variations = Annotated[int, typer.Option("--variations", metavar="N", help="Play variations 1 to N instead of the plain one.", min=0)]
    Retries = Annotated[int, typer.Option("--retries", metavar="N", help="How often one is played again that did not come about.", min=0)]
    group = typer.Typer(rich_markup_mode=None, help="The reference trainer, broken for real in ten ways.")
    cli.add_typer(group, name="scenarios")

    @group.command("list", help=LIST_HELP)
    def list_command() -> int:
        return list_all()

    @group.command("run", help=RUN_HELP)
    def run_command(name: Name, output: Out = DEFAULT_OUT, variations: Variations = 0, retries: Retries = 2) -> int:
        return run(name, output, variations, retries)

    @group.command("check", help=CHECK_HELP)
    def check_command(name: Name, output: From = None) -> int:
        return check(name, output)


def list_all() -> int:
    """Print every scenario with its cause class, kind and title; gives the exit code."""
    from rca.commands.train import missing_packages
    from rca.replay_trainer import scenario
    from rca.report.write import to_stdout

    lines = []
    for name in scenario.names():
        found = scenario.load(name)
        lines.append(f"{name:36} {found.truth.get('root_cause_class', 'nothing breaks'):18} {'part synthetic' if found.synthetic else 'real':15} {found.title}\n")
    to_stdout("".join(lines))
    if not missing_packages():
        from rca.replay_trainer.play import cannot

        for name in scenario.names():
            if reason := cannot(scenario.load(name)):
                say(f"{name} cannot be played here: {reason}")
    return OK


def run(name: str, output: str, variations: int, retries: int) -> int:
    """Play scenarios one after the other; gives the exit code."""
    import signal
    import time
    from pathlib import Path

    from rca.commands.train import interrupted, needs_trainer
    from rca.errors import RcaError
    from rca.replay_trainer import scenario

    found = scenario.resolve(name)
    needs_trainer()
    from rca.replay_trainer.play import NotMade, cannot, play

    signal.signal(signal.SIGTERM, interrupted)
    wanted = [(each, number) for each in found for number in (range(1, variations + 1) if variations else (0,))]
    failed = skipped = 0
    for count, (each, number) in enumerate(wanted, 1):
        label = f"[{count}/{len(wanted)}] {each}{f' variation {number}' if number else ''}"
        one = scenario.load(each, number)
        if reason := cannot(one):
            skipped += 1
            say(f"{label}: SKIPPED, {reason}")
            continue
        for left in reversed(range(retries + 1)):
            began = time.monotonic()
            try:
                play(one, Path(output) / (f"{each}-{number}" if number else each), lambda text, label=label: say(f"{label}: {text}"))
                say(f"{label}: played in {time.monotonic() - began:.0f} s")
                break
            except (NotMade, RcaError) as error:
                say(f"{label}: did not come about: {error}{', once more' if left else ''}")
                failed += not left
    return WRONG if failed else SKIPPED if skipped else OK


def check(name: str, output: str | None) -> int:
    """Analyze what was played and print a table; gives the exit code."""
    from pathlib import Path

    from rca.errors import RcaError
    from rca.replay_trainer import scenario
    from rca.report.write import to_stdout
    from rca.scenario_check import compare

    root = Path(output) if output is not None else scenario.root()
    names = scenario.resolve(name)
    folders = sorted(path.parent for path in root.glob("*/truth.json") if any(path.parent.name == each or path.parent.name.startswith(f"{each}-") for each in names))
    if not folders:
        raise RcaError(f"nothing was played: `{root}`", hint=f"rca scenarios run {name} -o {output or DEFAULT_OUT}")
    lacking = [each for each in names if not any(folder.name == each or folder.name.startswith(f"{each}-") for folder in folders)]
    wrong = 0
    all_found = []
    for folder in folders:
        found = compare(folder)
        all_found.append(found)
        wrong += not found.right
        to_stdout(f"{'ok    ' if found.right else 'WRONG '} {folder.name:40} {found.answer}\n")
        for problem in found.problems:
            to_stdout(f"         {problem}\n")
    for each in lacking:
        to_stdout(f"ABSENT {each:40} was not played\n")
    answered = [found.cause for found in all_found if found.cause is not None]
    to_stdout(
        f"{len(folders) - wrong} of {len(folders)} right in verdict, cause, stages, steps and place; of those that broke cause right {sum(answered)} of {len(answered)} answered, "
        f"{sum(f.abstained for f in all_found)} inconclusive; sure (0.8) and wrong {sum(f.sure_and_wrong for f in all_found)}\n"
    )
    return WRONG if wrong or lacking else OK
