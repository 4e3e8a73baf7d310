"""The stage of the run that a stack passes through, by the names of the program's functions.

>>> stage_of([("train.py", 9, "<module>"), ("train.py", 4, "save_checkpoint"), ("/x/site-packages/torch/serialization.py", 8, "save")])
'save'
"""

from __future__ import annotations

import re

#: Stage by the function that a traceback or stack passes through, outermost telling frame last.
STAGE_FRAMES = (
    ("save", re.compile(r"save|checkpoint_saver|write_checkpoint", re.I)),
    ("load", re.compile(r"load_checkpoint|load_state|resume|restore|from_pretrained|\bload\b", re.I)),
    ("init", re.compile(r"init_process_group|init_distributed|setup_dist|_rendezvous|next_rendezvous", re.I)),
    ("eval", re.compile(r"evaluat|validat|eval_", re.I)),
    ("weights_update", re.compile(r"update_weights|upload_weights|sync_weights|weight_sync", re.I)),
    ("rollout", re.compile(r"rollout|generate_sequences|generate_batch", re.I)),
    ("train", re.compile(r"train_step|train_epoch|training_step|train_loop|backward|train_batch", re.I)),
)


def stage_of(frames: list) -> str | None:
    """The stage that a stack passes through: the innermost frame of the program that names one."""
    for frame in reversed(frames):
        if "site-packages" in frame[0] and "/torch/" in frame[0] and "serialization" not in frame[0]:
            continue
        for stage, pattern in STAGE_FRAMES:
            if pattern.search(frame[2]) or (stage in ("save", "load") and "serialization" in frame[0] and pattern.search(frame[2])):
                return stage
    return None
