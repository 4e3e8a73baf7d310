"""Settings of the run that a program prints when it starts: one object, one `Namespace(...)` or `key=value` by `key=value`.

>>> read('config: {"weight_update": "disk", "colocate": true, "world_size": 12, "batch_size": 768, "rpc_timeout": 7200}')
{'weight_sync': 'disk', 'colocated': True, 'world_size': 12, 'batch_size': 768, 'timeouts': {'rpc_timeout': 7200}}
>>> read("serving on ox-4 (10.8.0.14), pid 6900; config weight_update=disk colocate=True batch=64")
{'weight_sync': 'disk', 'colocated': True, 'batch_size': 64}
>>> read("step=12 batch_size=64 loss=0.3"), read("RPC timeout=60 s after 3 tries"), read("colocate=true")
({}, {}, {})
"""

from __future__ import annotations

import re
from typing import Any

LONGEST = 16 << 10
FEWEST = 2  # known settings in one line: a single one may be said of anything
WORDS = ("weight_update", "weight_sync", "colocat", "hybrid_engine", "rpc_timeout", "update_timeout", "rollout_batch_size", "namespace(")  # what the gate looks for
PAIR = re.compile(r"""["']?([A-Za-z_][\w.-]{2,80})["']?\s?[:=]\s?(?:"([^"]{0,200})"|'([^']{0,200})'|([^\s,;(){}\[\]]{1,120}))""", re.ASCII)
NAMES = {
    "weight_update": "weight_sync", "weight_update_mode": "weight_sync", "weight_update_type": "weight_sync", "weight_sync": "weight_sync", "weight_sync_mode": "weight_sync", "weight_sync_method": "weight_sync",
    "weight_sync_backend": "weight_sync", "update_weights_mode": "weight_sync", "colocate": "colocated", "colocated": "colocated", "colocate_all": "colocated", "colocate_all_models": "colocated", "colocate_actor_rollout": "colocated",
    "hybrid_engine": "colocated", "batch": "batch_size", "batch_size": "batch_size", "train_batch_size": "batch_size", "rollout_batch_size": "batch_size", "global_batch_size": "batch_size", "world_size": "world_size",
    "rollout_workers": "rollout_workers", "save_path": "save_path", "default_local_dir": "save_path",
}  # fmt: skip
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def read(text: str) -> dict[str, Any]:
    """The known settings of one line; empty where the line is no list of settings."""
    found: dict[str, Any] = {}
    if re.search(r"\b(?:loss|step|iter)\s?[=:]", text[:200]):
        return found
    timeouts: dict[str, int | float] = {}
    for key, double, single, bare in PAIR.findall(text[:LONGEST]):
        key, value = key.rsplit(".", 1)[-1].lower(), double or single or bare
        if name := NAMES.get(key):
            if name not in found and (known := _value(name, value)) is not None:
                found[name] = known
        elif key.endswith(("timeout", "timeout_s", "timeout_seconds")) and isinstance(number := _number(value), int | float):
            timeouts.setdefault(key, number)
    return (found | ({"timeouts": timeouts} if timeouts else {})) if len(found) + len(timeouts) >= FEWEST and found else {}


def _value(name: str, value: str) -> Any:
    low = value.strip().lower()
    if name == "colocated":
        return True if low in TRUE else False if low in FALSE else None
    if name in ("weight_sync", "save_path"):
        return (low if name == "weight_sync" else value) or None
    return _number(value)


def _number(value: str) -> int | float | None:
    value = value.strip().rstrip("s")
    if re.fullmatch(r"\d{1,12}", value):
        return int(value)
    return float(value) if re.fullmatch(r"\d{1,12}\.\d{1,6}", value) else None
