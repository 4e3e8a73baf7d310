"""How programs word what happened. One file per dialect with a class `Spoken(Dialect)`; everything common is here.

A dialect gives words for kinds of facts (`words`), for errors (`errors`), names of stages and methods, and where lines go (`line`). A kind
without words is not logged by that program. A list of words means that runs differ; a dict has words per role. Words beginning with
"I|", "W|", "E|" or "D|" carry a level, the default is I.

    fields: {step} {stage} {me} {role} {i} {rank} {host} {ip} {port} {pid} {gpu} {peer} {peer_host} {peer_ip} {peer_port} {method} and the fact's own
"""

from __future__ import annotations

import random
import time
from typing import Any

from coupling.simulate.world import Fact, Worker, World


class Blank(dict[str, Any]):
    """Fields of a fact; an unknown one is empty, not an error."""

    def __missing__(self, key: str) -> str:
        return ""


class Dialect:
    """One program's way to write. Instances live for one run."""

    name = ""
    supports: tuple[str, ...] = ("01", "02", "03", "04", "05", "06", "07", "08", "09", "10")
    modes: tuple[str, ...] = ("nccl", "disk", "store")  # ways to move weights that this program knows
    package = "app"
    stages: dict[str, str] = {}
    methods: dict[str, str] = {}
    roles: dict[str, str] = {}
    words: dict[str, Any] = {}
    errors: dict[str, Any] = {}
    frames: dict[str, list[tuple[str, int, str, str]]] = {}
    worker_name = "{role}-{i}"
    per_host = False  # does every machine have files of its own, so that those of one can be missing?
    whole_stack = True  # a multi-line text bears the prefix on its first line only

    def __init__(self, w: World) -> None:
        self.w = w
        self.rng = random.Random(f"{self.name}/{w.seed}/words")
        self.picked: dict[tuple[str, str], str] = {}
        w.words = {**self.stages, **self.methods, **self.roles}

    # --- words --------------------------------------------------------------------------------------------------------

    def pick(self, kind: str, role: str, table: dict[str, Any]) -> str | None:
        """The words of this run for a kind; chosen once, so that a run is consistent."""
        words = table.get(kind)
        if isinstance(words, dict):
            words = words.get(role, words.get(""))
        if words is None:
            return None
        if isinstance(words, (list, tuple)) and words and not isinstance(words, str):
            key = (kind, role)
            if key not in self.picked:
                self.picked[key] = self.rng.choice(words)
            words = self.picked[key]
        return words

    def called(self, who: Worker) -> str:
        return self.worker_name.format_map(Blank(role=self.roles.get(who.role, who.role), i=who.index, host=who.host.name, ip=who.host.ip, port=who.port, gpu=who.gpu, pid=who.pid))

    def fields(self, f: Fact) -> Blank:
        w, who = self.w, f.who
        found = Blank(f.data)
        found.update(
            step="" if f.step is None else f.step, next_step=(f.step or 0) + 1, stage=self.stages.get(f.stage or "", f.stage or ""), me=self.called(who), role=self.roles.get(who.role, who.role), i=who.index, rank=who.rank,
            world=len(w.role("train")), host=who.host.name, ip=who.host.ip, port=who.port, pid=f.data["pid"], gpu=who.gpu, bus=who.bus, model=w.model, job=w.run, mount=w.mount, batch=w.batch, total=w.steps,
            mode=w.weights_mode, limit=w.rpc_timeout, tp=w.tp, tid=f.data["pid"] + 412, method=self.methods.get(f.data.get("method", ""), f.data.get("method", "")), event=self.methods.get(f.data.get("event", ""), self.methods.get("rollout_start") if f.data.get("event") == "engine_start" else f.data.get("event", "")),
            store_ip=w.store.host.ip if w.store else "", store_port=w.store.port if w.store else "", ctl_ip=w.controller.host.ip,
        )  # fmt: skip
        peer = f.data.get("peer")
        if peer is not None:
            found.update(peer=self.called(peer), peer_role=self.roles.get(peer.role, peer.role), peer_i=peer.index, peer_host=peer.host.name, peer_ip=peer.host.ip, peer_port=peer.port, peer_gpu=peer.gpu)
        if f.data.get("error"):
            found["failure"] = ": ".join(x for x in self.error(f, found) if x)
        elif f.data.get("text"):
            found["failure"] = f.data["text"]
        if f.kind == "call_error" and not found["body"]:
            found["body"] = found["failure"]
        return found

    def error(self, f: Fact, fields: Blank) -> tuple[str, str]:
        """(type, text) of an exception, the program's own unless the fact brings one that the libraries wrote."""
        if f.data.get("type"):
            return f.data["type"], f.data.get("text", "")
        words = self.pick(f.data.get("error") or "", "", self.errors)
        if words is None:
            return "RuntimeError", f.data.get("text") or ""
        kind, _, text = words.partition("|")
        return kind, text.format_map(fields)

    def traceback(self, f: Fact, fields: Blank) -> str:
        kind, text = self.error(f, fields)
        lines = ["Traceback (most recent call last):"]
        for file, line, name, code in self.frames.get(f.data.get("at") or "", self.frames.get("", [])):
            lines += [f'  File "{file}", line {line}, in {name}', f"    {code}"]
        return "\n".join([*lines, f"{kind}: {text}" if text else kind])

    def text(self, f: Fact) -> tuple[str, str] | None:
        """(level, text) of a fact, or None where this program writes nothing."""
        if f.kind == "raw":
            return "raw", f.data["text"]
        words = self.pick(f.kind, f.who.role, self.words)
        if words is None:
            return None
        level, _, rest = words.partition("|")
        if level not in ("I", "W", "E", "D"):
            level, rest = "I", words
        fields = self.fields(f)
        if f.kind == "exc":
            fields["trace"] = self.traceback(f, fields)
            fields["kind"], fields["error_text"] = self.error(f, fields)
        return level, rest.format_map(fields)

    # --- files --------------------------------------------------------------------------------------------------------

    def local(self, f: Fact, shape: str) -> str:
        return time.strftime(shape, time.gmtime(f.who.host.clock(f.t) + self.w.tz))

    def ms(self, f: Fact) -> str:
        return f"{int(f.who.host.clock(f.t) % 1 * 1000):03d}"

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        """(path, line) pairs that one message becomes; `text` may hold newlines."""
        raise NotImplementedError

    def extras(self, files: dict[str, list[str]]) -> None:
        """Further files that this program leaves."""

    def gone(self, f: Fact) -> bool:
        """Is this line not in the folder: the ablated line, or one of a worker whose files are lost?"""
        if self.w.without and f.key:
            return True
        if f.who.role == "meta_server" and ("store", f.who.host) in self.w.lost:
            return True
        return f.who.role != "controller" and ("files", f.who.host) in self.w.lost

    def write(self, files: dict[str, list[str]]) -> None:
        for f in sorted(self.w.facts, key=lambda x: x.t):
            if self.gone(f):
                continue
            said = self.text(f)
            if said is None:
                continue
            for path, line in self.line(f, *said):
                files.setdefault(path, []).extend(line.split("\n"))
        self.extras(files)
