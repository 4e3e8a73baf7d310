"""`rca replay`: run the requests of a recorded run again, and see whether they fail again."""

from typing import Any

from rca.console import say
from rca.given import INCOMPLETE, OK

HELP = """Run the recorded requests of a run again, in fresh processes, each with the state and the input that it had.

RUN is the folder of a run of the reference trainer (`rca train`), or of a played scenario (`rca scenarios run`). Without a choice the failed requests are played, or all, if none
failed. What comes of each request:

\b
  reproduces          it fails again (or, if it went well, gives the same bits): the program or its data
  does not reproduce  it goes well now: a machine, a link, a disk, a lost message
  diverges            it gives other numbers: the first tensor and element that differ are named
  cannot tell         it cannot be played: something was not kept, or it fails otherwise

A failure that reproduces on input that had come to harm is followed to where both ends of a hand-over differ, and the step is played whole. The result goes beside
the run, `logs/replay.rca.jsonl`, and `rca analyze` uses it as evidence.

\b
Examples:
  rca replay runs/mine
  rca replay runs/mine --step 12
  rca replay runs/mine --request b373cfc6318b
  rca replay runs/mine --list
  rca replay scenario-runs/06_cleanup_masks_oom && rca analyze scenario-runs/06_cleanup_masks_oom/logs
  rca replay scenario-runs/04_save_fault_poisons_weights --with-fault
  rca replay runs/mine --step 12 --swap rollout=1

Exit codes: 0 replayed, whatever came of it, 2 wrong usage or a recording that cannot be used, 3 some requests could not be played.
"""
SPEAKS_FOR = {
    "reproduces": "this speaks for the program or its data",
    "does not reproduce": "this speaks for what was not brought back: a machine, a link, a disk, another process, a lost message",
    "diverges": "this speaks for a machine that computes wrongly",
    "cannot tell": "this speaks for nothing",
}
SHOWN = 20  # requests that are printed one by one


def add(cli: Any) -> None:
    """Give the command to the app."""
    from typing import Annotated

    import typer

    Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder of the run, with its `recording/`.")]
    Request = Annotated[str | None, typer.Option("--request", metavar="ID", help="Only this request.", show_default=False)]
    Step = Annotated[int | None, typer.Option("--step", metavar="N", help="All requests of this step.", show_default=False)]
    Failed = Annotated[bool, typer.Option("--failed", help="The requests that failed, and what they need; the default where the run failed.")]
    All = Annotated[bool, typer.Option("--all", help="Everything that was recorded.")]
    List = Annotated[bool, typer.Option("--list", help="Name the recorded requests, and play nothing.")]
    Fault = Annotated[bool, typer.Option("--with-fault", help="Of a played scenario: make its fault again, in a run of its own, and compare.")]
    Swap = Annotated[list[str] | None, typer.Option("--swap", metavar="ROLE=RANK", help="Give another worker's requests to this one's device, and the contrary.")]
    Patience = Annotated[float, typer.Option("--patience", metavar="SECONDS", help="After how long a request has not ended.", min=1.0)]
    Versions = Annotated[bool, typer.Option("--other-versions", help="Accept a recording of other versions of torch or Python.")]

    @cli.command("replay", help=HELP)
    def replay_command(
        run: Run, request: Request = None, step: Step = None, failed: Failed = False, all_: All = False, list_: List = False, with_fault: Fault = False, swap: Swap = None,
        patience: Patience = 120.0, other_versions: Versions = False,
    ) -> int:  # fmt: skip
        return replay(run, request, step, failed, all_, list_, with_fault, swap or [], patience, other_versions)


def replay(run: str, request: str | None, step: int | None, failed: bool, all_: bool, list_: bool, with_fault: bool, swap: list[str], patience: float, other_versions: bool) -> int:
    """Check what was asked for, play it, print what came of it; gives the exit code."""
    import signal
    from pathlib import Path

    from rca.commands.train import interrupted, needs_trainer
    from rca.errors import RcaError

    if sum((request is not None, step is not None, failed, all_, list_)) > 1:
        raise RcaError("--request, --step, --failed, --all and --list exclude each other")
    folder = Path(run)
    if not folder.is_dir():
        raise RcaError(f"no such run: `{run}`", hint="the folder that `rca train` made")
    if list_:
        return _list(folder)
    needs_trainer()
    signal.signal(signal.SIGTERM, interrupted)
    if with_fault and not swap:
        from rca.replay.faulty import play_again

        return _print_faulty(play_again(folder, say))
    from rca.replay.replay import Choice
    from rca.replay.replay import replay as run_again

    choice = Choice(request, step, True if failed else False if all_ else None)
    prepared = None
    if with_fault:
        from rca.replay.faulty import device_faults

        prepared = device_faults(folder)
    found = run_again(folder, choice, swap=_swaps(swap), patience_s=patience, other_versions=other_versions, say=say, prepared=prepared)
    for note in found.notes:
        say(f"note: {note}")
    if swap:
        say("with another device: what fails or differs with it is the device's, what stays as it was is the program's")
    return _print(found)


def _swaps(given: list[str]) -> dict[str, int]:
    from rca.errors import RcaError

    found = {}
    for each in given:
        role, equals, rank = each.partition("=")
        if not equals or not rank.isdecimal():
            raise RcaError(f"--swap takes ROLE=RANK, as in rollout=1: `{each}`")
        found[role] = int(rank)
    return found


def _print(found: Any) -> int:
    from rca.report.write import to_stdout

    lines = []
    healthy = [one for one in found.replayed if one.recorded == "ok"]
    odd = [one for one in found.replayed if not one.identical]
    for one in odd[:SHOWN]:
        lines.append(f"{one.outcome:18}  {one.text}\n")
    if len(odd) > SHOWN:
        lines.append(f"{'':18}  and {len(odd) - SHOWN} more\n")
    if healthy:
        lines.append(f"{sum(one.identical for one in healthy)} of {len(healthy)} requests that had gone well gave the same bits\n")
    if found.broken is not None:
        lines.append(f"first broken hand-over: {found.broken.case.where}: {found.broken.text}\n")
    if found.verdict is not None:
        lines += ["\n", f"{found.verdict.verdict.upper()}: {found.verdict.text}\n", f"{SPEAKS_FOR[found.verdict.verdict]}\n"]
    from rca.console import safe

    to_stdout("".join(safe(line.rstrip("\n")) + "\n" for line in lines))
    if found.file is not None:
        say(f"written: {found.file}")
        if found.verdict is not None:
            say(f"hint: rca analyze {found.file.parent} weighs it with the logs")
    if found.unwritten is not None:
        raise found.unwritten
    unknown = [one for one in found.replayed if one.outcome == "cannot tell"]
    return INCOMPLETE if unknown and (found.verdict is None or found.verdict.verdict == "cannot tell") else OK


def _print_faulty(found: Any) -> int:
    from rca.console import safe
    from rca.report.write import to_stdout

    to_stdout("".join(safe(line) + "\n" for line in found.lines))
    return OK if found.same else INCOMPLETE


def _list(folder: Any) -> int:
    """Print the recorded requests, one a line."""
    from rca.console import safe
    from rca.replay.cases import cases
    from rca.replay.recording import Recording
    from rca.report.write import to_stdout

    recording = Recording.read(folder)
    lines = [f"{case.side.request_id or '-':34} {'-' if case.side.step is None else case.side.step!s:>5}  {case.side.stage or '-':22} {case.side.method:18} {case.worker:14} {case.recorded}" for case in cases(recording)]
    say("request, step, stage, method, worker, how it ended")
    to_stdout("".join(safe(line) + "\n" for line in lines))
    for gap in recording.gaps:
        say(f"note: {gap}")
    return OK
