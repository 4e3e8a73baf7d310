"""Start the system: train and reference under torchrun, rollout workers, MetaServer, sampler, controller; watch them; end them by pid.

A run is a folder: `config.json`, `logs/` (what `rca analyze` is given: controller.log, rollout-0.log, train/, reference/, trace/ ...), `checkpoints/`, `metrics.jsonl`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay_trainer import recorded
from rca.replay_trainer.config import DATA_ADDRESS, NAME, Config
from rca.replay_trainer.hosts import Here
from rca.replay_trainer.skewed import SKEW
from rca.replay_trainer.tied import LAUNCHER
from rca.replay_trainer.wires import WIRES
from rca.replay_trainer.worker import ROLES

log = logging.getLogger("launcher")
POLL_S = 0.1
GRACE_S = 5.0  # between SIGTERM and SIGKILL
LEAVE_S = 30.0  # of a world that was asked to leave at the end of a run that went well: on a busy machine torchrun takes many seconds
TEMPORARY = ("addresses", "devices", "holds", "wires")  # of one attempt
LOCK = ".lock"
RESERVE_BYTES = 4096  # for `failed.json`: what ended a run must find room on a full disk too
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "NO_COLOR": "1"}


@dataclass
class Program:
    """How the workers' Python is called, where it is not this one."""

    python: list[str] = field(default_factory=lambda: [sys.executable])
    environment: dict[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ("PATH", "HOME", "LANG", "TZ", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "TMPDIR")  # of this process's environment


class System:
    """All processes of one attempt. `run` is the folder, `seen` the path under which the workers see it, `host_of(role, rank)` where each lives."""

    def __init__(
        self, run: Path, config: Config, host_of: Callable[[str, int], Any] | None = None, *, seen: Path | None = None, program: Program | None = None,
        groups: Mapping[tuple[str, int], Any] | None = None, sampled: bool = True, traced: bool = True,
        skews: Mapping[str, float] | None = None, wired: Iterable[str] = (),
        roles: Iterable[str] | None = None, more: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        here = Here()
        self.run, self.config, self.seen = run, config, seen or run
        self.host_of = host_of or (lambda role, rank: here)
        self.program, self.groups, self.sampled, self.traced = program or Program(), groups or {}, sampled, traced
        self.skews = skews or {}  # host -> seconds that its clock is wrong
        self.wired = ",".join(sorted(wired))  # workers that are called through a proxy, as `rollout-1`
        self.roles = frozenset(ROLES if roles is None else roles)  # those that are started
        self.more = more or {}  # environment of all
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._told: set[str] = set()
        self.attempt = 1
        self._log_file: logging.Handler | None = None
        self._lock: Any = None

    # --- start ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; the controller waits for the others by itself. Raises RcaError if the folder cannot be used; nothing is left then."""
        try:
            self._prepare()
            self._begin_all()
        except OSError as error:
            self.stop()
            raise RcaError(f"cannot use the run's folder: {(error.strerror or str(error)).lower()}", where=str(error.filename or self.run)) from error
        except BaseException:
            self.stop()
            raise

    def _begin_all(self) -> None:
        config, roles = self.config, self.roles
        if config.weight_sync == "astate" and "meta_server" in roles:
            self._worker("meta_server", 0)
        if "train" in roles:
            self._world("train", config.train_ranks)
        if config.uses_reference and "reference" in roles:
            self._world("reference", config.reference_ranks)
        for rank in range(config.rollout_ranks if "rollout" in roles else 0):
            self._worker("rollout", rank)
        if self.sampled and self.traced:
            self._samplers()
        if "controller" in roles:
            self._worker("controller", 0)

    def _prepare(self) -> None:
        self.run.mkdir(parents=True, exist_ok=True)
        self._lock = (self.run / LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RcaError("the run is going on: another process has it", where=str(self.run), hint="wait until it ends, or name another folder") from None
        except OSError:  # a file system without locks
            pass
        aside = self.run / f".{NAME}"
        aside.write_text(self.config.to_json())
        aside.replace(self.run / NAME)
        for name in TEMPORARY:
            shutil.rmtree(self.run / name, ignore_errors=True)
            (self.run / name).mkdir()
        (self.run / "failed.json").unlink(missing_ok=True)
        (self.run / ".failed.json").write_bytes(b" " * RESERVE_BYTES)
        (self.run / "logs" / "trace").mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError, ValueError):
            self.attempt = int((self.run / "attempts").read_text()) + 1
        (self.run / "attempts").write_text(str(self.attempt))
        recorded.forget(self.run, self.attempt)
        self._log_file = logging.FileHandler(self.run / "logs" / "launcher.log")
        self._log_file.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(self._log_file)
        log.setLevel(logging.INFO)
        log.propagate = False
        log.info("attempt %d", self.attempt)

    def environment(self, host: Any) -> dict[str, str]:
        """Of every process on a host."""
        kept = {name: os.environ[name] for name in self.program.kept if name in os.environ}
        if "PYTHONPATH" in self.program.kept:
            kept["PYTHONPATH"] = _found_from_anywhere(kept.get("PYTHONPATH", ""))
        trace = {"RCA_TRACE_DIR": str(self.seen / "logs" / "trace")} if self.traced else {"RCA_TRACE_OFF": "1"}
        own = {recorded.ATTEMPT: str(self.attempt), LAUNCHER: str(os.getpid()), DATA_ADDRESS: host.data_address, SKEW: str(self.skews.get(host.name, 0.0)), **({WIRES: self.wired} if self.wired else {})}
        return {**kept, **ENVIRONMENT, **trace, **own, **self.more, **self.program.environment}

    def _worker(self, role: str, rank: int) -> None:
        host = self.host_of(role, rank)
        name = f"{role}-{rank}" if role == "rollout" else role
        argv = [*self.program.python, "-m", *self._module(host, "rca.replay_trainer.worker"), role, "--folder", str(self.seen), "--address", host.address, "--rank", str(rank)]
        self._begin(name, host, argv, self.run / "logs" / f"{name}.log", self.groups.get((role, rank)))

    def _world(self, role: str, ranks: int) -> None:
        """Ranks of an SPMD world under torchrun, each with log files of its own."""
        host = self.host_of(role, 0)
        folder = self.seen / "logs" / role
        (self.run / "logs" / role).mkdir(exist_ok=True)
        argv = [
            *self.program.python, "-m", "rca.replay_trainer.tied", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--redirects=3", f"--log-dir={folder}", "--module",
            *self._module(host, "rca.replay_trainer.worker"), role, "--folder", str(self.seen), "--address", host.address,
        ]  # fmt: skip
        self._begin(role, host, argv, self.run / "logs" / role / "console.log", self.groups.get((role, 0)))

    def _samplers(self) -> None:
        """One on each host."""
        config = self.config
        roles = [("controller", 0), ("train", 0), *([("reference", 0)] if config.uses_reference else []), *(("rollout", rank) for rank in range(config.rollout_ranks))]
        hosts = {host.name: host for host in (self.host_of(*role) for role in roles)}
        for name, host in sorted(hosts.items()):
            argv = [*self.program.python, "-m", "rca.replay_trainer.tied", *self._module(host, "rca"), "sample", "--interval", "1", "-o", str(self.seen / "logs" / "trace")]
            self._begin(f"sampler-{name}", host, argv, self.run / "sampler.log", None)

    def _module(self, host: Any, name: str) -> list[str]:
        return ["rca.replay_trainer.skewed", name] if self.skews.get(host.name) else [name]

    def _begin(self, name: str, host: Any, argv: list[str], log_file: Path, group: Any) -> None:
        self.processes[name] = host.start(argv, env=self.environment(host), log=log_file, within=group, cwd=str(self.seen))
        log.info("started %s on %s, pid %d", name, host.name, self.processes[name].pid)

    # --- watch ------------------------------------------------------------------------------------------------------------

    def pid(self, role: str, rank: int = 0) -> int:
        """The pid of a worker that listens. Raises RcaError if it never came up."""
        if role == "controller":
            return self.processes["controller"].pid
        try:
            return int(json.loads((self.run / "addresses" / f"{role}-{rank}.json").read_text("utf-8"))["pid"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RcaError(f"{role}/{rank} is not up") from error

    def poll(self) -> int | None:
        """The exit code of the controller, or None while it runs. Tells of processes that ended before."""
        for name, process in self.processes.items():
            code = process.poll()
            if code is not None and name not in self._told:
                self._told.add(name)
                (log.info if code == 0 else log.warning)("%s (pid %d) ended: %s", name, process.pid, ended(code))
                with contextlib.suppress(OSError):  # so that whoever waits for it to come up need not
                    (self.run / "addresses" / f"{name}.gone").write_text(ended(code))
        controller = self.processes.get("controller")
        return controller.poll() if controller is not None else None

    def wait(self, tick: Callable[[], Any] = lambda: None) -> int:
        """Until the controller ends; gives its exit code. `tick` is called now and then."""
        while (code := self.poll()) is None:
            tick()
            time.sleep(POLL_S)
        return code

    # --- end --------------------------------------------------------------------------------------------------------------

    def stop(self, kindly: bool = True) -> None:
        """End what still runs, kindly first unless nothing in it is worth waiting for; the groups of what this started are its own."""
        worlds = [self.processes[name] for name in ("train", "reference") if name in self.processes]
        if "controller" in self.processes and self.processes["controller"].poll() == 0:  # it has asked them to stop, and torchrun calls a signal a failure
            self._wait(worlds, LEAVE_S)
        left = [process for process in self.processes.values() if process.poll() is None]
        for process in left if kindly else ():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        if kindly:
            self._wait(left)
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what torchrun started has sessions of its own, and is tied to it
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        self.poll()
        if self._log_file is not None:
            log.removeHandler(self._log_file)
            self._log_file.close()
            self._log_file = None
        if self._lock is not None:
            self._lock.close()

    def _wait(self, processes: list[subprocess.Popen[bytes]], limit_s: float = GRACE_S) -> None:
        end = time.monotonic() + limit_s
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.05)

    def __enter__(self) -> System:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _found_from_anywhere(path: str) -> str:
    """PYTHONPATH for workers, which start in another folder: what is relative becomes absolute, and a checkout that is not installed is found."""
    package = Path(__file__).resolve().parents[2]
    own = [] if package.name in ("site-packages", "dist-packages") else [str(package)]
    return os.pathsep.join(dict.fromkeys([*(os.path.abspath(part) for part in path.split(os.pathsep) if part), *own]))


def ended(code: int) -> str:
    """An exit code of Popen in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
