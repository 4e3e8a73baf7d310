"""Prompts from a prepared file: taken as they stand, drawn where there is none; what does not belong to the vocabulary is refused by the worker that is given it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from replay_trainer.scenes import OneProgram  # noqa: E402

from rca.replay_trainer import batch, data, faults, rollout, task  # noqa: E402
from rca.replay_trainer.config import NAME, Config  # noqa: E402

CONFIG = Config(prompts=4, group=2, width=16, heads=2, layers=1, train_ranks=1, rollout_ranks=2, weight_sync="disk")


def test_a_step_without_a_file_draws_its_prompts(tmp_path: Path) -> None:
    """And one with a file takes what is in it."""
    drawn = task.prompts(CONFIG, 2)
    assert torch.equal(data.prompts(CONFIG, tmp_path, 2), drawn)
    data.file_of(tmp_path, 2).parent.mkdir()
    data.file_of(tmp_path, 2).write_text(json.dumps(drawn.flip(0).tolist()))
    assert torch.equal(data.prompts(CONFIG, tmp_path, 2), drawn.flip(0)) and torch.equal(data.prompts(CONFIG, tmp_path, 3), task.prompts(CONFIG, 3))


@pytest.mark.parametrize("text", ["", "[[1, 2], [3]]", '[["4", 1]]'])
def test_a_file_that_holds_no_table_is_an_error(text: str, tmp_path: Path) -> None:
    """Of the controller's, which ends the step in words."""
    data.file_of(tmp_path, 2).parent.mkdir()
    data.file_of(tmp_path, 2).write_text(text)
    with pytest.raises((ValueError, TypeError)):
        data.prompts(CONFIG, tmp_path, 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_foreign_tokens(rank: int, tmp_path: Path) -> None:
    """One token of one worker's share is another one; that worker refuses, again and again, and the other does not."""
    (tmp_path / NAME).write_text(CONFIG.to_json())
    scene = OneProgram(tmp_path)
    faults.load("foreign_tokens").make(scene, "rollout", rank, step=3, token=11)
    found = data.prompts(CONFIG, tmp_path, 3)
    assert (found != task.prompts(CONFIG, 3)).nonzero().tolist() == [[2 * rank, 0]] and int(found[2 * rank, 0]) == 11
    assert {name: scene.truth[name] for name in ("file", "row", "token")} == {"file": "data/step-000003.json", "row": 2 * rank, "token": 11}
    shares = batch.split({"prompts": found}, 2)
    for worker, share in enumerate(shares):
        engine = rollout.service(CONFIG, tmp_path, worker, "127.0.0.1").engine
        for _ in range(2):
            if worker == rank:
                with pytest.raises(ValueError, match=r"^prompts hold tokens from \d to 11, the vocabulary has 0 to 10"):
                    engine["generate"]({**share, "step": 3})
            else:
                engine["generate"]({**share, "step": 3})
