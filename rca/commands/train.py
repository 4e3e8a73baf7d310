"""`rca train`: the reference trainer, a small real GRPO job."""

from typing import Any

from rca.console import is_terminal, say
from rca.given import OK

HELP = """Train a small policy by GRPO with a controller, SPMD train and reference workers, rollout workers and a MetaServer, all of them real processes.

It learns within a minute on two cores, leaves logs and traces as `rca analyze` wants them, and can be broken on purpose (`rca scenarios`). RUN is a folder that
is made, `runs/<time>` by default: `logs/`, `checkpoints/`, `metrics.jsonl`, `config.json`. A run that ended early, by Ctrl-C or otherwise, is taken up again with
--resume.

\b
Examples:
  rca train
  rca train runs/mine --steps 50 --set weight_sync=disk --set colocated=true
  rca train runs/mine --resume --steps 200
  rca train --settings > mine.toml && rca train --config mine.toml
  rca analyze runs/mine/logs

Exit codes: 0 all steps done, 1 the run failed, 2 wrong usage, 130 interrupted.
"""
FAILED, INTERRUPTED = 1, 130
NEEDED = ("torch", "safetensors", "httpx", "starlette", "uvicorn", "numpy")


def add(cli: Any) -> None:
    """Give the command to the app."""
    from typing import Annotated

    import typer

    Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The folder of the run.", show_default=False)]
    Steps = Annotated[int | None, typer.Option("--steps", metavar="N", help="How many steps, in all.")]
    Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; several times if need be.")]
    File = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings in a TOML or JSON file.")]
    Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint of RUN, with its settings.")]
    Settings = Annotated[bool, typer.Option("--settings", help="Print all settings with what they mean, as a file for --config, and do nothing else.")]

    @cli.command("train", help=HELP)
    def train_command(run: Run = None, steps: Steps = None, set_: Set = None, config: File = None, resume: Resume = False, settings: Settings = False) -> int:
        return train(run, steps, set_ or [], config, resume, settings)


def missing_packages() -> list[str]:
    """What the trainer needs and is not installed."""
    from importlib.util import find_spec

    return [name for name in NEEDED if find_spec(name) is None]


def interrupted(number: int, frame: Any) -> None:
    """A handler for SIGTERM: ends like Ctrl-C, so that everything that was started is ended."""
    raise KeyboardInterrupt


def needs_trainer() -> None:
    """Raise RcaError that says what to install where the trainer's packages are missing."""
    from rca.errors import RcaError

    if missing := missing_packages():
        raise RcaError(f"the trainer needs packages that are not installed: {', '.join(missing)}", hint="pip install 'trainrca[trainer]'")


def train(run: str | None, steps: int | None, changes: list[str], file: str | None, resume: bool, settings: bool) -> int:
    """Run the trainer in the foreground; gives the exit code."""
    import dataclasses
    import json
    import os
    import shlex
    from pathlib import Path

    from rca.errors import RcaError
    from rca.replay_trainer.config import NAME, Config

    if resume and run is None:
        raise RcaError("--resume needs the folder of a run", hint="rca train runs/mine --resume")
    if resume and file is not None:
        raise RcaError("--resume goes on with the settings of the run, not with those of --config", hint="--set NAME=VALUE changes single ones")
    folder = Path(run) if run is not None else _new_folder()
    if resume:
        if not os.path.exists(folder / NAME):
            raise RcaError(f"no run to resume: `{folder}`", hint=f"the folder of a run has a file `{NAME}`")
        values = dataclasses.asdict(Config.read(folder / NAME)) | {"hold_at": ()}
    else:
        if not settings:
            _usable(folder, run)
        values = dataclasses.asdict(Config.read(Path(file))) if file is not None else {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise RcaError(f"--set takes NAME=VALUE: `{change}`")
        values[name] = value
    config = Config.of(values | ({"steps": steps} if steps is not None else {}))
    if settings:
        from rca.report.write import to_stdout

        to_stdout(config.to_toml())
        return OK
    needs_trainer()
    if resume and _done(folder) >= config.steps:
        say(f"nothing to do: all {config.steps} steps are done; --steps N goes on to step N")
        return OK
    try:
        code = _run(folder, config)
    except KeyboardInterrupt:
        say("interrupted; all processes of the run are ended")
        say(f"hint: go on with: rca train {shlex.quote(str(folder))} --resume")
        return INTERRUPTED
    if code == OK:
        say(f"finished; the run is in {folder}")
        return OK
    try:
        told = json.loads((folder / "failed.json").read_text("utf-8"))
        say(f"the run failed in {told['stage']}{'' if told['step'] is None else ', step ' + str(told['step'])}: {told['error'][:300]}")
    except (OSError, ValueError, KeyError):
        say(f"the run failed: the controller is gone, {_gone(folder, code)}")
    say(f"hint: rca analyze {shlex.quote(str(folder / 'logs'))}; or go on with: rca train {shlex.quote(str(folder))} --resume")
    return FAILED


def _done(folder: Any) -> int:
    """The last step of a run that is over."""
    from rca.replay_trainer.progress import Metrics

    return max((row["step"] for row in Metrics(folder).read()), default=0)


def _gone(folder: Any, code: int) -> str:
    """How the controller went that has not said why: a signal, or a folder that it could not write to."""
    import tempfile

    from rca.replay_trainer.launch import ended

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b" ")
    except OSError as error:
        return f"{ended(code)}; {folder} cannot be written: {error.strerror}"
    return ended(code)


def _usable(folder: Any, given: str | None) -> None:
    """Raise RcaError for a folder that a new run cannot have to itself: what a run finds in its folder it may replace."""
    import os

    from rca.errors import RcaError
    from rca.replay_trainer.config import NAME

    if given is not None and not given.strip():
        raise RcaError("the name of the run's folder is empty")
    if os.path.exists(folder / NAME):
        raise RcaError(f"there is a run already: `{folder}`", hint="--resume goes on with it; or name another folder")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise RcaError(f"the run needs a folder, and this is a file: `{folder}`", hint="name another folder")
    try:
        if os.path.isdir(folder) and os.listdir(folder):
            raise RcaError(f"the folder is not empty, and what is in it is no run: `{folder}`", hint="name a folder that is not there yet")
    except OSError as error:
        raise RcaError(f"cannot use the run's folder: {(error.strerror or str(error)).lower()}", where=str(folder)) from error


def _new_folder() -> Any:
    """A folder by the time, of which there is none yet; two runs may start in one second."""
    import os
    import time
    from pathlib import Path

    name = time.strftime("%Y-%m-%d-%H%M%S")
    return next(path for number in range(1, 1000) if not os.path.lexists(path := Path("runs") / (name if number == 1 else f"{name}-{number}")))


def _run(folder: Any, config: Any) -> int:
    """Start the system and wait for its end, showing how far it is. SIGTERM and Ctrl-C end everything that was started."""
    import functools
    import signal
    import sys

    from rca.replay_trainer.launch import System
    from rca.replay_trainer.progress import Bar, Lines, Metrics, starting

    signal.signal(signal.SIGTERM, interrupted)
    references = config.reference_ranks if config.uses_reference else 0
    say(f"run {folder}: {config.steps} steps, {config.train_ranks} train, {config.rollout_ranks} rollout, {references} reference, weights by {config.weight_sync}; starting the workers")
    metrics = Metrics(folder)
    metrics.read()  # of earlier attempts
    waiting = functools.partial(starting, config, folder)
    display = Bar(metrics, config.steps, waiting) if is_terminal(sys.stderr) else Lines(metrics, config.steps, say, waiting)
    with System(folder.resolve(), config) as system, display:
        return system.wait(display)
