"""The table of names: what a tool prints -> our name and the factor to our unit (`names.toml`)."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path


@lru_cache
def table() -> dict[str, tuple[str, float]]:
    """Printed name in lower case -> (our name, factor).

    >>> table()["dcgm_fi_dev_xid_errors"], table()["memory.used"]
    (('gpu.xid', 1.0), ('gpu.mem_used', 1048576.0))
    """
    found: dict[str, tuple[str, float]] = {}
    for name, entry in tomllib.loads((Path(__file__).parent / "names.toml").read_text("utf-8")).items():
        found[name] = name, 1.0  # as the sampler of `rca.trace_inject` writes it
        for alias in entry["also"]:
            printed, _, factor = alias.partition("*")
            if printed in found:
                raise ValueError(f"{printed} means {found[printed][0]} and {name}")
            found[printed] = name, float(factor or 1)
    return found
