"""What `rca replay` prints."""

from pathlib import Path

import pytest
from replay.sides import case, request

from rca.commands.replay import _print
from rca.errors import RcaError
from rca.replay.outcome import Replayed
from rca.replay.replay import failure, going_on
from rca.replay.result import Outcome, write
from rca.replay_trainer.launch import LOCK


def test_what_was_found_is_told_though_it_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    one = Replayed(case(request("generate", "rollout", 0, 1, 2)), "ok", "cannot tell", "not kept")
    with pytest.raises(RcaError, match="cannot write"):
        _print(Outcome([one], None, None, None, [], RcaError("cannot write the result: read-only file system")))
    assert "not kept" in capsys.readouterr().out


def test_a_run_that_goes_on_is_seen(tmp_path: Path) -> None:
    import fcntl

    assert not going_on(tmp_path)
    with (tmp_path / LOCK).open("w") as file:
        assert not going_on(tmp_path)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert going_on(tmp_path)
    assert not going_on(tmp_path)


@pytest.mark.parametrize(("text", "found"), [("[]", None), ("{", None), ('{"error": 3, "step": "4", "stage": []}', {"error": "", "step": None, "stage": None})])
def test_what_ended_the_run_has_its_form(tmp_path: Path, text: str, found: dict | None) -> None:
    (tmp_path / "failed.json").write_text(text)
    assert failure(tmp_path) == found


def test_a_result_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "replay.rca.jsonl").mkdir()
    with pytest.raises(RcaError, match="cannot write the result"):
        write(tmp_path / "replay.rca.jsonl", {}, [], None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["replay.rca.jsonl"]
