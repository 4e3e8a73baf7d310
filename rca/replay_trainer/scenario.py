"""A scenario as data: what runs, on which hosts, what breaks when, and what is true. `scenarios/<nn>_<slug>/scenario.toml`.

Placeholders in texts, filled for one variation: `$rank`, `$step` (also `$step+1`, `$step-1`), every name that `[vary]` lists, and `$host`, where that rank of the role of the last fault lives. A text that is nothing but a
placeholder becomes the value itself.

`[truth]` is what truth.json says, with two words of its own: `replay`, what replaying the run's requests gives (reproduces, does not reproduce, diverges; healthy where none failed), and
`finishes = true` for a fault that nobody sees: the run ends as it should, and its logs alone allow no other answer than healthy or inconclusive.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rca.errors import RcaError

NAME = "scenario.toml"
PLACEHOLDER = re.compile(r"\$([a-z_]+)(?:([+-])(\d+))?")
REQUIRED = {"title": str, "settings": dict, "hosts": dict, "truth": dict}
KNOWN = {*REQUIRED, "rule", "synthetic", "storage", "vary", "act", "attempt", "alternative", "skew_s", "telemetry", "limit_s"}
DECOYS = ("ecc_corrected", "old_boot", "other_disk")
TELEMETRY = ("all", "no samples", "no traces")


@dataclass(frozen=True)
class Act:
    """One fault: at the point `at`, `fault` is made to `role`/`rank` with the arguments `how`."""

    at: str
    fault: str
    role: str
    rank: int
    how: Mapping[str, Any]
    undo_at: str | None = None  # another point; at the end of the attempt otherwise


@dataclass(frozen=True)
class Scenario:
    """One variation of a scenario, with all placeholders filled."""

    name: str
    folder: Path
    title: str
    values: Mapping[str, Any]  # of what varies
    settings: Mapping[str, Any]
    hosts: Mapping[str, str]
    acts: tuple[Act, ...]
    attempts: tuple[Mapping[str, Any], ...]  # settings of further attempts
    truth: Mapping[str, Any]
    storage: Mapping[str, Any] | None = None
    synthetic: tuple[str, ...] = ()
    skew_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    telemetry: str = "all"
    limit_s: float = 120.0  # of one attempt

    def host_of(self, role: str, rank: int) -> str:
        return self.hosts.get(f"{role}/{rank}") or self.hosts[role]


def root() -> Path:
    """Where the scenarios lie: beside the package in a checkout, in it when installed."""
    inside = Path(__file__).resolve().parents[1] / "scenarios"
    return inside if inside.is_dir() else inside.parents[1] / "scenarios"


def names(folder: Path | None = None) -> list[str]:
    """All scenarios, sorted."""
    return sorted(path.parent.name for path in (folder or root()).glob(f"*/{NAME}"))


def resolve(asked: str) -> list[str]:
    """Names of scenarios: `all`, a name, or its number. Raises RcaError."""
    known = names()
    if asked == "all":
        return known
    found = [name for name in known if name == asked or name.split("_", 1)[0] == asked or name.split("_", 1)[-1] == asked]
    if not found:
        raise RcaError(f"no such scenario: `{asked}`", hint="`rca scenarios list` names them")
    return found


def load(name: str, variation: int = 0, folder: Path | None = None) -> Scenario:
    """A scenario; variation 0 is the first of everything that varies, others are drawn by their number. Raises RcaError for one that is not well-formed."""
    path = (folder or root()) / name / NAME
    return _made(path, lambda data: _choose(data, variation, name))


def again(truth: Any, folder: Path | None = None) -> Scenario:
    """The scenario as it was played when this truth was written: `id` and `values` of truth.json. What the scenario did not vary then is the first of what it varies now. Raises RcaError."""
    name, values = (truth.get("id"), truth.get("values")) if isinstance(truth, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(values, dict):
        raise RcaError("the truth does not say which scenario was played: it needs `id` and `values`")
    if name not in names(folder):
        raise RcaError(f"no such scenario: `{name}`", hint="`rca scenarios list` names them")
    return _made((folder or root()) / name / NAME, lambda data: _choose(data, 0, name) | values)


def _made(path: Path, choose: Callable[[dict[str, Any]], dict[str, Any]]) -> Scenario:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RcaError(f"cannot read the scenario: {error}", where=str(path)) from error
    for key, kind in REQUIRED.items():
        if not isinstance(data.get(key), kind):
            raise RcaError(f"a scenario needs `{key}`", where=str(path))
    if unknown := data.keys() - KNOWN:
        raise RcaError(f"no such part of a scenario: `{sorted(unknown)[0]}`", where=str(path))
    try:
        return _one(data, choose(data), path)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RcaError(f"the scenario is not well-formed: {type(error).__name__}: {error}", where=str(path), hint="compare with the others: `scenarios/04_save_fault_poisons_weights`") from error


def _one(data: dict[str, Any], chosen: dict[str, Any], path: Path) -> Scenario:
    if number := chosen.get("alternative"):
        _overlay(data, data["alternative"][number - 1])
    if "rank" in chosen and data.get("act"):  # `$host` is where the rank of the last fault lives
        role = data["act"][-1].get("role", "train")
        chosen["host"] = data["hosts"].get(f"{role}/{chosen['rank']}") or data["hosts"].get(role)
    filled = _fill({key: value for key, value in data.items() if key not in ("vary", "alternative")}, chosen, path)
    acts = tuple(Act(**({"how": {}, "role": "train", "rank": 0} | act)) for act in filled.get("act", ()))
    if decoy := chosen.get("decoy"):
        acts = (Act(acts[0].at, "decoy", chosen["decoy_role"], 0, {"kind": decoy}), *acts)
    skew = {host: float(value) for host, value in filled.get("skew_s", {}).items()}
    if chosen.get("skew_s"):
        skew[chosen["skewed_host"]] = chosen["skew_s"]
    return Scenario(
        path.parent.name, path.parent, data["title"], chosen, filled["settings"], filled["hosts"], acts, tuple(filled.get("attempt", ())), filled["truth"], filled.get("storage"),
        tuple(filled.get("synthetic", ())), skew, chosen.get("telemetry", filled.get("telemetry", "all")), float(filled.get("limit_s", 120.0)),
    )  # fmt: skip


def _choose(data: Mapping[str, Any], variation: int, name: str) -> dict[str, Any]:
    """A value for all that varies. Beside what the scenario lists, the clock of one host, the telemetry and what fools a reader do."""
    drawn = random.Random(f"{name}-{variation}")
    vary = dict(data.get("vary", {}))
    if data.get("alternative"):
        vary["alternative"] = list(range(len(data["alternative"]) + 1))
    chosen = {key: (drawn.choice(options) if variation else options[0]) for key, options in sorted(vary.items())}
    if variation:
        hosts = sorted(set(data["hosts"].values()))
        if len(hosts) > 1 and drawn.random() < 0.4:
            chosen |= {"skew_s": drawn.choice([-2.7, 1.9, 4.2]), "skewed_host": drawn.choice(hosts)}
        if data.get("act") and drawn.random() < 0.5:
            flaps = chosen.get("sync", data["settings"].get("weight_sync")) != "collective"  # else the weights would go over that link
            chosen |= {"decoy": drawn.choice([*DECOYS, *(["link_flap"] if flaps else [])]), "decoy_role": drawn.choice(["rollout", "train"])}
        chosen["telemetry"] = drawn.choice([*itertools.repeat("all", 3), *(data["vary"].get("telemetry") or TELEMETRY[1:])]) if "vary" in data else "all"
    return chosen


def _overlay(data: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(data.get(key), dict):
            _overlay(data[key], value)
        else:
            data[key] = value


def _fill(value: Any, chosen: Mapping[str, Any], path: Path) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, chosen, path) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, chosen, path) for inner in value]
    if not isinstance(value, str) or "$" not in value:
        return value

    def one(found: re.Match[str]) -> Any:
        if found[1] not in chosen:
            raise RcaError(f"nothing says what `${found[1]}` is", where=str(path), hint="[vary] lists it")
        got = chosen[found[1]]
        return got if not found[2] else got + int(found[2] + found[3])

    whole = PLACEHOLDER.fullmatch(value)
    return one(whole) if whole else PLACEHOLDER.sub(lambda found: str(one(found)), value)
