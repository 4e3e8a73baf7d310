"""Fresh workers of the reference trainer in a folder of their own, and no controller: who holds the bed calls them.

Each request gets the recorded state of its process first, so that no replay depends on another. Other workers are made to let go of the devices, which is
environment. Workers that hang or die are replaced by new ones before the next gang.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay.answer import DIED, GIVEN_UP, HUNG, Answer, timed_out
from rca.replay.gangs import inseparable
from rca.replay_trainer import checkpoints
from rca.replay_trainer.again import REPLAYED, RNG, flat, grouped
from rca.replay_trainer.config import Config
from rca.replay_trainer.errors import CallError
from rca.replay_trainer.launch import System
from rca.replay_trainer.rpc import Caller, Worker, begin, find

PATIENCE_S = 120.0  # for one request; those that hung in the recording would hang for ever
AFTER_ERROR_S = 5.0  # the rest of a gang waits for whoever failed
STREAMED = {"compute_logprobs"}
STATUS, REFUSED = "Status code: 500, ", "Status code: "


@dataclass
class Part:
    """One request to be played: what it is given, and the state that its worker has before."""

    role: str
    rank: int
    method: str
    values: Mapping[str, Any]
    state: Mapping[str, Any] = field(default_factory=dict)  # groups
    rng: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[tuple[Path, bytes]] = ()  # below the folder of the bed: what it reads
    waits_for: Sequence[int] = ()  # others of the gang, by their place in it


class Bed:
    """A context: workers from its start to its end, in a temporary folder."""

    def __init__(self, config: Config, roles: Iterable[str], say: Callable[[str], Any] = lambda text: None, patience_s: float = PATIENCE_S, slots: Mapping[str, int] | None = None) -> None:
        self.config = of_bed(config, patience_s)
        self.roles, self.say, self.patience_s, self.slots = frozenset(roles), say, patience_s, dict(slots or {})
        self.run = Path()
        self.prepared: Callable[[Bed], Any] = lambda bed: None  # after each start of the workers: faults are made here
        self.system: System | None = None
        self.caller: Caller | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    # --- start and end ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Bed:
        self._folder = tempfile.TemporaryDirectory(prefix="rca-replay-", ignore_cleanup_errors=True)
        self.run = Path(self._folder.name) / "run"
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        try:
            self._start_all()
        except BaseException:  # those that have started must not be left
            self._stop()
            raise

    def _start_all(self) -> None:
        config = self.config
        self.system = System(self.run, config, sampled=False, traced=False, roles=self.roles, more={REPLAYED: "1", **self._slots()})
        self.system.start()
        workers: dict[str, list[Worker]] = {}
        try:
            for role, ranks in (("train", config.train_ranks), ("reference", config.reference_ranks if config.uses_reference else 0), ("rollout", config.rollout_ranks)):
                if role in self.roles and ranks:
                    workers[role] = self._found(role, ranks)
            if "meta_server" in self.roles and config.weight_sync == "astate":
                self._found("meta_server", 1)
        except RuntimeError as error:
            raise RcaError(f"the workers of the replay did not start: {error}", where=str(self.run), hint="RCA_DEBUG=1 shows more") from error
        self.caller = Caller(dataclasses.replace(config, whole_batches=True), workers)
        self.prepared(self)

    def _found(self, role: str, ranks: int) -> list[Worker]:
        assert self.system is not None
        end = time.monotonic() + self.config.start_timeout_s
        while True:  # poll, so that one that ends at its start is seen
            self.system.poll()
            try:
                return find(self.run, role, ranks, 1.0)
            except RuntimeError:
                gone = any((self.run / "addresses").glob("*.gone"))
                if gone or time.monotonic() > end:
                    raise

    def _slots(self) -> dict[str, str]:
        from rca.replay_trainer.train import SLOTS

        return {SLOTS: ",".join(f"{name}={slot}" for name, slot in sorted(self.slots.items()))} if self.slots else {}

    def close_workers(self) -> None:
        """End the workers; the next gang starts others."""
        self._stop()

    def _stop(self) -> None:
        if self.caller is not None:
            self.caller.close()
        if self.system is not None:
            self.system.stop(kindly=False)
        self.caller = self.system = None

    def renew(self) -> None:
        """Other workers in place of these, and no files of theirs."""
        self._forget_files()
        self._stop()
        self._start()

    # --- play -------------------------------------------------------------------------------------------------------------

    def play(self, gang: Sequence[Part], keep_files: bool = False) -> list[Answer]:
        """All requests of a gang, each in the state that it had; what others wrote is removed before. Raises RcaError where a worker cannot be put into that state."""
        if self.caller is None:
            self._start()
        assert self.caller is not None
        if not keep_files:
            self._forget_files()
        self.restore({(part.role, part.rank): {**part.state, RNG: part.rng} for part in gang})
        for part in gang:
            for path, data in part.files:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
                except (OSError, ValueError) as error:
                    raise RcaError(f"a file that it read cannot be put there again: {error}", where=str(path)) from error
        answers = self._answers(gang)
        if any(answer.outcome == "unfinished" or (answer.outcome == "error" and inseparable(gang, self.config)) for answer in answers):
            self._stop()  # what hangs in a collective, or lost a peer of its world, is of no further use; the next gang starts others
        return answers

    def restore(self, states: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
        """Put workers into states, groups by role and rank; all others let go of their devices. Raises RcaError for a state that does not fit."""
        assert self.caller is not None
        try:
            for workers in self.caller.workers.values():  # first all let go, then some take what they had
                for worker in workers:
                    self._call(worker, "restore", {"held": 0})
            for (role, rank), state in states.items():
                self._call(self._worker(role, rank), "restore", flat(state))
        except CallError as error:
            raise RcaError(f"the recorded state cannot be restored: {error}", hint="was it recorded by the same version, with the same settings?") from error

    def _worker(self, role: str, rank: int) -> Worker:
        assert self.caller is not None
        found = [worker for worker in self.caller.workers.get(role, ()) if worker.rank == rank]
        if not found:
            raise RcaError(f"the replay has no worker {role}/{rank}")
        return found[0]

    def _call(self, worker: Worker, method: str, values: Mapping[str, Any]) -> dict[str, Any]:
        assert self.caller is not None
        return self.caller.plain(worker, method, values, self.patience_s, method in STREAMED)

    def _answers(self, gang: Sequence[Part]) -> list[Answer]:
        futures: dict[int, Future[dict[str, Any]]] = {}
        ends: dict[int, float] = {}
        answers: dict[int, Answer] = {}
        limit = time.monotonic() + self.patience_s
        together = inseparable(gang, self.config)
        while len(answers) < len(gang):
            for number, part in enumerate(gang):
                if number not in futures and all(other in answers for other in part.waits_for):
                    futures[number] = begin(self._call, self._worker(part.role, part.rank), part.method, part.values)
            for number, future in futures.items():
                if number not in answers and future.done():
                    answers[number] = self._answer(gang[number], future)
                    ends[number] = time.monotonic()
            failed = [ends[number] for number, answer in answers.items() if answer.outcome != "ok" and together]
            now = time.monotonic()
            if now > (min(failed) + AFTER_ERROR_S if failed else limit):
                how = GIVEN_UP if failed else HUNG
                answers |= {number: Answer("unfinished", error="no answer", how=how) for number in range(len(gang)) if number not in answers}
            elif len(answers) < len(gang):
                waiting = [future for number, future in futures.items() if number not in answers]
                with contextlib.suppress(NotYet, Exception):
                    waiting[0].exception(0.01) if waiting else time.sleep(0.01)
        return [answers[number] for number in range(len(gang))]

    def _answer(self, part: Part, future: Future[dict[str, Any]]) -> Answer:
        try:
            values = future.result()
        except CallError as error:
            text = str(error)
            if text.startswith(STATUS):
                return Answer("error", error=text.removeprefix(STATUS))
            return Answer("unfinished", error=text, how=None if text.startswith(REFUSED) else HUNG if timed_out(text) else DIED)
        try:
            after = grouped(self._call(self._worker(part.role, part.rank), "state", {}))
        except CallError as error:
            return Answer("unfinished", error=str(error))
        return Answer("ok", values, after=after)

    def _forget_files(self) -> None:
        """Of earlier gangs."""
        for kind in checkpoints.KEPT:
            shutil.rmtree(self.config.folder_of(self.run, kind), ignore_errors=True)


def of_bed(config: Config, patience_s: float) -> Config:
    """The settings of a run as a replay has them: everything in its own folder, no faults, and patience enough for a slow machine."""
    more = {name: max(getattr(config, name), patience_s) for name in ("rpc_timeout_s", "event_timeout_s", "weights_timeout_s", "save_timeout_s", "collective_timeout_s")}
    recorded = {"record": False} if hasattr(config, "record") else {}
    return dataclasses.replace(config, checkpoints="checkpoints", periodic_checkpoints="periodic-checkpoints" if config.periodic_checkpoints else "", hold_at=(), start_timeout_s=180.0, **more, **recorded)
