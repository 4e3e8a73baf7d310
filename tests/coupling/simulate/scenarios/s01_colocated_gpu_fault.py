"""01: a GPU breaks while rollout uses it; the train rank on the same device prints the CUDA error."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "01", ("ecc", "hang", "off_bus")
LAYOUT = {"colocated": True, "train_hosts": 2, "ref_host": True, "tp": 1}
NEEDS = {"kernel", "gpu"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    engine = rng.choice(w.role("rollout"))
    rank = next(t for t in w.role("train") if t.host is engine.host and t.gpu == engine.gpu)
    c.open_step()
    c.weights_update()
    c.to_rollout()
    moment = 0.0

    def broke(worker: object, t: float) -> None:
        nonlocal moment
        moment = t
        w.series("gpu_util", engine.host, str(engine.gpu)).during(t + 1, 9e12, 100 if variant == "hang" else 0, key=True)
        if variant == "ecc":
            c.memory_gone(engine, t)
            lines = real.ecc_lines(engine, rng.choice(("python3", "sglang::schedul", "VLLM::Worker")), rng)
            w.series("ecc_unc", engine.host, str(engine.gpu)).during(t, t + 1, rng.randrange(1, 4), key=True)
        elif variant == "hang":
            lines = real.gsp_lines(engine, rng)
            w.kmsg(t + 130, engine.host, real.hung_task("python3", engine.pid, 120, real.GPU_FRAMES), 3, key=True)
        else:
            lines = [(79, real.xid(79, engine, "python3", "GPU has fallen off the bus.")), (79, f"NVRM: GPU {engine.bus}.0: GPU has fallen off the bus.")]
            w.kmsg(t - 0.3, engine.host, f"pcieport {engine.bus[:-2]}01.0: AER: Uncorrected (Fatal) error received: {engine.bus[:-2]}01.0", 3, key=True)
        for i, (_, line) in enumerate(lines):
            w.kmsg(t + 0.02 * i, engine.host, line, 3, key=True)
        w.series("xid", engine.host, str(engine.gpu)).during(t, 9e12, lines[0][0], key=True)
        if variant == "ecc" and rng.random() < 0.35:
            w.say(t + 0.5, engine, "exc", c.step, "rollout", type="RuntimeError", text=real.cuda_error(rng, "unspecified launch failure"), at="generate")

    c.rollout(lost=[engine], dead_at=rng.uniform(0.3, 0.8), on_dead=broke, reroute=True)
    others = [x for x in w.role("rollout") if x is not engine]
    step = c.step
    if variant == "ecc":
        # Contained: the rollout process lost its memory, the train process works on until it opens that memory.
        c.stage = "rollout"
        c.switch("rollout_end", others)
        c.wait(6)
        c.switch("train_start", w.role("train"))
        for who in w.role("train"):
            c.take(who, 1)
        c.wait(6)
        c.reference()
        c.train()
        c.latest_save()
        c.close_step()
        c.open_step()
        c.begin("weights_update", mode=w.weights_mode)
        c.wait(2, 9)
        text = real.cuda_error(rng, rng.choice(("device-side assert triggered", "an illegal memory access was encountered", "unspecified launch failure", "invalid device context", "uncorrectable ECC error encountered")))
        symptom = "weights_update"
        c.say(rank, "exc", type=rng.choice(("torch.AcceleratorError", "RuntimeError")), text=text, at="upload_weights", error="upload")
        c.wait(0.1, 0.4)
        c.call_failed(rank, "upload_weights", text.split("\n")[0])
        c.give_up(text.split("\n")[0], error="upload", peer=rank)
    else:
        c.stage = "rollout"
        c.switch("rollout_end", others)
        c.wait(6)
        if variant == "off_bus":
            c.switch("train_start", [x for x in w.role("train") if x is not rank])
            c.wait(5.3, 7)
            text = real.cuda_error(rng, rng.choice(("unknown error", "device not ready", "unspecified launch failure", "no CUDA-capable device is detected")))
            c.say(rank, "exc", type="RuntimeError", text=text, at="wake")
            c.wait(0.1, 0.3)
            c.stage = "train"
            c.call_failed(rank, "wake", text.split("\n")[0])
            c.give_up(text.split("\n")[0], error="wake", peer=rank)
        else:
            # The driver call never comes back: this rank says nothing, the others wait for it in the first collective.
            c.switch("train_start", [x for x in w.role("train") if x is not rank])
            for who in w.role("train"):
                if who is not rank:
                    c.take(who, 1)
            c.wait(6)
            c.begin("train")
            seq, limit = rng.randrange(900, 90000), 600000
            for who in w.role("train"):
                if who is not rank:
                    c.say(who, "train_begin", dt=0.1, rows=w.batch // len(w.role("train")))
            c.wait(limit / 1000 + 4)
            loud = [x for x in w.role("train") if x is not rank]
            for who in loud:
                for i, line in enumerate(real.watchdog(who.rank, who.host.clock(c.t), w.tz, seq, "ALLREDUCE", limit, rng, numel=525312)):
                    c.say(who, "raw", dt=0.01 * i, text=line)
            c.wait(0.5, 1.5)
            text = "NCCL watchdog timeout: ALLREDUCE"
            c.call_failed(loud[0], "train_batch", text)
            c.give_up(text, error="train", peer=loud[0])
        symptom = "train"
    cause = {"ecc": "gpu.ecc", "hang": "gpu.hang", "off_bus": "gpu.off_bus"}[variant]
    w.tell(cause, who=rank, t=moment, entity={"role": "rollout"}, cause_stage="rollout", symptom_stage=symptom, cause_step=step, symptom_step=c.step,
           symptom_stage_accept=["train", "weights_update", "rollout"] if symptom == "train" else [],
           accept_without=["unknown", "coord.actor_died", "coord.rpc", "sw.rank_skew", "gpu.hang", "gpu.ecc", "gpu.off_bus"],
           sources=[("kernel", engine.host), ("gpu", engine.host)],
           why=f"GPU {rank.gpu} of {rank.host.name} broke ({variant}) during rollout of step {step}: kernel log and GPU counters say so; rollout engine {engine.index} on it went silent, train rank {rank.rank} shares the device and prints the consequence in {symptom} of step {c.step}.")  # fmt: skip
