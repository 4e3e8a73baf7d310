"""What the attributes of spans mean, whoever wrote them: one table of names, one of stages.

>>> [field_of(k) for k in ("train.step", "dl.rank", "dl.tensor_parallel.rank", "rollout.global_step", "server.address", "http.scheme")]
['step', 'rank', None, 'step', 'peer_address', None]
>>> [stage_named(t) for t in ("weight-sync", "gen", "ref-logprobs", "actor-update", "ckpt-latest", "rl.grpo.policy_update", "megatron.checkpoint.save.io_write", "step 4")]
['weights_update', 'rollout', 'reference', 'train', 'latest_recover_save', 'train', 'save', None]
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

NAMES_MAX = 4096  # distinct keys remembered
VALUE_CUT = 120  # characters of a value in which a stage is looked for
NUMBERS = frozenset({"pid", "rank", "local_rank", "world", "gpu", "step", "attempt", "peer_port", "port", "http", "grpc", "resend", "count"})
DIGITS = re.compile(r"\s{0,4}(-?\d{1,18})(?:\.0{1,9})?\s{0,4}")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def _table() -> dict[str, Any]:
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        table = tomllib.load(file)
    table["field"] = {key: name for name, keys in table["names"].items() for key in keys}
    table["order"] = {key: number for keys in table["names"].values() for number, key in enumerate(keys)}
    table["other"] = frozenset(table["other"]["words"])
    table["stage"] = [(entry["is"], re.compile(entry["when"])) for entry in table["stage"]]
    return table


@lru_cache(maxsize=NAMES_MAX)
def field_of(key: str) -> str | None:
    """The field that an attribute of this name tells, or None for one that tells nothing we read."""
    table = _table()
    low = key[:VALUE_CUT].lower().replace("-", "_").replace("/", "_")
    if found := table["field"].get(low) or table["field"].get(key[:VALUE_CUT].lower()):
        return found
    snake = CAMEL.sub("_", key[:VALUE_CUT]).lower()
    if found := table["field"].get(snake):
        return found
    words = [w for w in re.split(r"[._ -]", snake) if w]
    for length in (2, 1):
        last = "_".join(words[-length:])
        if len(words) > length and last in table["last"] and not table["other"].intersection(words[:-length]):
            return table["last"][last]
    return None


@lru_cache(maxsize=NAMES_MAX)
def order_of(key: str) -> int:
    """Which of several names of one field comes first: the lower."""
    return _table()["order"].get(key.lower(), 99)


def number(value: Any) -> int | None:
    """A whole number, however it is written; None for what is none.

    >>> number("12"), number(3.0), number("0x10"), number(True), number("9" * 40)
    (12, 3, None, None, None)
    """
    if type(value) is int:
        return value if -(1 << 62) < value < 1 << 62 else None
    if type(value) is str and (match := DIGITS.fullmatch(value)):
        return int(match[1])
    if type(value) is float and value == value and abs(value) < 1 << 53 and value == int(value):
        return int(value)
    return None


def fields(attributes: dict[str, Any]) -> dict[str, Any]:
    """The fields that flat attributes tell; numbers are numbers."""
    found: dict[str, Any] = {}
    rank: dict[str, int] = {}
    for key, value in attributes.items():
        name = field_of(key) if type(key) is str else None
        if name is None or value is None:
            continue
        if name in NUMBERS and name != "grpc":
            value = number(value)
            if value is None:
                continue
        place = order_of(key)
        if name not in found or place < rank[name]:
            found[name], rank[name] = value, place
    return found


@lru_cache(maxsize=NAMES_MAX)
def stage_named(text: str) -> str | None:
    """The stage that a value or the name of a span speaks of, as the taxonomy calls it; None where it speaks of none."""
    low = CAMEL.sub("_", text[:VALUE_CUT]).lower()
    return next((stage for stage, pattern in _table()["stage"] if pattern.search(low)), None)
