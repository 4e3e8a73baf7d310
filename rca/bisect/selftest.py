"""Test one machine alone for wrong results: the miniature with known numbers on each core in turn, or on each device.

Each core is tested by itself (the scheduler is asked to keep to it, and torch to one thread), so that one bad core is named. Faults that show only sometimes need
time: `seconds` says for how long each core or device is kept at it.

Source: single cores that compute wrongly: Hochschild et al., "Cores that don't count", HotOS 2021.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rca.bisect.miniature import MATMULS, ON_GPUS, SIZES, STEPS, Difference, Size, Wrong, train
from rca.errors import RcaError
from rca.replay_trainer.bit_flip import flip_bit

FLIP = re.compile(r"(\d{1,3}):(\w{1,3}):(\d{1,9}):(\d{1,2})")


@dataclass(frozen=True)
class Tested:
    """What one core or device gave."""

    where: str  # `core 3`, `cuda:0`
    trainings: int
    seconds: float
    difference: Difference | None


def flip_of(text: str) -> Wrong:
    """STEP:TENSOR:ELEMENT:BIT, for demonstration: that bit of that element of that matmul's output is another one. Raises RcaError for what is none."""
    match = FLIP.fullmatch(text)
    if not match or int(match[1]) >= STEPS or match[2] not in MATMULS:
        raise RcaError(f"no bit to flip: `{text[:60]}`", hint=f"STEP:TENSOR:ELEMENT:BIT, as in 2:y:100:22; steps 0 to {STEPS - 1}, tensors {', '.join(MATMULS)}")
    at, name, element, bit = int(match[1]), match[2], int(match[3]), int(match[4])

    def wrong(number: int, product: str, tensor: Tensor) -> None:
        if number == at and product == name:
            flip_bit(tensor, element, bit % (8 * tensor.element_size()))

    return wrong


def cores_of(text: str) -> list[int]:
    """`all`, or `0,2-5`, of those that this process may use. Raises RcaError."""
    if not hasattr(os, "sched_getaffinity"):
        raise RcaError("this system does not let a process choose its core")
    allowed = sorted(os.sched_getaffinity(0))
    if text == "all":
        return allowed
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        last = last if dash else first
        if not (first.isascii() and last.isascii() and first.isdigit() and last.isdigit()) or len(last) > 6 or int(last) < int(first):
            raise RcaError(f"no list of cores: `{text[:60]}`", hint="all, or numbers like 0,2-5")
        found += range(int(first), int(last) + 1)
    if missing := [core for core in found if core not in allowed]:
        raise RcaError(f"this process may not use core {missing[0]}", hint=f"it has {len(allowed)} cores: {allowed[0]} to {allowed[-1]}")
    return list(dict.fromkeys(found))


def on_cores(cores: list[int], seconds: float, wrong: Wrong | None = None, heard: Callable[[str], None] = lambda where: None) -> Iterator[Tested]:
    """Test cores one after the other; `wrong` is for the last of them. What the process may use is as before afterwards."""
    allowed, threads = os.sched_getaffinity(0), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for core in cores:
            heard(f"core {core}")
            os.sched_setaffinity(0, {core})
            yield _test(f"core {core}", "cpu", SIZES, seconds, wrong if core == cores[-1] else None)
    finally:
        os.sched_setaffinity(0, allowed)
        torch.set_num_threads(threads)


def on_devices(device: str, seconds: float, wrong: Wrong | None = None, heard: Callable[[str], None] = lambda where: None) -> Iterator[Tested]:
    """Test `cuda`, all GPUs, or one as `cuda:2`, with and without TF32. Raises RcaError for one that is not there."""
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", device)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not match:
        raise RcaError(f"no device: `{device[:40]}`", hint="cuda, or cuda:0")
    if not count or (match[1] and int(match[1]) >= count):
        raise RcaError(f"there is no device `{device}`: torch sees {count} GPUs")
    names = [f"cuda:{index}" for index in ([int(match[1])] if match[1] else range(count))]
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for name in names:
            heard(name)
            yield _test(name, name, (*SIZES, *ON_GPUS), seconds, wrong if name == names[-1] else None)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _test(where: str, device: str, sizes: tuple[Size, ...], seconds: float, wrong: Wrong | None) -> Tested:
    """Each size in each format at least once, on a GPU with and without TF32; then again until the time is over or a number is wrong."""
    began, trainings = time.monotonic(), 0
    for turn in itertools.count():
        for size in sizes:
            for kind in size.formats:
                if turn and time.monotonic() - began >= seconds and (device == "cpu" or turn > 1):
                    return Tested(where, trainings, time.monotonic() - began, None)
                if device != "cpu":
                    torch.backends.cuda.matmul.allow_tf32 = bool(turn % 2)
                found = train(size, kind, device, (wrong,))
                trainings += 1
                if found is not None:
                    return Tested(where, trainings, time.monotonic() - began, found)
    raise AssertionError("counted to the end")
