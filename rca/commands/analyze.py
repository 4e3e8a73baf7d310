"""`rca analyze`: report what broke first."""

from collections.abc import Callable
from typing import Any

from rca.console import colored, columns, say
from rca.given import Given, code, options, report
from rca.report.write import check, to_file, to_stdout

HELP = """Read what a run left behind - logs, consoles, kernel messages - and report what broke first.

PATH is a folder, a file or an archive (.tar.gz, .zip and the like are read as they are, and so are .gz, .zst, .xz and .bz2); several are read as one run, and `-` is what is piped or pasted in. The report goes to standard output, everything else to standard error.

\b
Examples:
  rca analyze logs/
  rca analyze logs/ --format markdown
  rca analyze logs.tar.gz -o report.json
  kubectl logs trainer-0 | rca analyze -
  rca analyze logs/ --baseline logs-of-last-good-run/
  rca analyze logs/ --topology cluster.toml --prometheus http://prometheus:9090

Exit codes: 0 report written, 2 wrong usage, 3 report written but incomplete, 4 internal error, 5 no recognisable evidence.
"""
SUFFIXES = {".json": "json", ".md": "markdown", ".markdown": "markdown"}
OPTIONS = ("--format", "--output", "-o", *(f"--{name}" for name in Given._fields))


def plain(args: list[str]) -> tuple[list[str], str | None, str | None, Given] | None:
    """What typer would call `run` with, for an ordinary command line; None where typer should read it, and complain or help.

    typer brings pydantic, and both together take longer to import than a small run to analyze.
    """
    paths: list[str] = []
    given: dict[str, str] = {}
    words = iter(args[1:] if args[:1] == ["analyze"] else ["-"])
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            paths.append(word)
        elif name in OPTIONS and (equals == "" or name != "-o"):
            value = value if equals else next(words, "")
            if not value or value.startswith("-"):
                return None
            given["output" if name == "-o" else name[2:]] = value
        else:
            return None
    return (paths, given.pop("format", None), given.pop("output", None), Given(**given)) if paths else None


def run(paths: list[str], format: str | None, output: str | None, given: Given) -> int:
    """Analyze, write the report where it is wanted, and return the exit code."""
    from pathlib import Path

    file = Path(output) if output is not None else None
    render = renderer(format or (SUFFIXES.get(file.suffix.lower()) if file else None) or "text")
    if file:
        check(file)
    found = report(paths, given)
    if file:
        to_file(file, render(found.document))
        say(f"wrote {file} (verdict: {found.verdict})")
    else:
        to_stdout(render(found.document, width=columns(), color=colored()))
    return code(found)


def renderer(name: str) -> Callable[..., str]:
    """The `render` of the file `report/<name>.py`; every file there that has one is a format."""
    import rca.report
    from rca.discover import modules
    from rca.errors import RcaError, did_you_mean

    found = {module.__name__.rpartition(".")[2]: module.render for module in modules(rca.report) if hasattr(module, "render")}
    if name not in found:
        raise RcaError(f"unknown format: `{name}`", hint=did_you_mean(name, found) or f"one of {', '.join(found)}")
    return found[name]


def add(cli: Any) -> None:
    """Give the command to the app."""
    from typing import Annotated

    import typer

    Paths, Rules, Baseline, Topology, Prometheus = options()
    Format = Annotated[str | None, typer.Option("--format", metavar="NAME", help="text, json or markdown; else the suffix of -o decides, else text.")]
    Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE, whole or not at all.")]

    @cli.command(help=HELP)
    def analyze(
        paths: Paths, format: Format = None, output: Output = None,
        baseline: Baseline = None, rules: Rules = None, topology: Topology = None, prometheus: Prometheus = None,
    ) -> int:  # fmt: skip
        return run(paths, format, output, Given(rules, baseline, topology, prometheus))
