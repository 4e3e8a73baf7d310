"""Looks like 03 and 05 and 07: a shape or count does not fit, although every sample and every row arrived."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "03", ("reference",)
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 2, "ref_host": True}
NEEDS = {"net", "ping"}
TEXTS = (
    ("RuntimeError", "The expanded size of the tensor (8192) must match the existing size (8448) at non-singleton dimension 1.  Target sizes: [16, 8192].  Tensor sizes: [16, 8448]"),
    ("ValueError", "input_ids has 8448 columns but position_ids was built for max_seq_len=8192"),
    ("IndexError", "index out of range in self"),
)


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    c.open_step()
    c.weights_update()
    c.rollout()
    c.begin("reference")
    moment = c.wait(1, 4)
    kind, text = rng.choice(TEXTS)
    refs = w.role("reference")
    for who in refs:
        c.say(who, "logp_begin", dt=-0.4, rows=w.batch // len(refs))
    hit = rng.choice(refs)
    c.say(hit, "exc", type=kind, text=text, at="compute_logp")
    c.wait(0.2, 0.5)
    c.call_failed(hit, "compute_logp", f"{kind}: {text}"[:120])
    c.give_up(f"{kind}: {text}", error=None, peer=hit)
    w.tell("sw.shape", ("sw.bug", "sw.config", "sw.rank_exception"), t=moment, entity={"role": "reference"}, cause_stage="reference", symptom_stage="reference", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why="All samples arrived; one sequence is longer than the length that the reference was configured for.")  # fmt: skip
