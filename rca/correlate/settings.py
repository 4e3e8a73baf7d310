"""What the run was configured to do, and who wrote its program, from what its files print."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from rca.correlate.identity import Identity
from rca.model import Reading

#: What others are built of: named only where nothing above it was recognised.
TRAINERS = frozenset({"megatron", "deepspeed", "torchtitan", "nemo", "lightning", "transformers", "accelerate", "colossalai"})
ENGINES = frozenset({"vllm", "sglang", "ray"})


def merged(identity: Identity) -> dict[str, Any]:
    """The settings of the run: what most writers say, the controller before the others."""
    found: dict[str, Any] = {}
    timeouts: dict[str, Any] = {}
    for writer in sorted(identity.writers, key=lambda w: (w.role != "controller", w.source, w.stream)):
        said = writer.info["facts"].get("settings") or {}
        for name, value in said.items():
            if name != "timeouts":
                found.setdefault(name, value)
        for name, value in (said.get("timeouts") or {}).items():
            timeouts.setdefault(name, value)
    return found | ({"timeouts": timeouts} if timeouts else {})


def named(readings: list[Reading]) -> list[Reading]:
    """The readings with the one framework of the run in `framework`, where any was recognised: trainers before what they are built of."""
    seen = Counter(f for r in readings for f in r.facts.get("frameworks") or ())
    if not seen:
        return readings
    chosen = min(seen, key=lambda f: ((f in TRAINERS) + 2 * (f in ENGINES), -seen[f], f))
    return [replace(r, facts=r.facts | {"framework": chosen}) if r.facts.get("frameworks") else r for r in readings]
