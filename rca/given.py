"""What the user gives an analysis: paths and the options that every analyzing command has; checked here, then analyzed."""

import os
from typing import Any, NamedTuple

from rca.console import Progress, say

OK, INCOMPLETE, NO_EVIDENCE = 0, 3, 5
NAMED = 3  # unread files that a warning names


class Given(NamedTuple):
    """The options of an analysis, as text; None where an option was not given."""

    rules: str | None = None  # a folder of rules
    baseline: str | None = None  # a healthy run of the same job: a folder, a file or an archive
    topology: str | None = None  # a file that says who ran where
    prometheus: str | None = None  # the URL of a server that holds the run's counters


def report(paths: list[str], given: Given) -> Any:
    """Check what the user wrote, then analyze, with a progress line where somebody watches."""
    from pathlib import Path

    import rca
    from rca.piped import spooled

    for path in paths:
        if path != "-":
            _there(path)
    if given.rules is not None:
        folder_of_rules(given.rules)
    for path in (given.baseline, given.topology):
        if path is not None:
            _there(path)
    if given.prometheus is not None and not given.prometheus.startswith(("http://", "https://")):
        from rca.errors import RcaError

        raise RcaError(f"not a URL of a Prometheus server: `{given.prometheus}`", hint="for instance `--prometheus http://prometheus:9090`")
    more: dict[str, Any] = {name: Path(path) for name, path in (("baseline", given.baseline), ("topology", given.topology)) if path is not None}
    more |= {"prometheus": given.prometheus} if given.prometheus is not None else {}
    with spooled(paths) as read, Progress() as progress:
        rules = Path(given.rules) if given.rules is not None else None
        return rca.analyze([Path(p) for p in read], rules=rules, progress=progress if progress.shown else None, **more)


def folder_of_rules(path: str) -> None:
    """Raise RcaError unless `path` is a folder."""
    if not os.path.isdir(path):
        from rca.errors import RcaError

        raise RcaError(f"no such folder of rules: `{path}`")


def _there(path: str) -> None:
    """Raise RcaError unless there is such a file or folder, with the nearest name beside it."""
    if path and os.path.exists(path):
        return
    from rca.errors import RcaError, did_you_mean

    parent = os.path.dirname(path) or "."
    near = did_you_mean(os.path.basename(path), os.listdir(parent)) if path and os.access(parent, os.R_OK | os.X_OK) and os.path.isdir(parent) else None
    raise RcaError(f"no such file or folder: `{path}`", hint=near)


def _unread(report: Any) -> str:
    """The first files that were not read to their end, with the reasons; the JSON report's `coverage` has them all."""
    files = getattr(report, "skipped", ())
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return ": " + ", ".join(f"`{name}` ({reason})" for name, reason in files[:NAMED]) + more if files else ""


def code(report: Any) -> int:
    """The exit code of a report: 5 before 3, each with a word on standard error."""
    if not report.recognised:
        say(f"warning: no recognisable evidence in the input{_unread(report)}")
        return NO_EVIDENCE
    if report.incomplete:
        say(f"warning: the report is incomplete: part of the input could not be read{_unread(report)}")
        return INCOMPLETE
    return OK


def options() -> tuple[Any, Any, Any, Any, Any]:
    """How typer is to read paths and the options of `Given`, in that order. A path is text: an empty one must not become the current folder."""
    from typing import Annotated

    import typer

    def option(name: str, metavar: str, help: str) -> Any:
        return Annotated[str | None, typer.Option(name, metavar=metavar, help=help)]

    return (
        Annotated[list[str], typer.Argument(metavar="PATH", help="Folders, files or archives of one run.", show_default=False)],
        option("--rules", "DIR", "Use the rules in this folder too."),
        option("--baseline", "GOOD_RUN", "A healthy run of the same job: what it shows too is no cause."),
        option("--topology", "FILE", "Who ran where: ranks, hosts, GPUs, addresses."),
        option("--prometheus", "URL", "Ask this server for the counters of the run's time."),
    )
