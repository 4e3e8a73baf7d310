"""The command line: thin. Arguments in, exit code out; design.md section 6 fixes both.

`rca` and `rca --help` and `rca --version` and an ordinary `rca analyze` do without typer, which alone takes seven times as long to start as Python itself.
typer, rich and the analyzer are imported only when a command needs them, so the commands, one file each in `rca/commands/`, are defined when `app` calls
their `add` (and annotations are evaluated: no `__future__` import).
"""

import os
import sys
from typing import Any

from rca.console import WIDEST, say
from rca.given import OK
from rca.report.write import CannotWrite, to_stdout

HELP = """\
Usage: rca COMMAND [OPTIONS] ...

Say what broke first in a failed distributed training run, where, why, and what to do.

Commands:
  analyze PATH...     read what the run left behind and report the root cause
  gate PATH...        the same for CI: a policy decides the exit code
  rules list          every rule, one line each
  rules show RULE_ID  what a rule finds, how it is told apart, what to do
  rules test DIR      check your own rules and run their tests
  trace export PATH...  the trainer's journals as OTLP, for a collector or viewer
  checkpoint verify DIR...  is a checkpoint what was written?
  sample              record counters of this host and its devices beside a job
  train [RUN]         the reference trainer: a small real GRPO job
  scenarios list      ten ways to break it for real
  scenarios run NAME  break it, and keep what it leaves
  scenarios check NAME  does the analyzer find out what broke?
  replay RUN          run the recorded requests again: do they fail again?
  bisect plan         which machine computes wrongly? groups to run, by results
  bisect run          the same with a command of yours, or with real replays
  bisect selftest     does this machine compute wrongly? each core, each GPU
  bisect simulate     how many rounds and tests that takes, how often it errs

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

INTERNAL, INTERRUPTED = 4, 130
MESSAGE_CHARS = 300  # an internal error's text is cut here: it must stay one line


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
        from rca.commands import analyze

        if plain := analyze.plain(args):
            return analyze.run(*plain)
        return _run(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _explain(error)


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
    import typer

    import rca.commands
    from rca.discover import modules

    class Root(typer.core.TyperGroup):
        """A group whose help is `HELP`, the text that `main` prints without typer."""

        def format_help(self, ctx: Any, formatter: Any) -> None:
            formatter.write(HELP)

    context = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
    cli = typer.Typer(cls=Root, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=context)
    for command in modules(rca.commands):
        command.add(cli)
    return cli


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
    say(f"error: {message}")
    if hint:
        say("")
        say(f"hint: {hint}")
