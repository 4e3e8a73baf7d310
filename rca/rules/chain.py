"""A rule as data: a chain of links from cause to symptom, with what each link is worth in log-odds.

The file's path is the rule's id. Everything in a rule file is checked when it is loaded, so that a mistyped word is an error
with an address and never a rule that silently does nothing.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rca.discover import data_files
from rca.errors import RcaError, did_you_mean
from rca.rules import schema
from rca.taxonomy import ACTIONS, CAUSES, STAGES, Kind

HERE = Path(__file__).parent
NOT_RULES = ("signatures", "tests")  # folders beside the rules of a user: phrases, and logs that tests read
KINDS = frozenset(kind.value for kind in Kind)
LINK_ROLES = ("cause", "mechanism", "symptom", "against")
SEEN_BY = ("always", "kernel", "counters", "launcher", "ranks", "stacks")
EDGES = (
    "any", "path", "program", "collective", "supervision", "host", "checkpoint", "restart", "rpc", "loader", "dataflow", "shared_gpu", "handover", "weight_sync", "service",
    "controller", "span_rpc",
)
RELATION_KEYS = {"to", "same", "differs", "edge", "before_s", "after_s", "step_gap"}
LINK_KEYS = {"name", "role", "kind", "stage", "where", "relation", "present", "absent", "seen_by", "latent", "inferred", "cause_class", "more"}
RULE_KEYS = {
    "id", "title", "cause", "status", "finds", "why", "looks_like", "told_apart", "fooled_by", "sources", "survivable", "link", "collect", "remedy", "test",
}  # fmt: skip


@dataclass(frozen=True)
class Link:
    """One element of a chain: which events it takes, how it is tied to an earlier link, and its worth."""

    name: str
    role: str
    kinds: frozenset[str]
    stages: frozenset[str] = frozenset()
    where: dict[str, Any] = field(default_factory=dict)
    relation: dict[str, Any] = field(default_factory=dict)
    present: float = 0.0
    absent: float = 0.0
    seen_by: str = "always"
    latent: bool = False
    cause_class: dict[str, str] = field(default_factory=dict)
    inferred: frozenset[str] = frozenset()  # kinds that stand for a cause that nobody logged
    more: tuple[dict[str, Any], ...] = ()  # further worth by the event's attributes: {where = {...}, worth = 1.0, says = "..."}


@dataclass(frozen=True)
class Rule:
    """One cause class (or several, told by the cause event's kind) and the chain that shows it."""

    id: str
    title: str
    cause: str
    links: tuple[Link, ...]
    path: Path
    status: str = "experimental"
    finds: str = ""
    why: str = ""
    looks_like: str = ""
    told_apart: str = ""
    fooled_by: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    survivable: bool = False
    collect: tuple[dict[str, str], ...] = ()
    remedy: dict[str, Any] = field(default_factory=dict)

    @property
    def causes(self) -> tuple[str, ...]:
        """Every class that this rule may name."""
        return tuple(sorted({self.cause, *(c for link in self.links for c in link.cause_class.values())}))

    @property
    def cause_link(self) -> Link:
        return next(link for link in self.links if link.role == "cause")


@lru_cache
def load_rules(extra: Path | None = None) -> tuple[Rule, ...]:
    """All built-in rules and those below `extra`, sorted by id; a rule of the same id in `extra` replaces the built-in one.

    Raises RcaError with the file and the entry for anything that is not a valid rule.
    """
    rules = {rule_id: read_rule(path, rule_id) for rule_id, path in data_files(HERE) if "/" in rule_id}
    if extra is not None:
        if not extra.is_dir():
            raise RcaError(f"rules folder not found: `{extra}`", hint="give a folder of `<family>/<class>.toml` files")
        rules |= {rule_id: read_rule(path, rule_id) for rule_id, path in data_files(extra) if rule_id.split("/")[0] not in NOT_RULES}
    return tuple(rules[k] for k in sorted(rules))


def read_rule(path: Path, rule_id: str) -> Rule:
    """One rule file, checked."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise RcaError(f"not a TOML file: {error}", where=str(path)) from None
    _known(data, RULE_KEYS, "key", path)
    schema.check(data, path)
    if data.get("id", rule_id) != rule_id:
        raise RcaError(f"rule id `{data['id']}` differs from its path `{rule_id}`", where=str(path), hint="path = name = id")
    for key in ("title", "cause", "fooled_by", "link", "remedy"):
        if not data.get(key):
            raise RcaError(f"rule without `{key}`", where=str(path), hint="`rca rules show fs/full` prints a complete one")
    _known([data["cause"]], CAUSES, "cause class", path)
    for key in ("fooled_by", "sources"):
        if not isinstance(data.get(key, []), list):
            raise RcaError(f"`{key}` is not a list", where=str(path), hint=f'write {key} = ["..."]')
    remedy = data["remedy"]
    _known([remedy.get("action", "")], ACTIONS, "remedy action", path)
    links = tuple(_link(entry, path) for entry in data["link"])
    if sum(link.role == "cause" for link in links) != 1:
        raise RcaError("a rule has exactly one link with role `cause`", where=str(path))
    names = {link.name for link in links}
    for link in links:
        if link.relation:
            _known([link.relation.get("to", "")], names, "link name in relation.to", path)
    prose = {k: data[k] for k in ("status", "finds", "why", "looks_like", "told_apart", "survivable") if k in data}
    return Rule(
        rule_id, data["title"], data["cause"], links, path, fooled_by=tuple(data["fooled_by"]), sources=tuple(data.get("sources", ())),
        collect=tuple(data.get("collect", ())), remedy=remedy, **prose,
    )  # fmt: skip


def _link(entry: dict[str, Any], path: Path) -> Link:
    _known(entry, LINK_KEYS, "link key", path)
    for key in ("name", "role", "kind"):
        if not entry.get(key):
            raise RcaError(f"link without `{key}`", where=str(path))
    _known([entry["role"]], LINK_ROLES, "link role", path)
    _known(entry["kind"], KINDS, "event kind", path)
    _known(entry.get("inferred", ()), entry["kind"], "kind in `inferred` (it must be one of the link's)", path)
    _known(entry.get("stage", ()), STAGES, "stage", path)
    _known([entry.get("seen_by", "always")], SEEN_BY, "seen_by", path)
    _known(entry.get("relation", {}), RELATION_KEYS, "relation key", path)
    _known(entry.get("cause_class", {}).values(), CAUSES, "cause class", path)
    _known(entry.get("cause_class", {}), KINDS, "event kind in cause_class", path)
    _known([edge] if (edge := entry.get("relation", {}).get("edge")) else [], EDGES, "edge", path)
    for more in entry.get("more", ()):
        _known(more, {"where", "worth", "says"}, "key in `more`", path)
    for key, value in (*((k, entry.get(k, 0)) for k in ("present", "absent")), *(("worth", m.get("worth")) for m in entry.get("more", ()))):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RcaError(f"`{key}` is not a number: `{value}`", where=str(path), hint="worth is in nats, for instance 1.5")
    return Link(
        entry["name"], entry["role"], frozenset(entry["kind"]), frozenset(entry.get("stage", ())), entry.get("where", {}), entry.get("relation", {}),
        float(entry.get("present", 0.0)), float(entry.get("absent", 0.0)), entry.get("seen_by", "always"), bool(entry.get("latent", False)), entry.get("cause_class", {}),
        frozenset(entry.get("inferred", ())), tuple(entry.get("more", ())),
    )  # fmt: skip


def _known(words: Any, known: Any, what: str, path: Path) -> None:
    for word in words:
        if word not in known:
            raise RcaError(f"unknown {what}: `{word}`", where=str(path), hint=did_you_mean(str(word), known))
