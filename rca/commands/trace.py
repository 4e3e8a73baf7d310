"""`rca trace`: journals of the trainer in other formats."""

from typing import Any

from rca.console import say
from rca.given import INCOMPLETE, OK
from rca.report.write import CannotWrite, check, to_file

EXPORT_HELP = """Give journals (`*.rca.jsonl`) as OTLP in JSON, one export request a line, for any OpenTelemetry collector or viewer.

Of a folder all journals at or below it are taken. A span without an end ends where it began, with status error and the attribute `rca.open`.

\b
Examples:
  rca trace export --otlp /dev/shm/rca-trace-0 -o traces.jsonl
  rca trace export --otlp run/trace | head -n 1 | curl -H 'Content-Type: application/json' -d @- http://collector:4318/v1/traces

Exit codes: 0 exported, 2 wrong usage or no journal there, 3 exported, but a part could not be read.
"""


def add(cli: Any) -> None:
    """Give the group of commands to the app."""
    from typing import Annotated

    import typer

    Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help="Journals, or folders of them.", show_default=False)]
    Otlp = Annotated[bool, typer.Option("--otlp", help="OTLP in JSON, the one format there is.")]
    Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, whole or not at all.")]
    group = typer.Typer(rich_markup_mode=None, help="Journals of the trainer.")
    cli.add_typer(group, name="trace")
    group.callback()(lambda: None)  # or typer makes the only command of a group the group itself

    @group.command("export", help=EXPORT_HELP)
    def export_journals(paths: Paths, otlp: Otlp = False, output: Output = None) -> int:
        return export(paths, output)


def export(paths: list[str], output: str | None) -> int:
    """Export journals to a file or standard output; gives the exit code."""
    from pathlib import Path

    from rca.errors import RcaError
    from rca.trace_inject.export import journals

    try:
        found = journals(paths)
    except OSError as error:
        raise RcaError(f"{(error.strerror or 'cannot be read').lower()}: `{error.filename}`") from error
    if not found:
        raise RcaError(f"no journal at `{paths[0]}`", hint="journals end in `.rca.jsonl`; `rca.trace_inject.install()` gives their folder")
    file = Path(output) if output is not None else None
    problems: list[str] = []
    if file is None:
        _to_stdout(found, problems)
    else:
        check(file)
        to_file(file, "".join(_lines(found, problems)))
        say(f"wrote {file}")
    for problem in problems:
        say(f"warning: {problem}")
    return INCOMPLETE if problems else OK


def _lines(found: list[list[str]], problems: list[str]) -> Any:
    import json

    from rca.trace_inject.export import requests

    for group in found:
        for request in requests(group, problems):
            yield json.dumps(request, separators=(",", ":")) + "\n"


def _to_stdout(found: list[list[str]], problems: list[str]) -> None:
    """Line by line: a run's journals may be larger than the memory here."""
    import os
    import sys

    if sys.stdout is None:
        raise CannotWrite("standard output is closed")
    try:
        for line in _lines(found, problems):
            sys.stdout.write(line)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a reader who has seen enough is no error
    except OSError as error:
        raise CannotWrite(f"cannot write to standard output: {error.strerror}") from error
