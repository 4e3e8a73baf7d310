"""The recording of requests as a guest: killed, on a full disk, without rights, in many threads, within its bound."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rca import trace_inject as rt
from rca.errors import RcaError
from rca.replay.recording import Recording
from rca.trace_inject import guard, recording

KILLS = int(os.environ.get("RCA_RECORDING_KILLS", "40"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No fault of ours is counted, and nothing is recorded afterwards."""
    yield
    recording.stop()
    assert not guard.faults


def _begin(folder: Path, rank: int, fd: int) -> None:
    """In a child: requests without an end, of several sizes; each is said when it begins, before it is recorded, and when it has ended."""
    torch.set_num_threads(1)  # the threads of an earlier test's tensors are not in this child: it would wait for them for ever
    rt.record_requests(folder, role="train", rank=rank, steps=3)
    weights = {"w": torch.zeros(50_000)}
    for step in range(1, 1 << 30):
        with rt.step(step), rt.recorded("train", {"ids": torch.full((20,), step), "long": "x" * (step % 7 * 1000)}, lambda: {"weights": weights}) as request:
            os.write(fd, b"%d\n" % step)
            weights["w"] += 1
            request.result({"loss": torch.rand(3), "batch": torch.full((step % 3 * 10_000,), step)})
        os.write(fd, b"%d.\n" % step)


def test_killed_at_any_moment_it_is_readable(tmp_path: Path) -> None:
    """Processes that are killed while they write: every request that began stands there, with all that it was given; every blob is whole."""
    luck, said, folder = random.Random(3), {}, tmp_path / "r"
    for rank in range(KILLS):
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _begin(folder, rank, into)
            finally:
                os._exit(1)
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            first = pipe.readline()
            time.sleep(luck.random() * 0.03)
            os.kill(pid, signal.SIGKILL)
            said[rank] = (first + pipe.read()).split()
        assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    found = Recording.read(folder)
    assert all("ends within a line" in gap for gap in found.gaps)
    for rank, told in said.items():
        mine = [request for request in found.requests if request.rank == rank]
        begun, ended = [int(word) for word in told if not word.endswith(b".")], [int(word[:-1]) for word in told if word.endswith(b".")]
        assert {request.step for request in mine} >= set(begun) and len(mine) <= len(begun) + 1
        assert {request.step for request in mine if request.outcome == "ok"} >= set(ended)
        for request in mine[-2:]:
            step = request.step or 0
            assert len(request.args.values["long"]) == step % 7 * 1000
            assert found.tensors(request.args.tensors, request.process)["ids"].tolist() == [step] * 20
            assert found.tensors(request.state["weights"], request.process)["w"][0] == step - 1
            if request.result is not None:
                found.tensors(request.result.tensors, request.process)
    for path in (folder / "blobs").glob("*/[0-9a-f]*.safetensors"):
        found.arrays(path.stem, path.parent.name)


def test_the_disk_budget_is_a_bound(tmp_path: Path) -> None:
    """However much is recorded, of whatever sizes and from several threads at once, a process's files are never more than what was set."""
    bound = 3 << 20
    rt.record_requests(tmp_path, role="train", rank=0, size_max=bound)
    most = 0

    def work(number: int) -> None:
        luck = random.Random(number)
        for step in range(60):
            size = luck.choice([10, 1000, 20_000, 60_000, 500_000])
            with rt.step(step // 4), rt.recorded("work", {"x": torch.rand(size), "text": "y" * luck.choice([1, 5000])}) as request:
                rt.recorded_file("f", os.urandom(luck.choice([5, 100_000])))
                request.result({"z": torch.rand(luck.choice([5, 50_000]))})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, _size(tmp_path))
        time.sleep(0.005)
    assert bound // 3 < most <= bound
    assert _size(tmp_path) <= bound
    found = Recording.read(tmp_path)
    assert len(found.requests) > 50 and not found.gaps
    last = max(found.requests, key=lambda request: request.end_ns or 0)
    assert last.args.kept is False or found.tensors(last.args.tensors, last.process)


def _size(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except OSError:  # just taken away
            continue
    return found


def test_what_is_larger_than_the_budget_is_said_not_to_be_kept(tmp_path: Path) -> None:
    """Its digest is there, and that it was not kept."""
    rt.record_requests(tmp_path, role="train", rank=0, size_max=1 << 20)
    with rt.recorded("m", {"x": torch.rand(500_000)}):
        pass
    (one,) = Recording.read(tmp_path).requests
    assert one.args.kept is False and one.args.tensors and one.outcome == "ok"


def test_an_open_request_keeps_what_it_was_given(tmp_path: Path) -> None:
    """Steps that come after a request that hangs do not take its arguments away."""
    rt.record_requests(tmp_path, role="train", rank=0, steps=2)
    with rt.step(1), rt.recorded("hangs", {"x": torch.arange(50_000), "y": torch.arange(3)}):
        for step in range(2, 9):
            with rt.step(step), rt.recorded("goes on", {"x": torch.full((50_000,), step), "y": torch.full((3,), step)}):
                pass
        found = Recording.read(tmp_path)
        hangs = next(request for request in found.requests if request.method == "hangs")
        assert found.tensors(hangs.args.tensors)["y"].tolist() == [0, 1, 2]
        assert [found.has(request.args.tensors) for request in found.requests if request.method == "goes on"] == [False] * 5 + [True] * 2


def test_threads_record_beside_each_other(tmp_path: Path) -> None:
    """Requests of many threads are each whole."""
    rt.record_requests(tmp_path, role="train", rank=0)

    def work(number: int) -> None:
        for i in range(50):
            with rt.recorded("m", {"x": torch.tensor([number, i])}) as request:
                request.result({"y": torch.tensor([i, number])})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Recording.read(tmp_path)
    assert len(found.requests) == 400 and not found.gaps
    for request in found.requests:
        assert request.result is not None
        assert found.tensors(request.args.tensors)["x"].tolist() == found.tensors(request.result.tensors)["y"].tolist()[::-1]


@contextlib.contextmanager
def small_disk(disk: Path, size: str) -> Iterator[Path]:
    """A file system of its own, with a recording of it stopped before it is taken away."""
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield disk
    finally:
        recording.stop()
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to mount a file system")
def test_a_full_disk_is_survived_and_said(tmp_path: Path) -> None:
    """On a full disk the trainer goes on; what is missing is said, and when there is room again, it is recorded again."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        rt.record_requests(disk / "r", role="train", rank=0)
        with rt.recorded("before", {"x": torch.arange(1000)}):
            pass
        ballast = disk / "ballast"
        with pytest.raises(OSError) as full, ballast.open("wb", buffering=0) as file:
            while True:
                if file.write(bytes(4096)) < 4096:
                    raise OSError(errno.ENOSPC, "full")
        assert full.value.errno == errno.ENOSPC
        for size in (10, 1000, 100_000):
            with rt.recorded("full", {"x": torch.rand(size)}) as request:
                assert request.result(size) == size
        ballast.unlink()
        time.sleep(1.1)
        with rt.recorded("after", {"x": torch.arange(2000)}):
            pass
        recording.stop()
        found = Recording.read(disk / "r")
        methods = [request.method for request in found.requests]
        assert methods[0] == "before" and methods[-1] == "after"
        assert any(request.method == "full" and request.args.kept is False for request in found.requests) or any("could not be written" in gap for gap in found.gaps)
        assert found.tensors(found.requests[-1].args.tensors)["x"].tolist() == list(range(2000))
        for request in found.requests:
            if request.args.kept:
                found.tensors(request.args.tensors)


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to mount a file system")
def test_half_of_a_small_disk_is_left_to_the_trainer(tmp_path: Path) -> None:
    """A recording must not be what fills a disk: what does not fit is not kept, and that is said."""
    with small_disk(tmp_path / "disk", "8m") as disk:
        rt.record_requests(disk / "r", role="train", rank=0)
        for step in range(12):
            with rt.step(step), rt.recorded("train", {"x": torch.full((1 << 18,), step)}):
                pass
        recording.stop()
        free = os.statvfs(disk)
        assert free.f_bavail * free.f_frsize >= 3 << 20
        kept = [request.args.kept for request in Recording.read(disk / "r").requests]
        assert kept[0] and not all(kept) and len(kept) == 12


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """A file where the folder should be, as any other folder without rights: the work goes on."""
    (tmp_path / "file").write_text("")
    rt.record_requests(tmp_path / "file" / "r", role="train", rank=0)
    with rt.recorded("m", {"x": torch.rand(5)}) as request:
        assert request.result(3) == 3
    with pytest.raises(RcaError):
        Recording.read(tmp_path)


def test_a_folder_that_is_taken_away_comes_again(tmp_path: Path) -> None:
    """Somebody cleans up below a run that goes on: what comes after is whole."""
    import shutil

    rt.record_requests(tmp_path / "r", role="train", rank=0)
    with rt.recorded("a", {"x": torch.rand(5)}):
        pass
    shutil.rmtree(tmp_path / "r")
    time.sleep(0.06)
    for number in range(3):
        with rt.recorded(f"b{number}", {"x": torch.full((5,), number), "y": torch.full((50_000,), number)}):
            pass
    found = Recording.read(tmp_path / "r")
    assert found.tensors(found.requests[-1].args.tensors)["x"].tolist() == [2] * 5


def test_what_has_odd_values_is_recorded_as_well_as_it_can_be(tmp_path: Path) -> None:
    """Objects that raise when they are looked at, cycles, tensors without numbers: the work goes on, the rest is told."""

    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text")

    around: list[object] = []
    around.append(around)
    rt.record_requests(tmp_path, role="train", rank=0)
    with rt.recorded("m", {"around": around, "meta": torch.empty(3, device="meta"), "sparse": torch.eye(3).to_sparse(), "c": torch.view_as_complex(torch.ones(2, 2)).conj(), "nan": float("nan")}):
        pass
    (one,) = Recording.read(tmp_path).requests
    given = Recording.read(tmp_path).tensors(one.args.tensors)
    assert torch.equal(given["sparse"], torch.eye(3)) and given["c"].tolist() == [1 - 1j, 1 - 1j] and "cannot be read" in str(one.args.values["meta"])
    with rt.recorded("odd", {"x": Odd()}) as request:
        assert request.result(1) == 1
    guard.faults.clear()
