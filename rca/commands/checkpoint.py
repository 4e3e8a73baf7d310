"""`rca checkpoint`: is a checkpoint what was written?"""

from typing import Any

from rca.console import safe
from rca.given import OK
from rca.report.write import to_stdout

DAMAGED = 1
VERIFY_HELP = """Compare checkpoints with their manifests: every file there, of its size, with its checksum, and the save complete.

The manifest (`rca.manifest*.json`) is what `rca.trace_inject.checkpoint_saved` left. A checkpoint without one cannot be verified and counts as damaged.

\b
Examples:
  rca checkpoint verify checkpoints/step-100
  rca checkpoint verify --fast checkpoints/*

Exit codes: 0 all are as they were written, 1 at least one is damaged, 2 wrong usage.
"""


def add(cli: Any) -> None:
    """Give the group of commands to the app."""
    from typing import Annotated

    import typer

    Paths = Annotated[list[str], typer.Argument(metavar="DIR...", help="Folders of checkpoints, or single files with a manifest beside them.", show_default=False)]
    Fast = Annotated[bool, typer.Option("--fast", help="Sizes only: read no file.")]
    group = typer.Typer(rich_markup_mode=None, help="Checkpoints and their manifests.")
    cli.add_typer(group, name="checkpoint")
    group.callback()(lambda: None)

    @group.command("verify", help=VERIFY_HELP)
    def verify_checkpoints(paths: Paths, fast: Fast = False) -> int:
        return verify(paths, sums=not fast)


def verify(paths: list[str], sums: bool) -> int:
    """Verify some checkpoints, one line each and one for each damaged file; gives the exit code."""
    import os

    from rca.errors import RcaError
    from rca.trace_inject import checkpoints

    for path in paths:
        if not os.path.exists(path):
            raise RcaError(f"no such checkpoint: `{path}`")
    code = OK
    for path in paths:
        try:
            problems = checkpoints.verify(path, sums)
        except OSError as error:
            problems = [f"cannot be read: {error.strerror}"]
        code = DAMAGED if problems else code
        to_stdout("".join(safe(line) + "\n" for line in (f"{'DAMAGED' if problems else 'ok     '}  {path}", *(f"  {p}" for p in problems))))
    return code
