"""What a group is made of: whole model-parallel replicas, so that every group runs the job with its own tp and pp, and only dp is smaller.

A replica of tp·pp GPUs may span several hosts, or several replicas share one. A unit is the fewest hosts that hold whole replicas; a bad host is found as its unit.

Source: ByteRobust, arXiv:2509.16293: dual-phase replay keeps the sizes of tensor and pipeline parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rca.errors import RcaError


@dataclass(frozen=True)
class Layout:
    """How the job lies on hosts."""

    tp: int = 1
    pp: int = 1
    gpus_per_host: int = 8

    def hosts_per_unit(self) -> int:
        """The fewest hosts that hold a whole number of replicas and nothing else.

        >>> Layout(tp=8, pp=4).hosts_per_unit(), Layout(tp=4).hosts_per_unit(), Layout().hosts_per_unit()
        (4, 1, 1)
        """
        for name, value in (("--tp", self.tp), ("--pp", self.pp), ("--gpus-per-host", self.gpus_per_host)):
            if not 1 <= value <= 100_000:
                raise RcaError(f"{name} must be 1 or more: `{value}`")
        size = self.tp * self.pp
        return math.lcm(size, self.gpus_per_host) // self.gpus_per_host

    def units(self, hosts: Sequence[str]) -> tuple[list[list[str]], list[str]]:
        """Units of neighbouring hosts, in order, and the hosts at the end that make no whole unit."""
        size = self.hosts_per_unit()
        whole = len(hosts) // size * size
        if not whole:
            raise RcaError(f"{len(hosts)} hosts hold no whole replica: tp {self.tp} x pp {self.pp} takes {size} hosts of {self.gpus_per_host} GPUs")
        return [list(hosts[first : first + size]) for first in range(0, whole, size)], list(hosts[whole:])
