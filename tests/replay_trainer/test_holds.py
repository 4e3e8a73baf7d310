"""Points to wait at: only those that were asked for, until they are released or nobody comes."""

import threading
import time

from rca.replay_trainer import holds
from rca.replay_trainer.config import Config

CONFIG = Config(hold_at=("rollout@3",))


def test_a_point_holds_until_it_is_released(tmp_path):
    (tmp_path / holds.FOLDER).mkdir()
    passed = threading.Event()
    held = threading.Thread(target=lambda: (holds.hold(CONFIG, tmp_path, "rollout@3"), passed.set()))
    held.start()
    assert holds.until(tmp_path, "rollout@3", 5, lambda: True)
    assert not passed.wait(0.1)
    holds.release(tmp_path, "rollout@3")
    assert passed.wait(5)
    held.join()
    assert not holds.reached(tmp_path, "rollout@3")


def test_other_points_do_not_hold(tmp_path):
    holds.hold(CONFIG, tmp_path, "rollout@2")
    holds.release(tmp_path, "rollout@2")


def test_nobody_waits_for_ever(tmp_path, monkeypatch):
    (tmp_path / holds.FOLDER).mkdir()
    monkeypatch.setattr(holds, "HOLD_MAX_S", 0.1)
    began = time.monotonic()
    holds.hold(CONFIG, tmp_path, "rollout@3")
    assert time.monotonic() - began < 5
    (tmp_path / holds.FOLDER / "rollout@3").unlink()
    assert not holds.until(tmp_path, "rollout@3", 0.1, lambda: True)
    assert not holds.until(tmp_path, "rollout@3", 60, lambda: False)
