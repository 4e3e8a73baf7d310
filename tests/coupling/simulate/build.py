"""Make one case: play a scenario in a world, ablate or decorate it, and render it in a dialect with tools chosen by the seed.

    files, truth = build("03", "slime", seed=4, without=False, decoys=2)
"""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

from coupling.simulate import decoys as mixed_in
from coupling.simulate.dialects import Dialect
from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Host, World

HERE = Path(__file__).parent
FAMILIES = ("kernel", "gpu", "net", "rdma", "ping", "storage", "host", "sched", "traces")
SEEN = {"kernel": 0.9, "gpu": 0.75, "net": 0.5, "rdma": 0.4, "ping": 0.4, "storage": 0.5, "host": 0.6, "sched": 0.7, "traces": 0.5}  # how often a run has each, needed or not


def _modules(folder: str) -> dict[str, ModuleType]:
    return {p.stem: importlib.import_module(f"coupling.simulate.{folder}.{p.stem}") for p in sorted((HERE / folder).glob("*.py")) if p.stem != "__init__"}


def scenarios() -> dict[str, ModuleType]:
    """By file name: the ten (`s01_...`), look-alikes (`l..`), healthy runs (`h..`)."""
    return _modules("scenarios")


def dialects() -> dict[str, type[Dialect]]:
    return {name: module.Spoken for name, module in _modules("dialects").items()}


def variants(scenario: str) -> tuple[str, ...]:
    return scenarios()[scenario].VARIANTS


def possible(scenario: str, dialect: str) -> bool:
    """Does this program have the stages and the way of moving weights that the scenario needs?"""
    module, spoken = scenarios()[scenario], dialects()[dialect]
    like = getattr(module, "ID", None) or getattr(module, "NOT", None)
    mode = getattr(module, "MODE", None)
    return (like is None or like in spoken.supports) and (mode is None or mode in spoken.modes)


def play(scenario: str, variant: str, seed: int, modes: tuple[str, ...]) -> World:
    """The run in true time, with its truth."""
    module = scenarios()[scenario]
    w = World(seed, f"{scenario}/{variant}")
    layout = dict(module.LAYOUT.get(variant, module.LAYOUT))
    store_apart = layout.pop("store_apart", False)
    w.lay_out(**layout)
    if store_apart:
        w.store.host = Host(f"cpu{w.rng.randrange(1, 40):02d}", w.hosts[0].ip.rsplit(".", 1)[0] + ".250", w.rng.uniform(-60, 30), 0, w.start - 9e5, 48, 512)
        w.hosts.append(w.store.host)
    usable = [m for m in modes if m != "store" or getattr(module, "MODE", None) == "store" or w.rng.random() < 0.4] or list(modes)
    w.weights_mode = getattr(module, "MODE", None) or w.rng.choice(usable)
    w.use_ref = getattr(module, "REFERENCE", True)
    w.needs = set(module.NEEDS)
    module.play(w, variant)
    w.truth.setdefault("verdict_expected", "failed")
    return w


def _memory(w: World, course_memory: list[tuple[float, Any, float]]) -> None:
    """Device memory over time from what each process held."""
    held: dict[Any, float] = {}
    last: dict[tuple[Host, int], tuple[float, float]] = {}
    for t, who, mib in sorted(course_memory, key=lambda x: x[0]):
        held[who] = mib
        for gpu in range(who.gpu, who.gpu + who.tp):
            key = (who.host, gpu)
            total = min(81000, sum(m for x, m in held.items() if x.host is who.host and x.gpu <= gpu < x.gpu + x.tp))
            if key in last:
                w.series("gpu_mem", who.host, str(gpu)).during(last[key][0], t, last[key][1])
            last[key] = (t, total)
    for (host, gpu), (t, total) in last.items():
        w.series("gpu_mem", host, str(gpu)).during(t, 9e12, total)


def _ablate(w: World) -> None:
    """Take the decisive source away: its files whole where it is a file, its lines where it is one line among others."""
    w.without = True
    w.kernel = [k for k in w.kernel if not k[4]]
    for s in w.series_of.values():
        s.effects = [e for e in s.effects if not e[3]]
    w.sched = [x for x in w.sched if not x[2].get("key")]
    for family, host in w.truth.get("sources", []):
        for h in w.hosts if host == "*" else [host]:
            w.lose(family, h)


def build(scenario: str, dialect: str, seed: int, variant: str | None = None, without: bool = False, decoys: int | None = None) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """(files of the run folder by path, truth)."""
    module, spoken = scenarios()[scenario], dialects()[dialect]
    variant = variant or module.VARIANTS[seed % len(module.VARIANTS)]
    w = play(scenario, variant, seed, spoken.modes)
    faulty = next((h for h in w.hosts if h.name == w.truth["faulty_entity"].get("host")), None)
    missing = not without and faulty is not None and spoken.per_host and getattr(module, "MISSING", False) and w.rng.random() < 0.3
    if missing:
        w.lose("files", faulty)
        for key in ("rank", "gpu"):  # only those files said which process
            w.truth["faulty_entity"].pop(key, None)
    if without:
        _ablate(w)
    mixed_in.add(w, w.rng.choice((0, 0, 1, 2)) if decoys is None else decoys)
    _memory(w, w.memory)
    files: dict[str, list[str]] = {}
    spoken(w).write(files)
    # The tools are chosen by the seed alone, so that the ablated and the decorated copy of a run have the same ones.
    tools = random.Random(f"{scenario}/{dialect}/{seed}/tools")
    for family in FAMILIES:
        forms = importlib.import_module(f"coupling.simulate.telemetry.{family}").FORMS
        form, seen = tools.choice(forms), tools.random() < SEEN[family]
        if (seen or family in w.needs) and len({h for f, h in w.lost if f == family}) < len(w.hosts):
            form(Recorder(w, files, family))
    truth = {"id": f"{scenario}-{variant}-{dialect}-{seed}", "scenario": getattr(module, "ID", None), "variant": ("without-" if without else "missing-" if missing else "") + variant, "dialect": dialect, "answerable_from_log": "yes", "decoys": w.decoys, "loudest_error_misleads": True}
    truth |= {k: v for k, v in w.truth.items() if k not in ("sources", "accept_without")}
    truth["faulty_entity"] = {k: v for k, v in truth.get("faulty_entity", {}).items() if v is not None}
    if getattr(module, "NOT", None):
        truth["not_scenario"] = module.NOT
    if without:
        # Whoever knows only what is left may infer the cause, name a nearer consequence, or say that it cannot be known.
        truth |= {"accept": sorted({*truth["accept"], "unknown", *w.truth.get("accept_without", [])}), "verdict_accept": ["inconclusive"], "answerable_from_log": "no", "faulty_entity": {}}
    return files, truth


def write(folder: Path, files: dict[str, list[str]], truth: dict[str, Any]) -> None:
    """`<folder>/logs/...` and `<folder>/truth.json`."""
    for path, lines in files.items():
        target = folder / "logs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "truth.json").write_text(json.dumps(truth, indent=1, ensure_ascii=False) + "\n", "utf-8")
