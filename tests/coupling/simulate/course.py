"""The training loop: plays healthy steps and the pieces of a broken one, in true time, and leaves facts, spans and device memory behind.

    weights_update -> (hand the GPUs over) -> rollout -> (hand them back) -> reference -> train -> latest_recover_save -> periodic_recover_save

Scenarios call the stage methods until the fault, then write the rest themselves with `begin`, `finish`, `call_failed`, `give_up`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coupling.simulate import real
from coupling.simulate.world import Worker, World

PERIOD = 5  # a periodic checkpoint every so many steps
GPU_MIB = 81559
TRAIN_MIB, TRAIN_IDLE_MIB = (41000, 63000), (1900, 3400)
ROLLOUT_MIB, ROLLOUT_IDLE_MIB = (58000, 71000), (1200, 2600)


class Course:
    """Time goes on in `t`; one instance plays the whole run, restarts included."""

    def __init__(self, w: World) -> None:
        self.w, self.rng = w, w.rng
        self.t = w.start + 5
        self.step = w.step0
        self.stage: str | None = None
        self.began = self.t
        self.held: dict[Worker, float] = {}  # MiB of the device that each process holds now
        self.pace = w.rng.uniform(0.7, 1.6)
        self.loss = w.rng.uniform(0.02, 0.9)

    # --- small pieces -------------------------------------------------------------------------------------------------

    def wait(self, low: float, high: float | None = None) -> float:
        self.t += self.rng.uniform(low, low if high is None else high)
        return self.t

    def say(self, who: Worker, kind: str, dt: float = 0.0, **data: Any) -> None:
        self.w.say(self.t + dt, who, kind, self.step, self.stage, **data)

    def hold(self, who: Worker, mib: float, dt: float = 0.0) -> None:
        self.held[who] = mib
        self.w.memory.append((self.t + dt, who, mib))

    def memory_gone(self, who: Worker, t: float) -> None:
        """The driver took the process' memory away."""
        self.held[who] = 0.0
        self.w.memory.append((t, who, 0.0))

    def begin(self, stage: str, **data: Any) -> None:
        self.stage, self.began = stage, self.t
        self.say(self.w.controller, "stage_begin", **data)

    def finish(self, **data: Any) -> None:
        self.say(self.w.controller, "stage_end", secs=self.t - self.began, **data)
        self.w.span(self.stage or "", self.w.controller, self.began, self.t, self.step, self.stage or "")
        self.wait(0.2, 1.0)

    def call(self, peer: Worker, method: str, start: float, end: float | None, error: str | None = None, reached: bool = True) -> None:
        """A request of the controller; `end` None: never answered. Two spans, the callee's only if it got there and came back."""
        stop = end if end is not None else None
        self.w.span(method, self.w.controller, start, stop if error is None else (end or self.t), self.step, self.stage or "", peer, error)
        if reached and end is not None:
            self.w.span(method, peer, start + 0.01, end - 0.01, self.step, self.stage or "", None, error)

    # --- start and end ------------------------------------------------------------------------------------------------

    def boot(self, resumed: str | None = None) -> None:
        w, self.stage = self.w, None
        self.say(w.controller, "job_begin", first=self.step, resumed=resumed)
        self.say(w.controller, "conf", dt=0.4)
        self.wait(3, 6)
        for worker in w.workers:
            if worker.role != "controller" and (worker.role != "meta_server" or w.weights_mode == "store"):
                self.say(worker, "worker_up", dt=self.rng.uniform(0, 20))
        # Startup noise of the libraries, in some runs only; NCCL's lines tell host, pid, rank and bus id.
        chatty, comm = self.rng.random() < 0.5, self.rng.getrandbits(44)
        for worker in w.role("train"):
            if chatty:
                self.say(worker, "raw", dt=22, text=real.nccl_ready(worker, len(w.role("train")), comm))
            if self.rng.random() < 0.3:
                self.say(worker, "raw", dt=self.rng.uniform(3, 20), text=self.rng.choice(real.STARTUP))
        self.wait(24, 50)
        for worker in w.role("train"):
            self.hold(worker, self.rng.uniform(*TRAIN_MIB))
        for worker in w.role("rollout"):
            self.hold(worker, self.rng.uniform(*(ROLLOUT_IDLE_MIB if w.colocated else ROLLOUT_MIB)))
        self.say(w.controller, "ready", workers=len(w.workers) - 1)

    def done(self) -> None:
        self.stage = None
        self.wait(1, 3)
        self.say(self.w.controller, "job_end", steps=self.step - 1)

    # --- one healthy step, stage by stage -----------------------------------------------------------------------------

    def healthy(self, steps: int) -> None:
        for _ in range(steps):
            self.open_step()
            self.weights_update()
            self.to_rollout()
            self.rollout()
            self.to_train()
            self.reference()
            self.train()
            self.latest_save()
            self.periodic_save()
            self.close_step()

    def open_step(self) -> None:
        self.stage, self.step_began, self.times = None, self.t, {}
        self.say(self.w.controller, "step_begin")
        self.wait(0.1, 0.6)

    def close_step(self) -> None:
        self.stage = None
        self.loss *= self.rng.uniform(0.9, 1.06)
        self.say(self.w.controller, "step_end", secs=self.t - self.step_began, times=dict(self.times), loss=self.loss, reward=self.rng.uniform(0.2, 0.8), gnorm=self.rng.uniform(0.1, 1.2))
        self.wait(0.3, 1.2)
        self.step += 1

    def _close_stage(self, **data: Any) -> None:
        self.times[self.stage] = self.t - self.began
        self.finish(**data)

    def weights_update(self) -> None:
        w = self.w
        self.begin("weights_update", mode=w.weights_mode)
        took = self.rng.uniform(8, 20) * self.pace
        for worker in w.role("train"):
            self.say(worker, "wu_send", dt=took * self.rng.uniform(0.5, 0.6), secs=took * 0.55, version=self.step)
        self.call(w.role("train")[0], "upload_weights", self.t, self.t + took * 0.6)
        if w.weights_mode == "store":
            self.store_traffic(took)
        for worker in w.role("rollout"):
            self.say(worker, "wu_recv", dt=took * self.rng.uniform(0.85, 0.99), secs=took * 0.9, version=self.step)
            self.call(worker, "update_weights", self.t + took * 0.1, self.t + took)
        self.wait(took)
        self._close_stage()

    def store_traffic(self, took: float) -> None:
        """The weight store notes what is put and what it holds; what it holds is told by `w.store_gb(step)`."""
        w = self.w
        self.say(w.store, "store_put", dt=took * 0.3, blob=f"step{self.step}/bucket", parts=len(w.role("train")), mb=self.rng.uniform(14000, 16000))
        self.say(w.store, "store_size", dt=took * 0.5, gb=getattr(w, "store_gb", lambda step: 15.0)(self.step), keys=getattr(w, "store_keys", lambda step: 64)(self.step))

    def switch(self, event: str, peers: Iterable[Worker]) -> None:
        """The controller tells workers to take or to give the device; each acknowledges."""
        for peer in peers:
            dt = self.rng.uniform(0, 0.05)
            self.say(self.w.controller, "switch_ask", dt=dt, event=event, peer=peer)
            self.say(peer, "switch_got", dt=dt + 0.02, event=event)
            self.say(self.w.controller, "switch_ok", dt=dt + self.rng.uniform(2.5, 5), event=event, peer=peer)
            self.call(peer, "switch", self.t + dt, self.t + dt + 2.5)

    def free(self, who: Worker, dt: float) -> None:
        idle = self.rng.uniform(*(TRAIN_IDLE_MIB if who.role == "train" else ROLLOUT_IDLE_MIB))
        self.say(who, "mem_free", dt=dt, before=self.held[who] / 1024, after=idle / 1024)
        self.hold(who, idle, dt)

    def take(self, who: Worker, dt: float) -> None:
        full = self.rng.uniform(*(TRAIN_MIB if who.role == "train" else ROLLOUT_MIB))
        self.say(who, "mem_take", dt=dt, gb=full / 1024)
        self.hold(who, full, dt)

    def to_rollout(self) -> None:
        """Colocated only: train lets go of the GPUs, then rollout takes them."""
        if not self.w.colocated:
            return
        self.stage = "rollout"
        train, rollout = self.w.role("train"), self.w.role("rollout")
        self.switch("rollout_start", train)
        for who in train:
            self.free(who, self.rng.uniform(0.5, 2))
        self.wait(5.5, 6.5)
        self.switch("engine_start", rollout)
        for who in rollout:
            self.take(who, self.rng.uniform(0.5, 2))
        self.wait(5.5, 6.5)

    def to_train(self) -> None:
        if not self.w.colocated:
            return
        self.stage = "rollout"
        train, rollout = self.w.role("train"), self.w.role("rollout")
        self.switch("rollout_end", rollout)
        for who in rollout:
            self.free(who, self.rng.uniform(0.5, 2))
        self.wait(5.5, 6.5)
        self.switch("train_start", train)
        for who in train:
            self.take(who, self.rng.uniform(0.5, 2))
        self.wait(5.5, 6.5)

    def rollout(self, lost: Iterable[Worker] = (), unsent: Iterable[Worker] = (), dead_at: float = 0.5, on_dead: Any = None, reroute: bool = False) -> int:
        """Generate. `lost` workers stop at a share `dead_at` of the work; `unsent` finish, but nothing of theirs arrives.

        With either, the controller waits for its limit, notes who is missing and goes on with the rest, unless the requests are rerouted.
        Returns the samples that arrived.
        """
        w, lost, unsent = self.w, list(lost), list(unsent)
        workers = w.role("rollout")
        self.begin("rollout", want=w.batch)
        share = w.batch // len(workers)
        took = self.rng.uniform(70, 150) * self.pace
        came: list[tuple[float, Worker, int]] = []  # when, whose, how many
        for worker in workers:
            mine = took * self.rng.uniform(0.75, 0.99)
            self.say(worker, "gen_begin", dt=0.1, n=share)
            beats = 4
            for i in range(1, beats + 1):
                if worker in lost and i / beats > dead_at:
                    break
                self.say(worker, "gen_beat", dt=mine * i / (beats + 1), run=max(1, int(share * (1 - i / (beats + 1)))), queue=0 if i > 1 else share // 8, toks=self.rng.uniform(1800, 5200))
            if worker in lost:
                if on_dead:
                    on_dead(worker, self.t + took * dead_at)
                self.call(worker, "generate", self.t, None, reached=False)
                continue
            self.say(worker, "gen_end", dt=mine, n=share, secs=mine)
            if worker in unsent:
                self.call(worker, "generate", self.t, None, reached=False)
                continue
            came.append((mine + 0.1, worker, share))
            self.call(worker, "generate", self.t, self.t + mine + 0.1)
        missing = lost + unsent
        if reroute:
            # A router noticed the silence and gave the requests to the others: the stage ends complete, only later.
            self.say(w.controller, "engine_lost", dt=took * dead_at + 45, peer=lost[0], quiet=45)
            self.say(w.controller, "rerouted", dt=took * dead_at + 45.1, peer=lost[0])
            heirs = [x for x in workers if x not in lost]
            for i, worker in enumerate(heirs):
                more = share * len(lost) // len(heirs) + (i < share * len(lost) % len(heirs))
                self.say(worker, "gen_begin", dt=took + 2, n=more)
                self.say(worker, "gen_end", dt=took + 50, n=more, secs=48)
                came.append((took + 50 + 0.1 * i, worker, more))
        got = 0
        for dt, worker, n in sorted(came, key=lambda x: x[0]):
            got += n
            self.say(w.controller, "part_in", dt=dt, peer=worker, n=n, got=got, want=share * len(workers))
        if reroute:
            self.wait(took + 60)
        elif missing:
            start = self.t
            limit = w.rpc_timeout
            self.wait(limit)
            for worker in missing:
                self.say(w.controller, "call_timeout", dt=self.rng.uniform(0, 0.2), peer=worker, method="generate", secs=limit)
                w.span("generate", w.controller, start, self.t, self.step, "rollout", worker, "timeout")
            self.wait(0.3, 0.6)
            self.say(w.controller, "go_on_partial", got=got, want=w.batch, missing=len(missing))
        else:
            self.wait(took + 0.5)
        self.say(w.controller, "merged", got=got, want=share * len(workers))
        self.wait(0.1, 0.3)
        self._close_stage(got=got)
        return got

    def reference(self) -> None:
        w = self.w
        if not w.use_ref:
            return
        self.begin("reference")
        took, refs = self.rng.uniform(15, 40) * self.pace, self.w.role("reference")
        for worker in refs:
            self.say(worker, "logp_begin", dt=0.1, rows=w.batch // len(refs))
            self.say(worker, "logp_end", dt=took * self.rng.uniform(0.8, 0.97), rows=w.batch // len(refs), secs=took)
            self.call(worker, "compute_logp", self.t, self.t + took)
        self.wait(took)
        self._close_stage()

    def train(self) -> None:
        w = self.w
        self.begin("train")
        took = self.rng.uniform(50, 110) * self.pace
        for worker in w.role("train"):
            self.say(worker, "train_begin", dt=0.1, rows=w.batch // len(w.role("train")))
            self.say(worker, "train_iter", dt=took * self.rng.uniform(0.93, 0.97), loss=self.loss, gnorm=self.rng.uniform(0.1, 1.1), gb=self.held[worker] / 1024, secs=took)
            self.call(worker, "train_batch", self.t, self.t + took)
        self.wait(took)
        self._close_stage()

    def path(self, kind: str, step: int | None = None) -> str:
        return f"{self.w.mount}/{self.w.run}/{'latest' if kind == 'latest' else f'step_{self.step if step is None else step:06d}'}"

    def latest_save(self) -> None:
        self._save("latest_recover_save", "latest")

    def periodic_save(self, always: bool = False) -> None:
        if always or self.step % PERIOD == 0:
            self._save("periodic_recover_save", "periodic")

    def _save(self, stage: str, kind: str) -> None:
        w, path = self.w, self.path(kind)
        self.begin(stage, path=path)
        took = self.rng.uniform(9, 26) * self.pace
        for worker in w.role("train"):
            self.say(worker, "save_begin", dt=0.1, path=path)
            self.say(worker, "save_end", dt=took * self.rng.uniform(0.6, 0.97), path=path, gb=self.rng.uniform(3.1, 3.4), secs=took)
        self.call(w.role("train")[0], "save", self.t, self.t + took)
        self.wait(took)
        self._close_stage(path=path)

    # --- failing ------------------------------------------------------------------------------------------------------

    def call_failed(self, peer: Worker, method: str, body: str, status: int = 500, **data: Any) -> None:
        """A worker answered with an error; the controller does not try again. Without a body, the error that `data` names is the body."""
        self.say(self.w.controller, "call_error", **{**data, "peer": peer, "method": method, "status": status, "body": body})
        self.call(peer, method, self.began, self.t, error=body[:120] or "HTTP 500")
        self.wait(0.01, 0.1)

    def give_up(self, text: str, error: str | None = None, stops_time_out: Iterable[Worker] = (), **data: Any) -> None:
        """The controller's handler: what it raises, stopping everything, the end."""
        w = self.w
        stuck = list(stops_time_out)
        self.say(w.controller, "stage_failed", text=text, error=error, **data)
        self.w.span(self.stage or "", w.controller, self.began, self.t, self.step, self.stage or "", None, text[:120] or error)
        self.wait(0.2, 1)
        self.say(w.controller, "cleanup_begin", text=text)
        groups = [x for x in ("train", "rollout", "reference") if w.role(x) and (x != "reference" or w.use_ref)]
        for role in groups:
            peer = next((s for s in stuck if s.role == role), w.role(role)[0])
            self.say(w.controller, "stop_ask", peer=peer)
            if peer in stuck:
                self.wait(60, 61)
                self.say(w.controller, "stop_timeout", peer=peer, secs=60)
            else:
                self.wait(0.5, 3)
                self.say(w.controller, "stop_ok", peer=peer)
        self.wait(0.1, 0.5)
        for who in self.rng.sample(w.role("train"), self.rng.choice((0, 0, 2))):
            self.say(who, "raw", dt=-0.1, text=real.aftermath(who.rank, who.host.clock(self.t - 0.1), w.tz, self.rng))
        last = {"error": "stop", "peer": stuck[0], "secs": 60} if stuck else {"error": error}
        self.say(w.controller, "job_failed", **{"text": text, **data, **last})
