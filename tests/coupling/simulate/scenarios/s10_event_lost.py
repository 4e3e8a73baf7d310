"""10: the order to let go of a GPU never reaches one train rank in time; rollout takes the device and runs out of memory."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "10", ("delay", "connection", "hung_receiver")
LAYOUT = {"colocated": True, "train_hosts": 2, "ref_host": True}
NEEDS = {"gpu"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    rank = rng.choice([t for t in w.role("train") if t.host is not w.controller.host])
    engine = next(x for x in w.role("rollout") if x.host is rank.host and x.gpu <= rank.gpu < x.gpu + x.tp)
    if engine.gpu != rank.gpu:  # the engine's own process sits on its first device
        rank = next(t for t in w.role("train") if t.host is engine.host and t.gpu == engine.gpu)
    c.open_step()
    c.weights_update()
    c.stage = "rollout"
    others = [t for t in w.role("train") if t is not rank]
    moment = c.t
    c.switch("rollout_start", others)
    for who in others:
        c.free(who, rng.uniform(0.5, 2))
    c.say(w.controller, "switch_ask", dt=0.01, event="rollout_start", peer=rank)
    limit = rng.choice((60, 120, 300, 600))
    why = {"delay": "timed out", "connection": rng.choice(("Connection reset by peer", "[Errno 104] Connection reset by peer", "Remote end closed connection without response")), "hung_receiver": "Read timed out"}[variant]
    w.span("switch", w.controller, c.t, c.t + limit, c.step, "rollout", rank, why)
    c.wait(limit)
    c.say(w.controller, "switch_failed", event="rollout_start", peer=rank, secs=limit, why=why, key=True)
    if variant == "connection":
        for host in w.hosts:
            if host is not rank.host:
                for a, b in ((host, rank.host), (rank.host, host)):
                    w.series("ping_loss", a, b.name).during(moment - 20, moment + limit, rng.uniform(20, 60), key=True)
        w.series("tcp_retrans", rank.host).during(moment - 20, moment + limit, rng.uniform(20, 90), key=True)
    c.wait(0.2, 1)
    c.switch("engine_start", w.role("rollout"))
    for who in w.role("rollout"):
        if who is not engine:
            c.take(who, rng.uniform(0.5, 2))
    c.wait(5.5, 6.5)
    held = c.held[rank] / 1024
    mine = 79.15 - held - rng.uniform(0.1, 0.7)
    c.hold(engine, mine * 1024)
    text = real.torch_oom(rng, rng.choice((0, engine.gpu)), 79.15, 79.15 - held - mine, rng.uniform(18, 34), mine, [(rank.pid, held)])
    c.begin("rollout", want=w.batch)
    c.wait(0.5, 2)
    c.say(engine, "exc", type="torch.OutOfMemoryError" if rng.random() < 0.7 else "torch.cuda.OutOfMemoryError", text=text, at="generate")
    c.wait(0.2, 0.6)
    c.call_failed(engine, "generate", text[:60])
    if variant == "delay":
        w.say(c.t + 1, rank, "switch_got", c.step, "rollout", event="rollout_start", key=True)
    c.give_up(text[:60], error="generate", peer=engine)
    accept = {"delay": ("coord.rpc",), "connection": ("net.loss", "coord.rpc"), "hung_receiver": ("coord.rpc",)}[variant]
    w.tell("coord.event_lost", accept, who=rank, t=moment, entity={"role": "rollout"}, cause_stage="rollout", cause_stage_accept=["weights_update"], symptom_stage="rollout", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown", "sw.cuda_oom"], sources=[("ping", "*"), ("files", rank.host), ("traces", "*")],
           why=f"Train rank {rank.rank} on {rank.host.name} never let go of GPU {rank.gpu} in step {c.step} ({variant}: {why}); its pid {rank.pid} still holds {held:.0f} GiB, so the rollout engine on that device runs out of memory.")  # fmt: skip
