"""The command line: thin. Arguments in, exit code out; design.md section 6 fixes both.

`rca` and `rca --help` and `rca --version` and an ordinary `rca analyze` do without typer, which alone takes seven times as long to start as Python itself.
typer, rich and the analyzer are imported only when a command needs them, so the commands are defined inside `app` (and annotations are evaluated: no `__future__` import).
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from rca.report.write import CannotWrite, check, to_file, to_stdout

HELP = """\
Usage: rca COMMAND [OPTIONS] ...

Say what broke first in a failed distributed training run, where, why, and what to do.

Commands:
  analyze PATH...     read what the run left behind and report the root cause
  gate PATH...        the same for CI: a policy decides the exit code
  rules list          every rule, one line each
  rules show RULE_ID  what a rule finds, how it is told apart, what to do

Options:
  --version           the version
  -h, --help          this text; `rca COMMAND --help` has the options of a command

Examples:
  rca analyze logs/
  rca analyze logs/ dmesg-node7.txt --format json -o report.json
  rca gate logs/ --warn 'net.*' --ignore host.preempt
  rca rules show gpu/ecc

Exit codes: 0 report written, 1 gate: policy violated, 2 wrong usage or configuration, 3 report written but incomplete,
4 internal error, 5 no recognisable evidence.
"""

ANALYZE_HELP = """Read what a run left behind - logs, consoles, kernel messages - and report what broke first.

PATH is a folder or a file (.gz, .zst and .xz are read as they are; unpack archives first); several are read as one run, and `-` is what is piped or pasted in. The report goes to standard output, everything else to standard error.

\b
Examples:
  rca analyze logs/
  rca analyze logs/ --format markdown
  rca analyze logs/ -o report.json
  kubectl logs trainer-0 | rca analyze -

Exit codes: 0 report written, 2 wrong usage, 3 report written but incomplete, 4 internal error, 5 no recognisable evidence.
"""
GATE_HELP = """Analyze a run and let a policy decide the exit code.

Without a policy a failed run violates (1) and an inconclusive one only warns (0). The policy is read from `rca.toml` of the current folder if
there is one. Globs on the command line come before the file's; of several that match, the longest decides.

\b
Examples:
  rca gate logs/
  rca gate logs/ --fail 'gpu.*' --warn '*' --min-confidence 0.8
  rca gate logs/ --policy ci/rca.toml

Exit codes: 0 policy met, 1 violated, 2 wrong usage or policy, 3 incomplete input, 4 internal error, 5 no recognisable evidence.
"""

OK, INCOMPLETE, INTERNAL, NO_EVIDENCE, INTERRUPTED = 0, 3, 4, 5, 130
PROGRESS_AFTER_S = 1.0  # a shorter run needs no progress line
PROGRESS_EVERY_S = 0.2  # smooth enough, and slows no terminal down
WIDEST = 110  # columns; longer rows are hard to read
NAMED = 3  # unread files that a warning names
MESSAGE_CHARS = 300  # an internal error's text is cut here: it must stay one line
SUFFIXES = {".json": "json", ".md": "markdown", ".markdown": "markdown"}


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; a traceback is shown only under `RCA_DEBUG=1`."""
    args = sys.argv[1:] if argv is None else argv
    try:
        if not args or args in (["--help"], ["-h"]):
            to_stdout(HELP)
            return OK
        if args == ["--version"]:
            from rca import __version__

            to_stdout(f"rca {__version__}\n")
            return OK
        if plain := _plain(args):
            return _analyze(*plain)
        return _run(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _explain(error)


def _plain(args: list[str]) -> tuple[list[str], str | None, Any, Any] | None:
    """What typer would call `analyze` with, for an ordinary command line; None where typer should read it, and complain or help.

    typer brings pydantic, and both together take longer to import than a small run to analyze.
    """
    from pathlib import Path

    paths, options, words = [], {}, iter(args[1:] if args[:1] == ["analyze"] else ["-"])
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            paths.append(word)
        elif name in ("--format", "--output", "--rules", "-o") and (equals == "" or name != "-o"):
            value = value if equals else next(words, "")
            if not value or value.startswith("-"):
                return None
            options[name.lstrip("-")[0]] = value
        else:
            return None
    output, rules = options.get("o"), options.get("r")
    return (paths, options.get("f"), Path(output) if output else None, Path(rules) if rules else None) if paths else None


def _run(args: list[str]) -> int:
    """Parse and run a command; what it returns is the exit code.

    typer's own `main` is passed by: it turns a broken pipe anywhere in the analyzer into exit code 1, which here means a violated policy.
    """
    import typer

    command = typer.main.get_command(app())
    try:
        with command.make_context("rca", list(args)) as context:
            return int(command.invoke(context) or OK)
    except typer.Exit as done:
        return done.exit_code


def app() -> Any:
    """The typer app: every command, with its options."""
    from pathlib import Path
    from typing import Annotated

    import typer

    class Root(typer.core.TyperGroup):
        """A group whose help is `HELP`, the text that `main` prints without typer."""

        def format_help(self, ctx: Any, formatter: Any) -> None:
            formatter.write(HELP)

    def group(**settings: Any) -> typer.Typer:
        context = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
        return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=context, **settings)

    # A path is taken as text, because an empty one must not become the current folder.
    Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Folders or files of one run.", show_default=False)]
    Rules = Annotated[Path | None, typer.Option("--rules", metavar="DIR", help="Use the rules in this folder too.")]
    Globs = list[str]
    cli = group(cls=Root)
    rules_group = group(help="What the analyzer knows.")
    cli.add_typer(rules_group, name="rules")

    @cli.command(help=ANALYZE_HELP)
    def analyze(
        paths: Paths,
        format: Annotated[
            str | None, typer.Option("--format", metavar="NAME", help="text, json or markdown; else the suffix of -o decides, else text.")
        ] = None,
        output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE, whole or not at all.")] = None,
        rules: Rules = None,
    ) -> int:
        return _analyze(paths, format, output, rules)

    @cli.command(help=GATE_HELP)
    def gate(
        paths: Paths,
        policy: Annotated[Path | None, typer.Option("--policy", metavar="FILE", help="The policy; else `rca.toml` of this folder, if there is one.")] = None,
        fail: Annotated[Globs, typer.Option("--fail", metavar="GLOB", help="Causes that violate, as `gpu.*`; may be repeated.", show_default=False)] = [],  # noqa: B006
        warn: Annotated[Globs, typer.Option("--warn", metavar="GLOB", help="Causes that only warn.", show_default=False)] = [],  # noqa: B006
        ignore: Annotated[Globs, typer.Option("--ignore", metavar="GLOB", help="Causes to ignore.", show_default=False)] = [],  # noqa: B006
        min_confidence: Annotated[float | None, typer.Option("--min-confidence", metavar="X", help="Judge only hypotheses at or above X (0 to 1).")] = None,
        rules: Rules = None,
    ) -> int:
        from rca.gate import Policy, decide, read_policy

        default = Path("rca.toml")
        chosen = read_policy(policy) if policy else read_policy(default) if default.is_file() else Policy()
        chosen = chosen.over(fail=fail, warn=warn, ignore=ignore, min_confidence=min_confidence)
        report = _report(paths, rules)
        if not report.recognised:
            return _code(report)
        decision = decide(report.document, chosen)
        to_stdout("".join(f"{_safe(line)}\n" for line in decision.lines))
        for warning in decision.warnings:
            _say(f"warning: {warning}")
        return decision.exit_code or _code(report)

    @rules_group.command("list", help="List every rule, one line each, or all of them in full as Markdown.")
    def list_rules(
        rules: Rules = None,
        markdown: Annotated[bool, typer.Option("--markdown", help="Print the whole rule book, as in docs/rules.md.")] = False,
    ) -> int:
        found = _rules(rules)
        if markdown:
            from rca.report.rulebook import page

            to_stdout(page(found))
            return OK
        wide = max((len(rule.id) for rule in found), default=0)
        to_stdout("".join(f"{_safe(rule.id):{wide}}  {_safe(rule.title)}\n" for rule in found))
        return OK

    @rules_group.command("show", help="Show what a rule finds, how it is told apart, and what to do.")
    def show_rule(rule_id: Annotated[str, typer.Argument(metavar="RULE_ID")], rules: Rules = None) -> int:
        from rca.errors import RcaError, did_you_mean
        from rca.report.rule import page

        known = {rule.id: rule for rule in _rules(rules)}
        rule_id = rule_id if rule_id in known else rule_id.replace(".", "/")  # people copy the cause from a report
        if rule_id not in known:
            raise RcaError(f"no such rule: `{rule_id}`", hint=did_you_mean(rule_id, known) or "`rca rules list` shows them all")
        to_stdout(page(known[rule_id], _columns()))
        return OK

    return cli


# --- analyze ------------------------------------------------------------------------------------------------------------


def _analyze(paths: list[str], format: str | None, output: Any, rules: Any) -> int:
    render = _renderer(format or (SUFFIXES.get(output.suffix.lower()) if output else None) or "text")
    if output:
        check(output)
    report = _report(paths, rules)
    if output:
        to_file(output, render(report.document))
        _say(f"wrote {output} (verdict: {report.verdict})")
    else:
        to_stdout(render(report.document, width=_columns(), color=_colored()))
    return _code(report)


def _report(paths: list[str], rules: Any) -> Any:
    """Check what the user wrote, then analyze, with a progress line where somebody watches."""
    from pathlib import Path

    import rca
    from rca.errors import RcaError, did_you_mean
    from rca.piped import spooled

    for path in paths:
        if path == "-":
            continue
        if not path or not os.path.exists(path):
            parent = os.path.dirname(path) or "."
            near = did_you_mean(os.path.basename(path), os.listdir(parent)) if path and os.access(parent, os.R_OK | os.X_OK) and os.path.isdir(parent) else None
            raise RcaError(f"no such file or folder: `{path}`", hint=near)
    if rules and not rules.is_dir():
        raise RcaError(f"no such folder of rules: `{rules}`")
    with spooled(paths) as given, _Progress() as progress:
        return rca.analyze([Path(p) for p in given], rules=rules, progress=progress if progress.shown else None)


def _unread(report: Any) -> str:
    """The first files that were not read to their end, with the reasons; the JSON report's `coverage` has them all."""
    files = getattr(report, "skipped", ())
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return ": " + ", ".join(f"`{name}` ({reason})" for name, reason in files[:NAMED]) + more if files else ""


def _code(report: Any) -> int:
    """5 before 3, each with a word on standard error."""
    if not report.recognised:
        _say(f"warning: no recognisable evidence in the input{_unread(report)}")
        return NO_EVIDENCE
    if report.incomplete:
        _say(f"warning: the report is incomplete: part of the input could not be read{_unread(report)}")
        return INCOMPLETE
    return OK


def _renderer(name: str) -> Callable[..., str]:
    """The `render` of the file `report/<name>.py`; every file there that has one is a format."""
    import rca.report
    from rca.discover import modules
    from rca.errors import RcaError, did_you_mean

    found = {module.__name__.rpartition(".")[2]: module.render for module in modules(rca.report) if hasattr(module, "render")}
    if name not in found:
        raise RcaError(f"unknown format: `{name}`", hint=did_you_mean(name, found) or f"one of {', '.join(found)}")
    return found[name]


class _Progress:
    """A progress line on a terminal, for long work only; call it with (bytes done, bytes in all or None, what)."""

    def __init__(self) -> None:
        import time

        self.now = time.monotonic
        self.shown = _is_terminal(sys.stderr)
        self.start, self.last, self.wide = self.now(), 0.0, 0

    def __enter__(self) -> "_Progress":
        return self

    def __call__(self, done: int, total: int | None = None, what: str = "") -> None:
        now = self.now()
        if not self.shown or now - self.start < PROGRESS_AFTER_S or now - self.last < PROGRESS_EVERY_S:
            return
        share = f"{100 * min(done, total) // total:3d} % of {total / 1e6:.0f} MB" if total else f"{done / 1e6:.0f} MB"
        line = f"{share}  {_safe(what)}"[: (_columns(sys.stderr) or 80) - 1]
        self.last = now
        print("\r" + line.ljust(self.wide), end="", file=sys.stderr, flush=True)
        self.wide = len(line)

    def __exit__(self, *_: object) -> None:
        if self.wide:
            print("\r" + " " * self.wide + "\r", end="", file=sys.stderr, flush=True)


# --- rules --------------------------------------------------------------------------------------------------------------


def _rules(folder: Any) -> list[Any]:
    from rca.errors import RcaError
    from rca.rules import load_rules

    if folder and not folder.is_dir():
        raise RcaError(f"no such folder of rules: `{folder}`")
    return sorted(load_rules(folder), key=lambda rule: rule.id)


# --- for people ------------------------------------------------------------------------------------------------------------


def _say(message: str) -> None:
    """One message for people, on standard error; where nobody can hear it, it is dropped."""
    try:
        print(_safe(message), file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return


def _safe(text: Any) -> str:
    from rca.report.safe import safe_lines, safe_text

    return safe_lines(safe_text(str(text)))


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def _colored() -> bool:
    return _is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def _columns(stream: Any = None) -> int | None:
    """The width of the terminal, or None where there is none."""
    stream = stream or sys.stdout
    if not _is_terminal(stream):
        return None
    try:
        return min(os.get_terminal_size(stream.fileno()).columns or 80, WIDEST)
    except (OSError, ValueError):
        return None


# --- errors -------------------------------------------------------------------------------------------------------------


def _explain(error: Exception) -> int:
    """Show an error in the house form and return its exit code."""
    from rca.errors import RcaError

    if isinstance(error, RcaError):
        _complain(error.message + (f" in {error.where}" if error.where else ""), error.hint)
        return error.exit_code
    if isinstance(error, CannotWrite):
        _complain(str(error), "choose another place with `-o FILE`")
        return INTERNAL
    if hasattr(error, "format_message"):  # typer's usage errors
        message = error.format_message().rstrip(".")
        command = error.ctx.command_path if getattr(error, "ctx", None) else "rca"
        _complain(message[:1].lower() + message[1:], f"`{command} --help` shows how it is used")
        return RcaError.exit_code
    message = f"internal error: {type(error).__name__}: {error}"
    if os.environ.get("RCA_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    _complain(message[:MESSAGE_CHARS], "set RCA_DEBUG=1 for the traceback, and report it with the command that you ran")
    return INTERNAL


def _complain(message: str, hint: str | None) -> None:
    _say(f"error: {message}")
    if hint:
        _say("")
        _say(f"hint: {hint}")
