"""Checkpoints of a run: `<folder>/<kind>/step-000012/` with the model, the optimizer and `state.json`; kind is latest or periodic.

The careful way (`whole`) writes aside, syncs, writes the manifest of `rca.trace_inject`, and renames: a checkpoint that has its name is complete. The other way
writes in place, as many trainers do.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from rca import trace_inject as rt
from rca.replay_trainer.config import Config
from rca.replay_trainer.errors import RecoverError
from rca.replay_trainer.holds import hold
from rca.trace_inject.checkpoints import verify

log = logging.getLogger("checkpoint")
KEPT = {"latest": 2, "periodic": 3}
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


def path_of(config: Config, run: Path, kind: str, step: int) -> Path:
    return config.folder_of(run, kind) / f"step-{step:06d}"


def write(config: Config, run: Path, kind: str, step: int, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
    """Write one checkpoint and give its path; with no optimizer it has only weights, and nothing recovers from it. Raises OSError, which names the file."""
    whole = config.whole_checkpoints
    target = path_of(config, run, kind, step)
    into = target.with_name(target.name + ".partial") if whole else target
    if whole:
        shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True, exist_ok=True)
    with rt.saving(into, step=step, kind=kind):
        _write(into / MODEL, safetensors.torch.save(dict(weights), {"step": str(step)}))
        hold(config, run, f"{kind}_save_begun@{step}")
        if optimizer:
            _write(into / OPTIMIZER, safetensors.torch.save(dict(optimizer)))
            _write(into / STATE, json.dumps({"step": step, **state}, indent=1).encode())
    if whole:
        if problems := verify(into):
            _write(into / ".probe", b" " * 4096)  # raises what the disk says, if the disk is why
            raise OSError(errno.EIO, f"no complete manifest could be written: {'; '.join(problems[:3])}", str(into))
        _take_place(into, target)
        _sync_folder(target.parent)
        _prune(target.parent, KEPT[kind], step)
    log.info("%s checkpoint of step %d saved: %s", kind, step, target)
    return target


def _write(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # of a write or a sync it does not name the file


def _take_place(into: Path, target: Path) -> None:
    """Give a folder its name. One that has the name already is exchanged in one step, so that at no moment there is none."""
    if target.exists() and _exchange(into, target):
        shutil.rmtree(into, ignore_errors=True)
        return
    shutil.rmtree(target, ignore_errors=True)
    into.rename(target)


def _exchange(one: Path, other: Path) -> bool:
    """renameat2(2) with RENAME_EXCHANGE; False where the system or the file system has no such call."""
    try:
        return ctypes.CDLL(None).renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0
    except AttributeError:
        return False


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _steps(folder: Path) -> list[tuple[int, Path]]:
    """Checkpoints in a folder, newest first."""
    found = [(int(path.name[5:]), path) for path in folder.glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, reverse=True)


def _prune(folder: Path, keep: int, step: int) -> None:
    """Of those up to a step, keep the newest that a run can recover from, and as many that have only weights: those must not drive out these.

    Later ones are of an attempt before a recovery: they must not drive out what is saved now.
    """
    there = [path for number, path in _steps(folder) if number <= step]
    complete = [path for path in there if (path / STATE).exists()]
    for path in [*complete[keep:], *[path for path in there if path not in complete][keep:]]:
        shutil.rmtree(path, ignore_errors=True)


def find(config: Config, run: Path, kind: str) -> Path | None:
    """The newest checkpoint of a kind, or None. With `whole_checkpoints`, the newest that is what was written; others are logged and passed over."""
    for _, path in _steps(config.folder_of(run, kind)):
        if not config.whole_checkpoints:
            return path
        if not (path / STATE).exists():
            log.info("checkpoint %s has only weights", path)
            continue
        problems = _problems(path)
        if not problems:
            return path
        log.warning("checkpoint %s is passed over: %s", path, "; ".join(problems[:3]))
    return None


def _problems(path: Path) -> list[str]:
    """Why a checkpoint cannot be loaded: it lacks a file, or is not what its manifest says."""
    try:
        return [f"{name} is not there" for name in (MODEL, OPTIMIZER, STATE) if not (path / name).exists()] or verify(path)
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]


def find_any(config: Config, run: Path) -> Path | None:
    """The newest checkpoint of the kind to recover from; where there is none, of the other kind."""
    kinds = [config.recover_from, *({"latest", "periodic"} - {config.recover_from})]
    return next((path for kind in kinds if (path := find(config, run, kind)) is not None), None)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint. Raises ValueError for a damaged file, OSError."""
    return _load(path / MODEL)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """Weights, optimizer, state. Raises RecoverError, which names the file."""
    rt.checkpoint_loaded(path)
    try:
        data = (path / STATE).read_bytes()
        rt.recorded_file(path / STATE, data)
        state = json.loads(data)
        return _load(path / MODEL), _load(path / OPTIMIZER), state
    except (OSError, ValueError) as error:
        raise RecoverError(f"Failed to load checkpoint: Corrupted file: {error} ({path})") from error


def _load(path: Path) -> dict[str, Tensor]:
    data = path.read_bytes()  # not mapped: a file that is cut while it is read must not kill the process
    rt.recorded_file(path, data)
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error
