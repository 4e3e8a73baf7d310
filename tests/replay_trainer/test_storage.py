"""The storage of a cluster fails as real storage does, on every host, and comes back."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from replay_trainer.scenes import need, python, state, until

from rca.errors import RcaError
from rca.replay_trainer import kernel_log
from rca.replay_trainer.hosts import Cluster
from rca.replay_trainer.storage import Storage

pytestmark = pytest.mark.real
WRITE = """
import errno, os
try:
    with open("/mnt/ckpt/a", "wb") as out:
        out.write(b"x" * 10000)
        out.flush()
        os.fsync(out.fileno())
    print("ok")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@pytest.fixture(params=["tmpfs", "ext4"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    need("network namespaces", "mount namespaces", *(["loop devices"] if request.param == "ext4" else []))
    with Cluster(["a", "b"], storage=Storage(request.param, 16 << 20)) as made:
        yield made


def writes(cluster: Cluster, tmp_path: Path) -> list[str]:
    """What a write gives on each host."""
    found = []
    for host in cluster:
        log = tmp_path / host.name
        log.unlink(missing_ok=True)
        assert python(host, WRITE, log=log).wait(20) == 0
        found.append(log.read_text().strip())
    return found


def test_full(cluster: Cluster, tmp_path: Path) -> None:
    """Not a byte is left, no file is to be seen, and all comes back."""
    assert cluster.storage
    before = cluster.storage.free_bytes
    assert before > 8 << 20
    cluster.storage.fill()
    assert cluster.storage.free_bytes == 0
    assert writes(cluster, tmp_path) == ["ENOSPC"] * 2
    assert cluster["a"].run(["ls", "-A", "/mnt/ckpt"]).stdout in ("", "a\n")
    cluster.storage.free()
    assert writes(cluster, tmp_path) == ["ok"] * 2
    assert cluster.storage.free_bytes > before - (1 << 20)


def test_read_only(cluster: Cluster, tmp_path: Path) -> None:
    """The file system itself is read-only, on all hosts, even where a host entered before; what it holds can be read."""
    assert cluster.storage
    assert writes(cluster, tmp_path) == ["ok"] * 2
    cluster.storage.read_only()
    assert writes(cluster, tmp_path) == ["EROFS"] * 2
    assert cluster["b"].run(["wc", "-c", "/mnt/ckpt/a"]).stdout.startswith("10000")
    cluster.storage.writable()
    assert writes(cluster, tmp_path) == ["ok"] * 2


def test_a_file_that_stays_open_keeps_it_writable(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a checkpoint that is being written, and says why it gives up."""
    monkeypatch.setattr("rca.replay_trainer.storage.BUSY_S", 0.2)
    assert cluster.storage
    with (cluster.storage.folder / "open").open("w"), pytest.raises(RcaError, match="busy"):
        cluster.storage.read_only()
    cluster.storage.read_only()


@pytest.mark.parametrize("ended_by", ["thaw", "end of the cluster"])
def test_frozen(ended_by: str) -> None:
    """A writer hangs in an uninterruptible sleep and goes on afterwards; the end of the cluster thaws by itself."""
    need("network namespaces", "mount namespaces", "loop devices", "freezable file system")
    with Cluster(["a"], storage=Storage("ext4", 16 << 20)) as cluster:
        assert cluster.storage
        cluster.storage.freeze()
        writer = python(cluster["a"], WRITE)
        waits = Path(f"/proc/{writer.pid}/wchan")
        assert until(lambda: state(writer.pid) == "D" and "percpu_rwsem" in waits.read_text()), "it may sleep for other reasons while it starts"
        writer.kill()
        time.sleep(0.1)
        assert state(writer.pid) == "D", "it cannot even be killed"
        if ended_by == "thaw":
            cluster.storage.thaw()
            assert writer.wait(10) == -9
            cluster.storage.thaw()  # twice is no error
    assert writer.wait(10) == -9
    with pytest.raises(RcaError, match="not mounted"):
        assert cluster.storage.folder


def test_device_errors(tmp_path: Path) -> None:
    """Writes give EIO, then the file system turns read-only; the kernel says why."""
    need("network namespaces", "mount namespaces", "loop devices", "kernel log")
    with Cluster(["a", "b"], storage=Storage("ext4", 16 << 20)) as cluster:
        storage = cluster.storage
        assert storage and storage.device
        (storage.folder / "old").write_bytes(os.urandom(1 << 20))
        subprocess.run(["sync", "-f", storage.folder], check=True)
        mark = kernel_log.mark()
        storage.break_device()
        assert writes(cluster, tmp_path)[0] == "EIO"
        assert until(lambda: writes(cluster, tmp_path) == ["EROFS"] * 2)
        direct = cluster["a"].run(["dd", "if=/mnt/ckpt/old", "of=/dev/null", "iflag=direct"]).stderr
        assert os.strerror(errno.EIO) in direct
        lines = kernel_log.about(kernel_log.since(mark), [storage.device])
        for words in ("I/O error, dev ", "Aborting journal on device", "Detected aborted journal", "Remounting filesystem read-only"):
            assert any(words in line for line in lines), words
        assert not any("unmounting" in line for line in lines)


def test_what_cannot_be_done_is_said() -> None:
    """A tmpfs has no device to break and cannot be frozen; there are two kinds, and a smallest size."""
    for kind, size in (("nfs", 1 << 30), ("ext4", 4096)):
        with pytest.raises(RcaError, match="storage"):
            Storage(kind, size)
    with pytest.raises(RcaError, match="frozen"):
        Storage().freeze()
    with pytest.raises(RcaError, match="no device"):
        Storage().break_device()


def test_nothing_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Image and scratch folders are gone or were never there."""
    need("network namespaces", "mount namespaces", "loop devices")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Cluster(["a"], storage=Storage("ext4")) as cluster:
        assert not list(tmp_path.iterdir())
        assert cluster["a"].run(["sh", "-c", "ls -A /mnt/ckpt"], 5).stdout == ""
