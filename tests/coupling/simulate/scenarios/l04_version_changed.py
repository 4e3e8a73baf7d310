"""Looks like 04: the weight update cannot read the checkpoint, but every save succeeded: the layout is that of another version or model."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "04", ("layout",)
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 1, "ref_host": False}
NEEDS = {"kernel", "storage"}
MODE = "disk"
TEXTS = (
    ("KeyError", "'model.layers.0.self_attn.qkv_proj.weight'"),
    ("RuntimeError", 'Error(s) in loading state_dict for Qwen2ForCausalLM:\n\tMissing key(s) in state_dict: "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight". \n\tUnexpected key(s) in state_dict: "model.layers.0.mlp.gate_up_proj.weight". '),
    ("RuntimeError", 'Error(s) in loading state_dict for LlamaForCausalLM:\n\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([151936, 3584]) from checkpoint, the shape in current model is torch.Size([152064, 3584]).'),
)  # fmt: skip


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot(resumed=c.path("periodic", w.step0 - 1))
    c.say(w.controller, "upgraded", old="0.8.2", new="0.9.0")
    c.open_step()
    c.begin("weights_update", mode="disk")
    moment = c.wait(2, 6)
    kind, text = rng.choice(TEXTS)
    for who in w.role("rollout"):
        c.say(who, "exc", dt=rng.uniform(0, 0.5), type=kind, text=text, at="update_weights")
    c.wait(0.6, 1)
    peer = w.role("rollout")[0]
    c.call_failed(peer, "update_weights", f"{kind}: {text}"[:100])
    c.give_up(f"{kind}: {text}", peer=peer)
    w.tell("sw.ckpt_format", ("sw.config", "sw.dependency"), t=moment, cause_stage="weights_update", symptom_stage="weights_update", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why="Storage is clean; after a start with a newer version all engines refuse the layout of the checkpoint.")  # fmt: skip
