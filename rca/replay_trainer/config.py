"""Every setting of a run, in one frozen object that is logged as it is and written beside the run."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rca.errors import RcaError

SYNCS = ("collective", "disk", "astate")
NAME, METRICS = "config.json", "metrics.jsonl"  # of the folder of a run
WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
DATA_ADDRESS = "RCA_TRAIN_DATA_ADDRESS"  # environment variable: the address of a host on the data network


@dataclass(frozen=True)
class Config:
    """One run. Times are seconds, sizes bytes; paths are as the workers see them."""

    # what is learned
    seed: int = 7
    steps: int = 80
    prompts: int = 16  # per step
    group: int = 16  # samples of one prompt: G of GRPO
    digits: int = 3  # length of the task's strings
    layers: int = 2
    width: int = 64
    heads: int = 4
    learning_rate: float = 2e-3
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl_weight: float = 0.001  # 0 leaves the reference stage out
    temperature: float = 1.0
    updates: int = 2  # optimizer steps on one batch; from the second on, ratios are not 1
    # the system around it
    train_ranks: int = 2
    reference_ranks: int = 1
    rollout_ranks: int = 2
    weight_sync: str = "astate"  # collective, disk or astate
    colocated: bool = False  # train rank i and rollout worker i take turns on device i
    device_bytes: int = 1 << 30  # the memory of one device where it is a stand-in
    latest_every: int = 1
    periodic_every: int = 10
    # what a cautious system does, and many do not: see docs/decisions/0008
    whole_checkpoints: bool = True  # write aside, sync, rename, verify before loading; else in place, and a failed save is a warning
    whole_batches: bool = True  # a rollout call that failed, or an answer that broke off, ends the step; else the loop goes on with what has come
    confirmed_events: bool = True  # a stage switch that a worker did not confirm ends the step; else the loop goes on
    meta_server_keeps: int = 2  # versions of the weights; 0 keeps all
    # patience
    rpc_timeout_s: float = 120.0
    event_timeout_s: float = 20.0
    weights_timeout_s: float = 60.0
    save_timeout_s: float = 60.0
    stop_timeout_s: float = 5.0
    collective_timeout_s: float = 60.0
    start_timeout_s: float = 180.0
    tries: int = 3  # of a call whose error may pass
    # what is kept of its requests, to run them again
    record: bool = True
    record_steps: int = 16  # the newest, whose tensors and files are kept
    record_bytes: int = 268435456  # at most, of one process
    # where
    checkpoints: str = "checkpoints"  # below the run's folder, or an absolute path
    periodic_checkpoints: str = ""  # where those of kind periodic lie, if elsewhere
    recover_from: str = "latest"  # or "periodic"
    hold_at: tuple[str, ...] = field(default=())  # see `holds`

    def __post_init__(self) -> None:
        def wrong(name: str, wanted: str) -> RcaError:
            return RcaError(f"`{name}` must be {wanted}: `{getattr(self, name)}`")

        if self.weight_sync not in SYNCS:
            raise wrong("weight_sync", f"one of {', '.join(SYNCS)}")
        if self.recover_from not in ("latest", "periodic"):
            raise wrong("recover_from", "latest or periodic")
        for name in ("steps", "prompts", "digits", "layers", "width", "heads", "updates", "train_ranks", "rollout_ranks", "tries", "latest_every", "periodic_every", "record_steps"):
            if getattr(self, name) < 1:
                raise wrong(name, "at least 1")
        for name in (f.name for f in dataclasses.fields(self) if f.type == "float"):
            if not math.isfinite(getattr(self, name)):
                raise wrong(name, "a finite number")
        for name in ("temperature", "learning_rate", "device_bytes", "record_bytes", *(f.name for f in dataclasses.fields(self) if f.name.endswith("_timeout_s"))):
            if getattr(self, name) <= 0:
                raise wrong(name, "above 0")
        for name in ("clip_low", "clip_high", "kl_weight", "meta_server_keeps"):
            if getattr(self, name) < 0:
                raise wrong(name, "0 or more")
        for name in ("seed", "device_bytes", "record_bytes", "record_steps"):
            if abs(getattr(self, name)) >= 1 << 63:
                raise wrong(name, "below 2^63")
        if self.group < 2:
            raise wrong("group", "at least 2: an advantage is relative to the group")
        if self.width % self.heads:
            raise wrong("width", f"a multiple of `heads` ({self.heads})")
        for name in ("train_ranks", "rollout_ranks"):
            if self.prompts % getattr(self, name):
                raise wrong(name, f"a divisor of `prompts` ({self.prompts})")
        if self.uses_reference and (self.reference_ranks < 1 or self.prompts % self.reference_ranks):
            raise wrong("reference_ranks", f"a divisor of `prompts` ({self.prompts})")

    @property
    def rows(self) -> int:
        """Samples in one step."""
        return self.prompts * self.group

    @property
    def uses_reference(self) -> bool:
        return self.kl_weight > 0

    def folder_of(self, run: Path, kind: str) -> Path:
        """The folder of the checkpoints of a kind, latest or periodic."""
        return run / ((kind == "periodic" and self.periodic_checkpoints) or self.checkpoints) / kind

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    def to_toml(self) -> str:
        """The same as TOML with what each setting means, as `read` takes it."""
        import inspect

        lines = []
        for line in inspect.getsource(type(self)).splitlines():
            if line.startswith("    # "):
                lines += ["", line.strip()]
            elif found := re.match(r"    (\w+): [^=]+ = [^#]*(?:# (.*))?", line):
                value = getattr(self, found[1])
                text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
                lines.append(f"{found[1]} = {text}" + (f"  # {found[2]}" if found[2] else ""))
            elif line.startswith("    def "):
                break
        return "\n".join(lines[1:]) + "\n"

    @classmethod
    def read(cls, path: Path) -> Config:
        """The settings in a TOML or JSON file. Raises RcaError for one that is no such file, or names what does not exist."""
        try:
            text = path.read_text("utf-8")
            values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        except OSError as error:
            raise RcaError(f"cannot read the settings: {(error.strerror or str(error)).lower()}", where=str(path)) from error
        except (ValueError, RecursionError) as error:
            raise RcaError(f"the settings are no valid {'TOML' if path.suffix == '.toml' else 'JSON'}: {error}", where=str(path)) from error
        return cls.of(values, str(path))

    @classmethod
    def of(cls, values: Any, where: str | None = None) -> Config:
        """Settings from names and values. Raises RcaError."""
        import difflib

        known = {f.name: f for f in dataclasses.fields(cls)}
        if not isinstance(values, dict):
            raise RcaError("the settings must be a table of names and values", where=where)
        given = {}
        for name, value in values.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise RcaError(f"no such setting: `{name}`", where=where, hint=f"did you mean `{near[0]}`?" if near else "`rca train --settings` lists them")
            given[name] = _as(known[name], value, where)
        try:
            return cls(**given)
        except RcaError as error:
            error.where = error.where or where
            raise


def _as(setting: dataclasses.Field[Any], value: Any, where: str | None) -> Any:
    """`value`, text from a command line among others, in the type of the setting."""
    kind = str(setting.type)
    try:
        if kind == "bool" and isinstance(value, str):
            return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}[value.lower()]
        if kind.startswith("tuple"):
            return tuple(str(v) for v in ([v for v in value.split(",") if v] if isinstance(value, str) else value))
        if kind == "bool":
            if not isinstance(value, bool):
                raise ValueError
            return value
        if isinstance(value, bool) or (kind == "int" and isinstance(value, float)) or (kind == "str" and not isinstance(value, str)):
            raise ValueError  # no silent change of the value
        return {"int": int, "float": float, "str": str}[kind](value)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RcaError(f"`{setting.name}` must be {WORDS.get(kind, 'names')}: `{value}`", where=where) from None
