"""Play a scenario for real: hosts, storage and system are started, faults are made at their points, and what is left is logs, a recording and the truth.

    OUT/logs/         what `rca analyze` is given
    OUT/recording/    settings, metrics and the requests of the run
    OUT/truth.json    what really broke, in the form of labelled cases
"""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rca
from rca.errors import RcaError
from rca.replay_trainer import faults, holds, kernel_log, recorded
from rca.replay_trainer.config import Config
from rca.replay_trainer.control_groups import ControlGroup, parents
from rca.replay_trainer.hosts import Cluster, Here, lacking
from rca.replay_trainer.launch import Program, System
from rca.replay_trainer.scenario import NAME as SCENARIO
from rca.replay_trainer.scenario import Act, Scenario
from rca.replay_trainer.storage import Storage

RUN = "/srv/run"  # as the hosts see it
NAMESPACES = ("network namespaces", "mount namespaces")
DECOY = "decoy"
SILENT = ("healthy", "inconclusive")  # what may be said of logs that hold nothing of the cause: `finishes` in [truth]
GROUPED = ("meta_server", "rollout", "train", "reference")


class NotMade(Exception):
    """The fault did not come about as planned, so the logs prove nothing."""


def cannot(scenario: Scenario) -> str | None:
    """Why a scenario cannot be played on this machine, or None."""
    needs = [need for act in scenario.acts for need in faults.load(act.fault).NEEDS]
    several = len(set(scenario.hosts.values())) > 1
    return lacking([*(NAMESPACES if several or scenario.storage else ()), *needs])


def play(scenario: Scenario, out: Path, say: Callable[[str], Any] = lambda text: None) -> dict[str, Any]:
    """Play one scenario into a folder, which is there whole or as it was before; gives the truth. Raises NotMade, RcaError."""
    if (out.exists() or out.is_symlink()) and (not (out / "truth.json").exists() or (out / SCENARIO).exists()):
        raise RcaError(f"will not replace what is no played scenario: `{out}`", hint="choose another folder with `-o`")
    with tempfile.TemporaryDirectory(prefix="rca-play-") as scratch:
        run = Path(scratch) / "run"
        (run / "logs").mkdir(parents=True)
        truth = _Play(scenario, run, say).play()
        try:
            _keep(run, truth, out)
        except OSError as error:
            raise RcaError(f"cannot write what was played: {(error.strerror or str(error)).lower()}", where=str(error.filename or out)) from error
    return truth


def _keep(run: Path, truth: dict[str, Any], out: Path) -> None:
    aside = out.with_name(f".{out.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    (aside / "recording").mkdir(parents=True)
    shutil.move(run / "logs", aside / "logs")
    if (run / recorded.FOLDER).is_dir():
        for path in sorted((run / recorded.FOLDER).iterdir()):
            shutil.move(path, aside / "recording" / path.name)
    for name in ("config.json", "metrics.jsonl", "failed.json"):
        if (run / name).exists():
            shutil.copy(run / name, aside / "recording")
    (aside / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    aside.rename(out)


class _Play:
    """The scene of one run, as the faults see it."""

    def __init__(self, scenario: Scenario, run: Path, say: Callable[[str], Any]) -> None:
        self.scenario, self.run, self.logs, self.say = scenario, run, run / "logs", say
        self.facts: dict[str, Any] = {}  # of the run
        self.made: list[dict[str, Any]] = []  # of each fault, in order
        self.storage: Storage | None = None
        self.system: System | None = None
        self._hosts: dict[str, Any] = {}
        self._groups: dict[tuple[str, int], ControlGroup] = {}
        self._undo: list[tuple[str | None, Callable[[], None]]] = []
        self._words: dict[str, set[str | int]] = {}  # by which a host's kernel lines are known

    # --- what a fault may ask ---------------------------------------------------------------------------------------------

    def host(self, role: str, rank: int) -> Any:
        return self._hosts[self.scenario.host_of(role, rank)]

    def pid(self, role: str, rank: int) -> int:
        assert self.system is not None
        return self.system.pid(role, rank)

    def group(self, role: str, rank: int) -> ControlGroup:
        """The control group of a worker; of a world under torchrun that of all its ranks."""
        key = (role, rank if role == "rollout" else 0)
        if key not in self._groups:
            raise RcaError("this machine does not let us make control groups")
        return self._groups[key]

    def device(self, role: str, rank: int) -> Path:
        from rca.replay_trainer.train import device_folder

        assert self.system is not None
        return device_folder(self.system.config, self.run, role, rank)

    def remember(self, **facts: Any) -> None:
        """Of the fault that is being made."""
        self.made[-1].update(facts)

    # --- the play ---------------------------------------------------------------------------------------------------------

    def play(self) -> dict[str, Any]:
        mark = None if lacking(["kernel log"]) else kernel_log.mark()
        with self._stage():
            codes = []
            for number, over in enumerate(({}, *self.scenario.attempts)):
                codes.append(self._attempt(number, over))
            if mark is not None:
                self._keep_kernel_lines(mark)
        return self._truth(codes)

    @contextlib.contextmanager
    def _stage(self) -> Iterator[None]:
        """Hosts and storage while it is played."""
        with contextlib.ExitStack() as stack:
            names = sorted(set(self.scenario.hosts.values()))
            if lacking(NAMESPACES):
                self._hosts = dict.fromkeys(names, Here())
                self.program, self.seen = Program(), self.run
            else:
                if self.scenario.storage:
                    self.storage = Storage(**self.scenario.storage)
                binds, self.program = _neutral()
                cluster = stack.enter_context(Cluster(names, {**binds, self.run: RUN}, self.storage))
                self._hosts = {name: cluster[name] for name in names}
                self.seen = Path(RUN)
            if parents():
                config = Config.of(self.scenario.settings)
                for role in (role for role in GROUPED if role in {key.split("/")[0] for key in self.scenario.hosts}):
                    for rank in range(config.rollout_ranks if role == "rollout" else 1):
                        group = ControlGroup(f"{role.replace('_', '-')}-{rank}")
                        stack.callback(group.remove)
                        self._groups[role, rank] = group
                        self._words.setdefault(self.scenario.host_of(role, rank), set()).add(group.name)
            yield

    def _attempt(self, number: int, over: Any) -> int | None:
        """One attempt with its faults; the first makes all of them. Gives the controller's exit code."""
        scenario = self.scenario
        acts = scenario.acts if number == 0 else ()
        points = list(dict.fromkeys(point for act in acts for point in (act.at, act.undo_at) if point))
        config = Config.of({**scenario.settings, **over, "hold_at": points})
        traced, sampled = scenario.telemetry != "no traces", scenario.telemetry == "all"
        skews = dict(scenario.skew_s)
        self.system = System(self.run, config, self.host, seen=self.seen, program=self.program, groups=self._groups, sampled=sampled, traced=traced, skews=skews, wired={f"{act.role}-{act.rank}" for act in acts if act.fault == "wire"})
        ended = time.monotonic() + scenario.limit_s
        try:
            with self.system as system:
                for point in points:
                    if not holds.until(self.run, point, ended - time.monotonic(), lambda: system.poll() is None):
                        raise NotMade(f"the run never came to {point}; the controller has exit code {system.poll()}")
                    for act in acts:
                        if act.at == point:
                            self._make(act)
                    self._take_back(point)
                    holds.release(self.run, point)
                while system.poll() is None:
                    if time.monotonic() > ended:
                        raise NotMade(f"the run still goes on after {scenario.limit_s:g} s")
                    time.sleep(0.1)
                self._know_pids()
                return system.poll()
        finally:
            self._take_back(None)

    def _make(self, act: Act) -> None:
        self.say(f"{act.fault} at {act.at}, {act.role}/{act.rank}")
        self._know_pids()
        self.made.append({"fault": act.fault, "at": act.at, "role": act.role, "rank": act.rank})
        undo = faults.load(act.fault).make(self, role=act.role, rank=act.rank, **act.how)
        if undo is not None:
            self._undo.append((act.undo_at, undo))

    def _take_back(self, point: str | None) -> None:
        """Undo what ends at a point; at the end (None), everything, the last first."""
        for at, undo in reversed(self._undo):
            if point is None or at == point:
                try:
                    undo()
                except (OSError, RcaError) as error:  # the others are undone all the same
                    self.say(f"could not be undone: {error}")
        self._undo = [] if point is None else [(at, undo) for at, undo in self._undo if at != point]

    def _know_pids(self) -> None:
        assert self.system is not None
        for role, ranks in (("train", self.system.config.train_ranks), ("reference", self.system.config.reference_ranks), ("rollout", self.system.config.rollout_ranks), ("meta_server", 1)):
            for rank in range(ranks):
                with contextlib.suppress(RcaError, KeyError):
                    self._words.setdefault(self.scenario.host_of(role, rank), set()).add(self.pid(role, rank))

    def _keep_kernel_lines(self, mark: int) -> None:
        """Each host's kernel log: what the kernel said of its processes, groups and of the storage; what a fault wrote stays in order with it."""
        lines = kernel_log.since(mark)
        storage = {self.storage.device} if self.storage is not None and self.storage.device else set()
        for name in sorted(set(self.scenario.hosts.values())):
            file = self.logs / "hosts" / name / "dmesg.log"
            kept = file.read_text("utf-8").splitlines() if file.exists() else []
            real = [line.replace(platform.release(), "linux") for line in kernel_log.about(lines, [*self._words.get(name, ()), *storage])]  # which kernel played it is nobody's business
            if real or kept:
                file.parent.mkdir(parents=True, exist_ok=True)
                skew_s = self.scenario.skew_s.get(name, 0.0)
                file.write_text("".join(f"{_later(line, skew_s)}\n" for line in sorted([*kept, *real], key=lambda line: line[:32])))

    def _truth(self, codes: list[int | None]) -> dict[str, Any]:
        scenario = self.scenario
        truth = dict(scenario.truth)
        finishes = truth.get("finishes", truth.get("verdict_expected", "failed") == "healthy")
        if (codes[-1] == 0) != finishes:
            raise NotMade(f"the controller ended with exit code {codes[-1]}")
        with contextlib.suppress(OSError, ValueError, KeyError):
            failed = json.loads((self.run / "failed.json").read_text("utf-8"))
            self.facts["failed"] = failed
            for key in ("cause_step", "symptom_step"):
                if truth.get(key) == "failed":
                    truth[key] = failed["step"]
        if truth.get("finishes"):
            truth["verdict_accept"] = list(SILENT)
        elif scenario.telemetry != "all":
            truth["verdict_accept"] = sorted({truth.get("verdict_expected", "failed"), *truth.get("without_telemetry", [])})
        truth.pop("without_telemetry", None)
        cause = next((fact for fact in self.made if fact["fault"] != DECOY), {})  # the first that is no decoy: what others follow from
        when = {"fault_time_utc": cause["fault_time_utc"]} if "fault_time_utc" in cause else {}
        decoys = [f"decoy: {fact['decoy']}" for fact in self.made if fact["fault"] == DECOY and fact.get("decoy") != "link_flap"]
        return {
            "id": scenario.name, "verdict_expected": "failed", **truth, **when, "made": self.made, **self.facts, "origin": "replay", "telemetry": scenario.telemetry, "device": _device(),
            "values": dict(scenario.values), "synthetic": [*scenario.synthetic, *decoys, *([f"clock of {host} {skew:+g} s" for host, skew in scenario.skew_s.items()])],
        }  # fmt: skip


def _device() -> str:
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "stand-in"


def _later(line: str, skew_s: float) -> str:
    """A kernel line by a clock that is wrong by so much, as those of the programs on that host are."""
    stamp, space, text = line.partition(" ")
    try:
        return f"{(datetime.datetime.fromisoformat(stamp.replace(',', '.')) + datetime.timedelta(seconds=skew_s)).isoformat(timespec='microseconds').replace('.', ',')}{space}{text}" if skew_s else line
    except ValueError:
        return line


def _neutral() -> tuple[dict[Path, str], Program]:
    """Python, its packages and this package at paths that tell nothing of this machine."""
    library = Path(sysconfig.get_paths()["purelib"])
    package = Path(rca.__file__).resolve().parent
    binds = {Path(sys.base_prefix): "/opt/python", library: "/opt/lib", package: "/opt/src/rca"}
    python = f"/opt/python/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    environment = {"PATH": "/opt/python/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONPATH": "/opt/src:/opt/lib"}
    return binds, Program([python], environment, ())
