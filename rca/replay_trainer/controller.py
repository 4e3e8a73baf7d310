"""The loop: one step after the other, each its stages in order, each stage a call to all workers of a role. [B, ...] samples of the step.

What a cautious system does at an error and what many do is chosen by `whole_batches`, `whole_checkpoints` and `confirmed_events`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rca import trace_inject as rt
from rca.replay_trainer import batch, checkpoints, data, grpo
from rca.replay_trainer.config import METRICS, Config
from rca.replay_trainer.errors import FrameworkError, InferenceEngineError, SchedulerError, TrainerError
from rca.replay_trainer.holds import hold
from rca.replay_trainer.rpc import Caller, Worker, find, wait_future_ordered

log = logging.getLogger("controller")
ERROR_MAX = 600  # characters


def main(config: Config, run: Path) -> int:
    """Run the steps that are left; gives the exit code."""
    log.info("configuration: %s", " ".join(replace(config, hold_at=()).to_json().split()))
    caller = loop = None
    try:
        caller = Caller(config, _workers(config, run))
        loop = Loop(config, run, caller)
        done = loop.recover()
        for step in range(done + 1, config.steps + 1):
            loop.step(step)
        log.info("training finished after step %d", config.steps)
    except Exception as error:
        log.exception("training failed: %s: %s", type(error).__name__, error)
        stage, step = loop.at if loop is not None else ("init", None)
        _tell(run, error, stage, step)
        _stop_all(config, caller)
        return 1
    try:
        _stop_all(config, caller)
    except SchedulerError as error:
        _tell(run, error, "cleanup", None)
        raise
    return 0


def _workers(config: Config, run: Path) -> dict[str, list[Worker]]:
    """Everybody who takes part, once they listen."""
    with rt.stage("init"):
        roles = {"train": config.train_ranks, "rollout": config.rollout_ranks} | ({"reference": config.reference_ranks} if config.uses_reference else {})
        workers = {role: find(run, role, ranks, config.start_timeout_s) for role, ranks in roles.items()}
        if config.weight_sync == "astate":
            find(run, "meta_server", 1, config.start_timeout_s)
        for worker in (worker for role in workers.values() for worker in role):
            log.info("%s is at %s", worker.name, worker.url)
        return workers


def _stop_all(config: Config, caller: Caller | None) -> None:
    """Ask every worker to stop. Raises SchedulerError if one does not answer: what computes in a hanging collective cannot."""
    if caller is None:
        return
    with rt.stage("cleanup"):
        log.info("scheduler begin cleanup resource")
        failed = caller.stop_all(config.stop_timeout_s)
        caller.close()
        if failed:
            raise SchedulerError(f"Failed to stop job: {failed}") from failed


def _tell(run: Path, error: BaseException, stage: str, step: int | None) -> None:
    """Leave `failed.json`: what ended the run, at which stage of which step. The launcher has reserved its space, so that a full disk can be told of."""
    text = json.dumps({"error": f"{type(error).__name__}: {error}"[:ERROR_MAX], "step": step, "stage": stage}) + "\n"
    reserved = run / ".failed.json"
    try:
        with reserved.open("r+b" if reserved.exists() else "wb") as file:
            file.write(text.encode("ascii"))
            file.truncate()
        reserved.replace(run / "failed.json")
    except OSError as lost:
        log.error("cannot write failed.json: %s", lost)


class Loop:
    def __init__(self, config: Config, run: Path, caller: Caller) -> None:
        self.config, self.run, self.caller = config, run, caller
        self.at: tuple[str, int | None] = ("init", None)
        self.seconds: dict[str, float] = {}

    # --- before the first step --------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Load the newest checkpoint, if there is one, into all train ranks; gives the last step that is done."""
        config = self.config
        with self._stage("recover", None):
            path = checkpoints.find_any(config, self.run)
            if path is not None:
                log.info("recovering from %s", path)
            loaded = wait_future_ordered(self.caller.call_all("train", "load", {"path": str(path) if path else None}, config.rpc_timeout_s))
            if len({answer["digest"] for answer in loaded}) > 1:
                raise FrameworkError(f"train ranks do not agree on the weights: {[answer['digest'] for answer in loaded]}")
        self._forget_after(int(loaded[0]["step"]))
        with self._stage("load", None):
            for role in ("reference", "rollout"):
                if role in self.caller.workers:
                    wait_future_ordered(self.caller.call_all(role, "load", {}, config.rpc_timeout_s))
        return int(loaded[0]["step"])

    def _forget_after(self, done: int) -> None:
        """Take the rows of steps that are done again, and half a line, from the metrics of earlier attempts."""
        file = self.run / METRICS
        if not file.exists():
            return
        kept = []
        for line in file.read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if json.loads(line)["step"] <= done:
                    kept.append(line + b"\n")
        aside = file.with_name(f".{METRICS}")
        aside.write_bytes(b"".join(kept))
        aside.replace(file)

    # --- one step ---------------------------------------------------------------------------------------------------------

    def step(self, step: int) -> None:
        """All stages of one step."""
        began = time.monotonic()
        self.seconds = {}
        with rt.step(step):
            self._weights_update(step)
            samples = self._rollout(step)
            reference = self._reference(step, samples) if self.config.uses_reference else None
            stats = self._train(step, samples, reference)
            for kind, every in (("latest", self.config.latest_every), ("periodic", self.config.periodic_every)):
                if step % every == 0 or step == self.config.steps:
                    self._save(step, kind)
        told = {"step": step, "reward": float(samples["rewards"].mean()), **stats, "seconds": round(time.monotonic() - began, 3), "stages": self.seconds}
        with (self.run / METRICS).open("a") as file:
            file.write(json.dumps(told) + "\n")
        log.info("step %d done: reward %.3f, loss %.5f, %.2f s", step, told["reward"], told["loss"], told["seconds"])

    def _weights_update(self, step: int) -> None:
        """Weights of version `step - 1` from train to rollout. Both sides work at once; by disk one reads what the other has left."""
        patience = self.config.weights_timeout_s + 5
        body = {"version": step - 1, "step": step}
        with self._stage("weights_update", step):
            sent = self.caller.call_all("train", "upload_weights", body, patience)
            if self.config.weight_sync == "disk":
                wait_future_ordered(sent)
            taken = self.caller.call_all("rollout", "update_weights", body, patience)
            uploaded, updated = wait_future_ordered(sent, False), wait_future_ordered(taken, False)
            for future in (*sent, *taken):
                future.result()  # raises the first error, now that both sides' are in the log
            digests = {answer["digest"] for answer in (*uploaded, *updated)}
            if len(digests) > 1:
                raise InferenceEngineError(f"UpdateWeightError: weights differ after the update: {sorted(digests)}")

    def _rollout(self, step: int) -> dict[str, torch.Tensor]:
        """Samples for the step's prompts, [B, ...]; of the workers that answered."""
        config = self.config
        prompts = data.prompts(config, self.run, step)  # [P, L]
        shares = batch.split({"prompts": prompts}, config.rollout_ranks)
        if config.colocated:
            self._notify("rollout_start", "rollout", "train", step)
        with self._stage("rollout", step):
            futures = self.caller.call_all("rollout", "generate", [{**share, "step": step} for share in shares], config.rpc_timeout_s)
            parts = wait_future_ordered(futures, exit_on_exception=config.whole_batches)
            for rank, part in enumerate(parts):
                if part is not None:
                    rt.handoff("rollout_batch", part["answers"], key=f"rollout_batch-{rank}-{step}", received=True, rows=len(part["answers"]))
                    part["prompts"] = shares[rank]["prompts"].repeat_interleave(config.group, 0)  # [b, L]
            if not any(parts):
                raise InferenceEngineError("RolloutError: no rollout worker answered")
            samples = batch.merge(parts)
            if None in parts:
                log.warning("going on with %d of %d samples", len(samples["rewards"]), config.rows)
            log.info("rollout batch reward summary: mean %.4f, samples %d", samples["rewards"].mean(), len(samples["rewards"]))
            return samples

    def _reference(self, step: int, samples: dict[str, torch.Tensor]) -> torch.Tensor:
        """Log-probabilities of the samples under the reference policy, [B, N]."""
        with self._stage("reference", step):
            shares = batch.split({name: samples[name] for name in ("prompts", "answers")}, self.config.reference_ranks)
            futures = self.caller.call_all("reference", "compute_logprobs", [{**share, "step": step} for share in shares], self.config.rpc_timeout_s, streamed=True)
            parts = wait_future_ordered(futures)
            for rank, part in enumerate(parts):
                rt.handoff("reference_logprobs", part["reference_logprobs"], key=f"reference_logprobs-{rank}-{step}", received=True, rows=len(part["reference_logprobs"]))
            return batch.merge(parts)["reference_logprobs"]

    def _train(self, step: int, samples: dict[str, torch.Tensor], reference: torch.Tensor | None) -> dict[str, float]:
        """Optimizer steps on all train ranks; gives the mean of their statistics."""
        config = self.config
        if config.colocated:
            self._notify("train_start", "train", "rollout", step)
        with self._stage("train", step):
            prompt_of = torch.arange(config.prompts).repeat_interleave(config.group)  # [B] of the whole step
            whole = batch.attach(samples, prompt_of=prompt_of)
            whole["advantages"] = grpo.advantages(whole["rewards"], config.group)  # [B]
            names = ("prompts", "answers", "logprobs", "advantages")
            shares = batch.split({**{name: whole[name] for name in names}, **({"reference_logprobs": reference} if reference is not None else {})}, config.train_ranks)
            for rank, share in enumerate(shares):
                rt.handoff("train_batch", share["answers"], key=f"train_batch-{rank}-{step}", to=f"train/{rank}")
            answers = wait_future_ordered(self.caller.call_all("train", "train_batch", [{**share, "step": step} for share in shares], config.rpc_timeout_s))
            if len({answer["digest"] for answer in answers}) > 1:
                raise FrameworkError(f"train ranks do not agree on the weights after step {step}: {[answer['digest'] for answer in answers]}")
            return {name: sum(float(answer["stats"][name]) for answer in answers) / len(answers) for name in answers[0]["stats"]}

    def _save(self, step: int, kind: str) -> None:
        """A checkpoint. Where `whole_checkpoints` is off, a save that fails is a warning."""
        with self._stage(f"{kind}_recover_save", step):
            futures = self.caller.call_all("train", "save", {"kind": kind, "step": step}, self.config.save_timeout_s)
            try:
                wait_future_ordered(futures)
            except TrainerError as error:
                if self.config.whole_checkpoints:
                    raise
                log.warning("%s checkpoint of step %d was not saved, going on: %s", kind, step, error)

    # --- what all stages share --------------------------------------------------------------------------------------------

    def _notify(self, name: str, stage: str, role: str, step: int) -> None:
        """Tell the workers of a role that the device changes hands, and wait until each has confirmed it."""
        workers = {worker.name: worker for worker in self.caller.workers[role]}
        with self._stage(stage, step, timed=False):
            hold(self.config, self.run, f"{name}@{step}")
            number = rt.emit_event(name, receivers=list(workers))
            log.info("start to notify_%s_event, step: %d", name, step)
            left = rt.deliver(number, lambda receiver: self._tell(workers[receiver], name, number, step), list(workers), tries=1)
            for receiver in left:
                log.warning("event %s was not confirmed by %s", name, receiver)
            if left and self.config.confirmed_events:
                raise FrameworkError(f"event {name} was not confirmed by {', '.join(left)}")

    def _tell(self, worker: Worker, name: str, number: str, step: int) -> None:
        self.caller.call(worker, "event", {"name": name, "number": number, "step": step}, self.config.event_timeout_s, tries=1)

    def _stage(self, name: str, step: int | None, timed: bool = True) -> Any:
        return _Stage(self, name, step, timed)


class _Stage:
    """A stage: announced in the log, a span in the journal, its seconds in the metrics; held before it begins where a fault is to be made."""

    def __init__(self, loop: Loop, name: str, step: int | None, timed: bool) -> None:
        self.loop, self.name, self.step, self.timed = loop, name, step, timed
        self.span = rt.stage(name)

    def __enter__(self) -> None:
        if self.timed:
            hold(self.loop.config, self.loop.run, f"{self.name}@{self.step}")
            self.loop.at = (self.name, self.step)
        self.began = time.monotonic()
        self.span.__enter__()
        if self.timed:
            log.info("start to %s%s", self.name, "" if self.step is None else f", step: {self.step}")

    def __exit__(self, *error: Any) -> None:
        spent = time.monotonic() - self.began
        self.loop.seconds[self.name] = round(self.loop.seconds.get(self.name, 0.0) + spent, 4)
        if error[0] is None and self.timed:
            log.info("%s succeeded%s, cost %.2fs", self.name, "" if self.step is None else f", step: {self.step}", spent)
        self.span.__exit__(*error)
