"""A file of prompts was prepared with another tokenizer: one of its tokens is no index into this model's vocabulary. The data really is wrong; the machine and the program are well."""

from __future__ import annotations

import json

from rca.replay_trainer.faults import Scene, noted

KIND = "real"
NEEDS: tuple[str, ...] = ()
TOKEN = 50256  # the last of GPT-2's 50,257, its end of text: Radford et al. 2019, section 2.2


def make(scene: Scene, role: str, rank: int, step: int, token: int = TOKEN) -> None:
    """In the share of rollout worker `rank` at a step whose prompts were not read yet. There is no undo: the file stays as it is."""
    from rca.replay_trainer import data, task
    from rca.replay_trainer.config import NAME, Config

    config = Config.read(scene.run / NAME)
    rows = task.prompts(config, step).tolist()
    row = rank * config.prompts // config.rollout_ranks
    rows[row][0] = token
    file = data.file_of(scene.run, step)
    file.parent.mkdir(exist_ok=True)
    aside = file.with_name(f".{file.name}")
    aside.write_text(json.dumps(rows))
    aside.replace(file)
    noted(scene, file=str(file.relative_to(scene.run)), row=row, token=token)
