"""The file system of the checkpoints, shared by all hosts of a cluster, and the ways it fails: full, read-only, frozen, broken."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from rca.errors import RcaError
from rca.replay_trainer import namespaces, programs

KINDS = ("tmpfs", "ext4")
SMALLEST = {"tmpfs": 1 << 16, "ext4": 8 << 20}  # bytes; a much smaller ext4 has no journal, and an aborted journal is what turns it read-only
BUSY_S = 5.0  # a checkpoint that is being written keeps the file system writable until it is closed
FIRST_CHUNK = 1 << 26


class Storage:
    """One file system of `size_bytes`. It is memory: an ext4 lies in a memory file behind a loop device, so that nothing is left on disk however the run ends.

    `Cluster` mounts it. All that is done to it is done to the file system itself, not to one mount of it, so that every host sees it.
    """

    PLACE = namespaces.STORAGE

    def __init__(self, kind: str = "tmpfs", size_bytes: int = 64 << 20) -> None:
        if kind not in KINDS:
            raise RcaError(f"storage must be one of {', '.join(KINDS)}: `{kind}`")
        if size_bytes < SMALLEST[kind]:
            raise RcaError(f"storage of kind {kind} needs at least {SMALLEST[kind]} bytes: `{size_bytes}`")
        self.kind, self.size_bytes = kind, size_bytes
        self.device: str | None = None  # "loop0"
        self._keeper: int | None = None
        self._image: int | None = None
        self._filler: int | None = None

    def mounting(self) -> str:
        """The words of `mount` that precede the mount point. Makes the image of an ext4. Raises RcaError."""
        if self.kind == "tmpfs":
            return f"-t tmpfs -o size={self.size_bytes} tmpfs"
        self._image = os.memfd_create("ckpt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._image, self.size_bytes)
        path = f"/proc/{os.getpid()}/fd/{self._image}"
        programs.call(["mkfs.ext4", "-q", "-F", "-m", "0", path])
        return f"-o loop,errors=remount-ro {path}"

    def attach(self, keeper: int) -> None:
        """Told by the cluster once it is mounted in the mount namespace of process `keeper`."""
        self._keeper = keeper
        with contextlib.suppress(OSError):  # the folder that mkfs made would be seen in every listing of checkpoints
            (self.folder / "lost+found").rmdir()
        if self.kind == "ext4":
            self.device = os.path.basename(programs.call([*self._enter(), "findmnt", "-n", "-o", "SOURCE", self.PLACE]).strip())

    def detach(self) -> None:
        """Told by the cluster when all is unmounted."""
        self.free()
        if self._image is not None:
            os.close(self._image)
        self._image = self._keeper = self.device = None

    @property
    def folder(self) -> Path:
        """Its root, as this process can open it."""
        if self._keeper is None:
            raise RcaError("the storage is not mounted", hint="it is inside `with Cluster(...)` only")
        return Path(f"/proc/{self._keeper}/root{self.PLACE}")

    @property
    def free_bytes(self) -> int:
        stat = os.statvfs(self.folder)
        return stat.f_bavail * stat.f_frsize

    def fill(self) -> None:
        """Take all the space that is left, by a file without a name, as a log that was deleted while still open."""
        if self._filler is None:
            self._filler = os.open(self.folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC)
        end, chunk, block = os.fstat(self._filler).st_size, FIRST_CHUNK, os.statvfs(self.folder).f_frsize
        while self.free_bytes and chunk >= block:
            try:
                os.posix_fallocate(self._filler, end, chunk)
                end += chunk
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise RcaError(f"the storage cannot be filled: {error.strerror}") from error
                chunk //= 2

    def free(self) -> None:
        """Give back what `fill` took."""
        if self._filler is not None:
            os.close(self._filler)
            self._filler = None

    def read_only(self) -> None:
        """Make the file system read-only. Raises RcaError if a file stays open for writing."""
        self._remount("ro")

    def writable(self) -> None:
        self._remount("rw")

    def freeze(self) -> None:
        """Every write hangs in an uninterruptible sleep until `thaw`; the cluster's keeper thaws when all ends. Raises RcaError for tmpfs."""
        if self.kind != "ext4":
            raise RcaError(f"a {self.kind} cannot be frozen", hint="use ext4")
        programs.call([*self._enter(), "fsfreeze", "--freeze", self.PLACE])

    def thaw(self) -> None:
        with contextlib.suppress(RcaError):  # it is not frozen
            programs.call([*self._enter(), "fsfreeze", "--unfreeze", self.PLACE])

    def break_device(self, reads: bool = True) -> None:
        """The device behind an ext4 refuses every write from now on, and every read too: what is in the page cache can still be read.

        There is no undo. The memory file is cut to nothing and sealed against writing, so that the loop device gets EPERM, which the block layer calls an I/O error.
        """
        if self._image is None:
            raise RcaError(f"a {self.kind} has no device to break", hint="use ext4")
        if reads:
            os.ftruncate(self._image, 0)
        fcntl.fcntl(self._image, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)

    def _enter(self) -> list[str]:
        assert self.folder and self._keeper
        return namespaces.enter(self._keeper, "mount")

    def _remount(self, mode: str) -> None:
        end = time.monotonic() + BUSY_S
        while True:
            try:
                programs.call([*self._enter(), "mount", "--options-mode", "ignore", "-o", f"remount,{mode}", self.PLACE])
                return
            except RcaError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
