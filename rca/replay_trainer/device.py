"""The memory of a device, booked by who uses it: what lets colocated roles collide, and fail, as they do on a GPU.

A device is a folder that its users share: one file per owner with the bytes that it holds, `fault` when it is broken: the error, and which operations touch the
broken part, and `wrong` when it computes wrongly and says nothing. The budget is a stand-in; its errors are synthetic, in CUDA's words, without a GPU, and CUDA's own with one. The error
stays, as a CUDA context keeps its error until the process ends (CUDA C Programming Guide, 3.2.12 Error Checking).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from rca.replay_trainer.bit_flip import Flip

FAULT = "fault"
WRONG = "wrong"  # a `bit_flip.Flip`
BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")  # of a machine with eight devices
LEAK = "leak"  # bytes that one owner loses at each `work`, written by a fault


class Device:
    """One device as one process sees it. `owner` is its role and rank, `train-0`."""

    def __init__(self, folder: Path, capacity_bytes: int, owner: str, index: int = 0) -> None:
        self.folder, self.capacity_bytes, self.owner, self.index = folder, capacity_bytes, owner, index
        self._broken: str | None = None
        self._standing = False  # whether `hold` took what lasts
        self._mine = 0  # bytes that this process holds
        self._computed = 0  # calls while it computed wrongly
        self._wrong = str(folder / WRONG)
        folder.mkdir(parents=True, exist_ok=True)

    def describe(self) -> str:
        """One line for the log of whoever uses it, in the words of TensorFlow's device factory."""
        if torch.cuda.is_available():
            about = torch.cuda.get_device_properties(self.index % torch.cuda.device_count())
            return f"device: {self.index}, name: {about.name}, pci bus id: {about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
        return f"device: {self.index}, name: stand-in without a GPU, pci bus id: 0000:{BUSES[self.index % len(BUSES)]}:00.0, {_mib(self.capacity_bytes)}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def held(self) -> dict[str, tuple[int, int]]:
        """Who holds how much: owner -> (pid, bytes). The memory of a process that is gone is free."""
        found = {}
        for path in sorted(self.folder.glob("*.held")):
            try:
                pid, size = path.read_text().split()
                os.kill(int(pid), 0)
            except (OSError, ValueError):
                continue
            found[path.stem] = (int(pid), int(size))
        return found

    def state(self) -> dict[str, int | bool]:
        """What this process holds of it, and whether that lasts."""
        return {"held": self._mine, "standing": self._standing}

    def check(self, what: str) -> None:
        """Raise what the device says if it is broken and `what` touches the broken part; from then on for ever."""
        if self._broken is None:
            with contextlib.suppress(OSError, ValueError):
                fault = json.loads((self.folder / FAULT).read_text())
                if not fault["touched_by"] or what in fault["touched_by"]:
                    self._broken = fault["error"]
        if self._broken is not None:
            if torch.cuda.is_available() and "assert" in self._broken:
                _assert_on_device()
            raise RuntimeError(
                f"CUDA error: {self._broken}\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
                "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
            )

    def take(self, size_bytes: int) -> None:
        """Hold `size_bytes` more. Raises torch.OutOfMemoryError in the words of CUDA's allocator."""
        self.check("take")
        with self._locked():
            held = self.held()
            used, mine = sum(size for _, size in held.values()), held.get(self.owner, (0, 0))[1]
            if used + size_bytes > self.capacity_bytes:
                if torch.cuda.is_available():  # the budget is ours, the error is the device's own
                    torch.empty(2 * torch.cuda.get_device_properties(0).total_memory, dtype=torch.uint8, device="cuda")
                others = "".join(f" Process {pid} has {_mib(size)} memory in use." for owner, (pid, size) in held.items() if owner != self.owner)
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {_mib(size_bytes)}. GPU {self.index} has a total capacity of {_mib(self.capacity_bytes)} of which "
                    f"{_mib(self.capacity_bytes - used)} is free.{others} Including non-PyTorch memory, this process has {_mib(mine)} memory in use."
                )
            self._hold(mine + size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Take what lasts until everything is released; once. Raises as `take` does."""
        if not self._standing:
            self.take(size_bytes)
            self._standing = True

    def restore(self, held: int = 0, standing: bool = False) -> None:
        """Have so much of it, as in the recording of another run, and no more."""
        with self._locked():
            self._hold(held)
        self._standing = standing

    def release(self, size_bytes: int | None = None) -> None:
        """Give `size_bytes` back, or everything."""
        if size_bytes is None:
            self._standing = False
        with self._locked():
            mine = self.held().get(self.owner, (0, 0))[1]
            self._hold(0 if size_bytes is None else max(0, mine - size_bytes))

    @contextlib.contextmanager
    def work(self, size_bytes: int) -> Iterator[None]:
        """Hold `size_bytes` while something is computed; a leak that a fault has set is not given back. Raises as `take` does."""
        self.take(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes - self._lost())

    def computing(self, model: torch.nn.Module, what: str) -> contextlib.AbstractContextManager[None]:
        """The block in which the call `what` computes with a model: really wrong, without an error, where the device computes wrongly. Costs a look at one file."""
        try:
            with open(self._wrong) as file:
                flip = Flip.of_json(file.read())
        except (OSError, ValueError, TypeError, KeyError):
            return contextlib.nullcontext()
        self._computed += 1
        return flip.in_model(model) if flip.touches(what, self.owner, self._computed) else contextlib.nullcontext()

    def _lost(self) -> int:
        try:
            return int((self.folder / f"{self.owner}.{LEAK}").read_text())
        except (OSError, ValueError):
            return 0

    def _hold(self, size_bytes: int) -> None:
        self._mine = max(0, size_bytes)
        path = self.folder / f"{self.owner}.held"
        if size_bytes <= 0:
            path.unlink(missing_ok=True)
            return
        aside = path.with_suffix(".new")
        aside.write_text(f"{os.getpid()} {size_bytes}")
        aside.replace(path)


def _assert_on_device() -> None:
    """Read out of bounds in a kernel: a real device-side assert, after which every call of this process's context fails with it."""
    torch.zeros(1, device="cuda")[torch.full((1,), 7, device="cuda")]
    torch.cuda.synchronize()


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.2f} MiB"
