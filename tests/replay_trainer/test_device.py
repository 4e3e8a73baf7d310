"""The stand-in for a device's memory: two owners collide as on a GPU, the dead hold nothing, an error stays."""

import json
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

from rca.replay_trainer.device import FAULT, Device  # noqa: E402

MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """Where there is one its own errors are raised, which end it for this process."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def two(folder, capacity=100 * MIB):
    return Device(folder, capacity, "train-0"), Device(folder, capacity, "rollout-0")


def test_two_owners_share_one_budget(tmp_path):
    train, rollout = two(tmp_path)
    train.take(60 * MIB)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        rollout.take(60 * MIB)
    said = str(raised.value)
    assert said.startswith("CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacity of 100.00 MiB of which 40.00 MiB is free.")
    assert "60.00 MiB memory in use" in said and rollout.held().keys() == {"train-0"}
    train.release()
    rollout.take(60 * MIB)
    assert {owner: size for owner, (_, size) in train.held().items()} == {"rollout-0": 60 * MIB}


def test_what_is_taken_adds_up_to_the_last_byte(tmp_path):
    train, _ = two(tmp_path, 10)
    train.take(4)
    train.take(6)
    with pytest.raises(torch.OutOfMemoryError):
        train.take(1)
    train.release(3)
    train.take(3)
    train.release(1000)
    assert train.held() == {}


def test_work_is_given_back_when_it_fails(tmp_path):
    train, _ = two(tmp_path)
    train.take(MIB)
    with pytest.raises(KeyError), train.work(50 * MIB):
        assert train.held()["train-0"][1] == 51 * MIB
        raise KeyError
    assert train.held()["train-0"][1] == MIB
    with pytest.raises(torch.OutOfMemoryError), train.work(100 * MIB):
        raise AssertionError("it began")
    assert train.held()["train-0"][1] == MIB


def test_a_leak_grows_until_memory_is_out(tmp_path):
    train, rollout = two(tmp_path)
    (tmp_path / "train-0.leak").write_text(str(20 * MIB))
    with rollout.work(MIB):  # another owner's leak is none of its
        pass
    for _ in range(4):
        with train.work(30 * MIB):
            pass
    assert {owner: size for owner, (_, size) in train.held().items()} == {"train-0": 80 * MIB}
    with pytest.raises(torch.OutOfMemoryError), train.work(30 * MIB):
        pass


def test_memory_of_a_dead_owner_is_free(tmp_path):
    code = f"from pathlib import Path; from rca.replay_trainer.device import Device; Device(Path({str(tmp_path)!r}), {100 * MIB}, 'rollout-0').take({90 * MIB}); print('held', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        train, _ = two(tmp_path)
        with pytest.raises(torch.OutOfMemoryError, match=f"Process {other.pid} has 90.00 MiB"):
            train.take(20 * MIB)
    finally:
        other.kill()
        other.communicate()
    train.take(100 * MIB)


def test_owners_in_threads_never_exceed_the_budget(tmp_path):
    """Each book is locked: of 20 that want a tenth each, ten get it."""
    got = []

    def want(number):
        try:
            Device(tmp_path, 10, f"owner-{number}").take(1)
            got.append(number)
        except torch.OutOfMemoryError:
            pass

    threads = [threading.Thread(target=want, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 10 == len(Device(tmp_path, 10, "x").held())


def test_an_error_stays_for_whoever_touched_it(tmp_path):
    train, rollout = two(tmp_path)
    (tmp_path / FAULT).write_text(json.dumps({"error": "device-side assert triggered", "touched_by": ["generate"]}))
    train.check("train_batch")
    with pytest.raises(RuntimeError, match="CUDA error: device-side assert triggered"):
        rollout.check("generate")
    (tmp_path / FAULT).unlink()
    with pytest.raises(RuntimeError, match="CUDA error"):
        rollout.take(1)
    train.take(1)


def test_half_a_fault_or_half_a_book_is_none(tmp_path):
    train, _ = two(tmp_path)
    (tmp_path / FAULT).write_text('{"err')
    (tmp_path / "x.held").write_text("12")
    (tmp_path / "y.held").write_text("not numbers")
    train.take(100 * MIB)


def test_what_lasts_is_taken_once_and_again_after_everything_was_released(tmp_path):
    """`hold` is asked for at every call of a worker; a release for the other role ends it."""
    device = Device(tmp_path, 100, "train-0")
    device.hold(60)
    device.hold(60)
    assert device.held()["train-0"][1] == 60
    device.release()
    assert device.held() == {}
    device.hold(60)
    assert device.held()["train-0"][1] == 60
