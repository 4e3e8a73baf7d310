"""Weigh what was found: log-odds, upstream causes explain downstream ones away, and `unknown` competes.

Each hypothesis has a sum in nats: the log-odds of its class's base rate against `unknown`, the worth of every link that is there, the
worth of every link that is not there although it could have been seen, and a few terms that hold for all rules alike (below). Confidence is
its share of the exponentials. Nothing is added for shouting first or loudest.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from rca.model import Event, Evidence, Graph, Hypothesis, Missing, Run, Verdict
from rca.rules import replay
from rca.rules.chain import Rule
from rca.rules.match import Match, matches
from rca.rules.undecided import undecided
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

FAILED_FROM = 0.5  # a verdict of `failed` needs a first hypothesis of at least this confidence
UNKNOWN_LOGIT = 1.5  # a failure that nobody logged is as likely as a latent guess with a usual prior
EXPLAINED = -4.0  # an event that another hypothesis's cause brought about is hardly a root itself
BELOW = -0.8  # the same where no time tells, but the place in one file does
LATER = -1.2  # of two failures without a known mechanism between them, the later one is less likely the first
SURVIVED = -3.5  # the process wrote on after it
UNFELT = -2.5  # a machine's complaint that no process of the job met, though their logs are here
UNSEEN = -3.5  # a fault that a process may survive, but of which no consequence is seen
RESTARTED = -3.5  # the job was started again after it, and that start failed of something else
OTHER_ATTEMPT = -1.0  # the job had already failed in an earlier attempt
GENERAL = {1: -2.4, 2: -1.8, 3: -1.4}  # no signature knows the line; its plain words mean this, from "perhaps" to "outright"
ACROSS = "coupling/"  # rules that join stages: their chains take over what a rule for one event says
MARGIN_NS = 2_000_000_000  # failures closer than this are not ordered
WHO = frozenset({"host", "role", "rank", "gpu", "pid"})  # what a worker has, and its caller has otherwise
LOUD = frozenset({Kind.READ_ONLY, Kind.IO_ERROR, Kind.NO_SPACE})  # whoever meets these gets an error
SAVES = ("save", "latest_recover_save", "periodic_recover_save")
AFTERWARDS = (*SAVES, "cleanup")
SAVING = re.compile(r"\bsav(?:e|ing)\b|checkpoint|snapshot", re.I)
UNREADABLE = frozenset({Kind.CHECKPOINT_INVALID, Kind.CHECKPOINT_MISMATCH, Kind.DAMAGED, Kind.MISSING_FILE})
COMING_UP = ("recover", "load", "init")
SAME_START_NS = 300 * 10**9
SHOWN = 5
SOURCE_TAG = re.compile(r"\[/?[\w./-]+\.(?:cc|cpp|hpp|h|cu):\d+\] ?")


@lru_cache
def priors() -> dict[str, float]:
    """Base rates by cause class, from `priors.toml`."""
    return dict(tomllib.loads((Path(__file__).parent / "priors.toml").read_text("utf-8"))["share"])


def prior(cause: str) -> float:
    """Log-odds of a class against `unknown` before any evidence."""
    rates = priors()
    return math.log(rates.get(cause, rates["default"]) / rates["unknown"])


def judge(run: Run, rules: tuple[Rule, ...], graph: Graph) -> Verdict:
    """The verdict on a run with its hypotheses, most likely first."""
    if run.outcome == "finished" and not replay.diverged(run):
        return Verdict("healthy", (), 0.0, "The run finished; nothing failed.")
    weighed = [(m, *_weigh(m, run, graph)) for m in _longest(m for rule in rules for m in matches(rule, run, graph))]
    # What rests on no line at all, only on a log that is not there, is no hypothesis: the base rate alone would speak.
    weighed = [w for w in _explain_away(weighed, run, graph) if _evidence(w[0])]
    if run.outcome == "finished":  # and only what nobody noticed can have failed
        weighed = [w for w in weighed if w[0].cause.kind == Kind.REPLAY_DIVERGED]
    weighed = replay.weigh(weighed, run, graph, priors())
    best: dict[str, tuple[Match, float, list[str]]] = {}
    for match, logit, why in sorted(weighed, key=_sort):
        # Matches of one class are one hypothesis: the best placed names it, a longer chain outranks a shorter one at the same cause.
        best.setdefault(match.cause_class, (match, logit, why))
    ordered = sorted(best.values(), key=_sort)
    shares = [math.exp(logit) for _, logit, _ in ordered]
    unknown = math.exp(UNKNOWN_LOGIT)
    total = sum(shares) + unknown
    hypotheses = tuple(_hypothesis(m, logit, why, run, graph, share / total) for (m, logit, why), share in zip(ordered, shares, strict=True))
    shown = tuple(h for h in hypotheses[:SHOWN] if h.confidence >= 0.01) or hypotheses[:1]
    rest = 1.0 - sum(h.confidence for h in shown)
    undecided_yet = not shown or shown[0].confidence < FAILED_FROM
    if undecided_yet and run.outcome == "finished":
        return Verdict("healthy", (), 0.0, "The run finished. A replay gave other numbers, and more speaks against a machine that computes wrongly than for it.")
    if undecided_yet and run.outcome == "goes_on":
        return Verdict("healthy", (), 0.0, "Nothing failed in what is here: the run goes on after everything that these files complain of.")
    if undecided_yet:
        said, lack = undecided(run, shown)
        return Verdict("inconclusive", shown, round(rest, 6), said, lack)
    return Verdict("failed", shown, round(rest, 6), f"{shown[0].summary}")


def _longest(found: Iterable[Match]) -> list[Match]:
    """Of several rules that fit one cause event, a chain across stages that reaches its symptom speaks for all of them."""
    found = list(found)
    chains: set[int] = set()
    for match in found:
        if match.rule.id.startswith(ACROSS) and any(link.role == "symptom" and link.name in match.found for link in match.rule.links):
            chains.add(match.cause.event_id)
    return [m for m in found if (_travels(m) if m.rule.id.startswith(ACROSS) else m.cause.event_id not in chains)]


def _travels(match: Match) -> bool:
    """Whether a chain goes along an edge: that one machine complains twice joins no stages."""
    return any("edge" in link.relation for link in match.rule.links if link.name in match.found)


def _sort(item: tuple[Match, float, list[str]]) -> tuple:
    match, logit, _ = item
    time = match.cause.time_ns if match.cause.time_ns is not None else 2**62
    unplaced = (match.cause.host is None) + (match.cause.rank is None) + (match.cause.gpu is None)
    return (-round(logit, 6), -len(match.found), match.cause.attempt or 0, unplaced, time, match.cause.event_id, match.rule.id)


def _weigh(match: Match, run: Run, graph: Graph) -> tuple[float, list[str]]:
    """The sum of one match before hypotheses are compared, with its terms in words."""
    terms = [(f"base rate of {match.cause_class}", prior(match.cause_class)), *match.terms()]
    cause = match.cause
    proc = run.processes.get((cause.attempt or 0, cause.rank if cause.rank is not None else cause.actor)) or {}
    silent = bool(cause.attrs.get("manifest"))  # what was read is not what was written: nobody need notice
    if silent:
        pass
    elif cause.attrs.get("lived_on") and not match.rule.survivable:
        terms.append(("the process went on after it", SURVIVED))
    elif cause.attrs.get("lived_on") and not any(_felt(e, run) for e in match.found.values() if e is not cause):
        terms.append(("the process went on after it, and nothing came of it", UNSEEN))
    elif cause.kind in LOUD and len(run.processes) > 1 and not any(_felt(e, run) and e.kind not in VICTIM_KINDS for e in (*match.found.values(), *(run.events[i] for i in graph.effects(cause.event_id)))):
        terms.append(("no process of the job met it", UNFELT))
    if tier := cause.attrs.get("generic"):
        terms.append(("its wording is known in general only", GENERAL[tier]))
    if cause.attrs.get("outside"):
        terms.append(("it happened long before or after the run", EXPLAINED - 2))
    if cause.attrs.get("foreign"):
        terms.append(("the process belongs to nobody of this job", EXPLAINED - 2))
    if proc.get("finished") and not silent and not match.rule.survivable and not cause.attrs.get("lasts"):
        terms.append(("the process finished its work", SURVIVED))
    return sum(worth for _, worth in terms), [f"{worth:+.1f} {name}" for name, worth in terms]


def _felt(event: Event, run: Run) -> bool:
    """Whether an event shows that the job met a fault, and not only that a machine said more of it."""
    if event.rank is not None or event.source is None:
        return True
    return not any(r.source == event.source and r.of_host for r in run.readings)


def _explain_away(weighed: list[tuple[Match, float, list[str]]], run: Run, graph: Graph) -> list[tuple[Match, float, list[str]]]:
    """Lower every hypothesis whose cause another one's cause brought about, or that clearly came later."""
    upstream: dict[int, set[int]] = {}
    ids = {m.cause.event_id for m, _, _ in weighed}
    strength = {i: max(logit for m, logit, _ in weighed if m.cause.event_id == i) for i in ids}
    for i in sorted(ids):
        upstream[i] = graph.ancestors(i) & ids
    firm = [m.cause for m, logit, _ in weighed if m.cause.time_ns is not None and m.cause.kind not in VICTIM_KINDS and not (m.cause.attrs.get("lived_on") or m.cause.attrs.get("outside") or m.cause.attrs.get("generic")) and m.cause.source is not None and logit > UNKNOWN_LOGIT and not upstream[m.cause.event_id]]
    guessed = {m.cause.event_id for m, _, _ in weighed if m.cause.attrs.get("generic")}
    final, reasons = _failed_start(run, graph)
    if final is not None:
        firm = [e for e in firm if e.event_id in reasons]
    first = min(firm, key=lambda e: (e.attempt or 0, e.time_ns or 0), default=None)
    top: dict[str | None, Match] = {}
    for match in (m for m, logit, _ in weighed if m.cause.kind not in VICTIM_KINDS and not m.cause.attrs.get("lived_on") and logit > UNKNOWN_LOGIT):
        if match.cause.source is not None and match.cause.offset <= top.get(match.cause.source, match).cause.offset:
            top[match.cause.source] = match
    out = []
    for match, logit, why in weighed:
        cause = match.cause
        # A link of the chain does not explain its own cause, unless the host itself ties them: a port complains because its link is down.
        own = {e.event_id for e in match.found.values() if "host" not in graph.kinds(e.event_id, cause.event_id)}
        # What only plain words say never outdoes what a signature knows.
        causes = [i for i in upstream[cause.event_id] - own - (guessed if cause.attrs.get("signature") else set()) if strength[i] > UNKNOWN_LOGIT - 0.5 and cause.event_id not in upstream[i]]
        restarted = final is not None and cause.event_id not in reasons and _before(cause, final)
        if restarted:
            logit, why = logit + RESTARTED, [*why, f"{RESTARTED:+.1f} the job was started again after it, and that start failed of something else"]
        if causes:
            logit, why = logit + EXPLAINED, [*why, f"{EXPLAINED:+.1f} an earlier event explains it"]
        elif first is not None and first.event_id != cause.event_id and cause.time_ns is not None:
            if (cause.attempt or 0) > (first.attempt or 0):
                logit, why = logit + OTHER_ATTEMPT, [*why, f"{OTHER_ATTEMPT:+.1f} the job had failed in an earlier attempt"]
            elif not (cause.attrs.get("inherited") and cause.source is not None and cause.rank is None) and cause.time_ns - (first.time_ns or 0) > MARGIN_NS + cause.time_error_ns + first.time_error_ns:
                logit, why = logit + LATER, [*why, f"{LATER:+.1f} another failure came before it"]
            elif _below(match, top.get(cause.source)):
                logit, why = logit + BELOW, [*why, f"{BELOW:+.1f} another failure stands above it"]
        elif _below(match, top.get(cause.source)):
            logit, why = logit + BELOW, [*why, f"{BELOW:+.1f} another failure stands above it"]
        out.append((match, logit, why))
    return out


def _failed_start(run: Run, graph: Graph) -> tuple[Event | None, set[int]]:
    """The unreadable file that a later start of the job ended with, and everything that may have brought it about.

    What had stopped the job before that start is another failure: without the file the job would be running.
    """
    ends = [e for e in run.events if e.kind in UNREADABLE and (e.stage in COMING_UP or (e.attempt or 0) > 0) and e.severity in ("error", "fatal") and e.time_ns is not None and not e.attrs.get("lived_on")]
    if not ends:
        return None, set()
    last = max(ends, key=lambda e: (e.time_ns or 0, e.event_id))
    same = [e for e in ends if (last.time_ns or 0) - (e.time_ns or 0) < SAME_START_NS]
    return last, set().union(*({e.event_id} | graph.ancestors(e.event_id, without="restart") for e in same))


def _before(cause: Event, final: Event) -> bool:
    if (cause.attempt or 0) < (final.attempt or 0):
        return True
    return cause.time_ns is not None and cause.step is not None and cause.stage not in COMING_UP and (final.time_ns or 0) - cause.time_ns > MARGIN_NS + cause.time_error_ns


def _below(match: Match, top: Match | None) -> bool:
    """Whether a failure of another class stands above it in the same file and no time of its own says more."""
    if top is None or top.cause_class == match.cause_class or match.cause.offset <= top.cause.offset:
        return False
    return match.cause.time_ns is None or top.cause.time_ns is None or bool(match.cause.attrs.get("inherited"))


def _hypothesis(match: Match, logit: float, why: list[str], run: Run, graph: Graph, confidence: float) -> Hypothesis:
    cause, rule = match.cause, match.rule
    symptom = _symptom(match, run, graph)
    evidence = tuple(_evidence(match))
    missing = tuple(Missing(c["what"], c["how"]) for c in rule.collect)
    # What a caller says of a worker has the worker's place, not the caller's.
    about = None if "caller" in cause.attrs else cause.attrs.get("about")  # with a `caller` it stands there already
    entity = {name: about.get(name) if about and name in WHO else getattr(cause, name) for name in ("host", "role", "rank", "gpu", "bus_id", "nic", "pid", "path", "group")}
    for link in rule.links:  # the kernel names a pid, the launcher the rank that had it
        event = match.found.get(link.name) if link.role == "mechanism" else None
        if event is not None and entity["rank"] is None and (event.host == entity["host"] or entity["host"] is None):
            entity["rank"], entity["host"] = event.rank, entity["host"] or event.host
        if event is not None and event.host == entity["host"]:
            entity |= {name: getattr(event, name) for name in ("gpu", "role") if entity[name] is None}
    return Hypothesis(
        match.cause_class, rule.id, rule.title, summary(match.cause_class, rule, cause, symptom), round(logit, 4), cause, round(confidence, 4),
        inferred=cause.kind in rule.cause_link.inferred or (rule.cause_link.latent and cause.source is None and not cause.also), entity=entity, symptom=symptom, evidence=evidence, missing=missing,
        remedy=_remedy(rule, cause), why=tuple(why), acted=_where_it_acted(match),
    )  # fmt: skip


#: Faults that the kernel tells at the moment in which they happen.
AT_ONCE = frozenset({Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_LOST, Kind.DEVICE_HANG})


def _where_it_acted(match: Match) -> tuple[str | None, int | None]:
    """The stage and step in which the cause told: a machine's fault may begin earlier, and counters are read now and then.

    What is found out while everything is stopped, or while something else is saved, did not act there.
    """
    cause = match.cause
    if not match.rule.id.startswith(ACROSS):
        return cause.stage, cause.step
    if cause.kind in LOUD and cause.stage not in SAVES and SAVING.search(cause.text):
        return "save", cause.step
    if cause.rank is not None and cause.stage not in AFTERWARDS:
        return cause.stage, cause.step
    if cause.role is not None and cause.source is not None:
        return cause.stage, cause.step
    there = [match.found[k.name] for k in match.rule.links if k.name in match.found and "edge" in k.relation and (k.role == "mechanism" or (k.stages == {"weights_update"} and cause.stage not in SAVES))]
    surfaced = {(e.stage, e.step) for k in match.rule.links if k.role == "symptom" and (e := match.found.get(k.name)) is not None}
    if cause.kind in AT_ONCE and cause.stage is not None and cause.stage not in AFTERWARDS:  # the caller's view of the symptom says nothing of what came before it
        there = [e for e in there if (e.stage, e.step) not in surfaced] or [cause]
    first = next((e for e in there if e.stage is not None and e.stage not in AFTERWARDS), cause)
    return first.stage, first.step if first.step is not None else cause.step


def _remedy(rule: Rule, cause: Event) -> dict:
    remedy = rule.remedy
    cordon = [cause.host] if remedy.get("cordon") and cause.host else []
    return {"action": remedy["action"], "text": remedy.get("text", ""), "retryable": bool(remedy.get("retryable", False)), "cordon": cordon}


def summary(cause_class: str, rule: Rule, cause: Event, symptom: Event | None) -> str:
    """One or two sentences for a tired person: what broke, where, when, and how it surfaced."""
    ranked = cause.rank is not None and not (cause.kind == Kind.REPLAY_DIVERGED and cause.role != "train")  # ranks count within each role
    where = " ".join(p for p in (f"rank {cause.rank}" if ranked else cause.actor or "", f"on {cause.host}" if cause.host else "") if p)
    when = f"at step {cause.step}" if cause.step is not None else (f"during {cause.stage}" if cause.stage else "")
    first = brief(cause.text, 140)
    text = f"{rule.title} ({cause_class})" + (f": {where}" if where else "") + (f" {when}" if when else "") + f": {first}"
    if symptom is not None and symptom.event_id != cause.event_id and (symptom.rank != cause.rank or symptom.ranks):
        others = f"on {len(symptom.ranks)} other ranks" if len(symptom.ranks) > 1 else f"on rank {symptom.rank}" if symptom.rank is not None else "elsewhere"
        text += f". It surfaced {others} as: {brief(symptom.text, 110)}"
    return text


def brief(text: str, most: int) -> str:
    """The first line of a message without the source file it begins with, cut at a word."""
    line = SOURCE_TAG.sub("", text.strip().split("\n", 1)[0]).strip()
    return line if len(line) <= most else line[:most].rsplit(" ", 1)[0] + " …"


def _symptom(match: Match, run: Run, graph: Graph) -> Event:
    """What was printed in the end: the chain's symptom, else the loudest effect of the cause."""
    linked = [match.found[link.name] for link in match.rule.links if link.role == "symptom" and link.name in match.found]
    symptom = linked[0] if linked else _loudest(match, run, graph)
    return symptom if symptom.stage is not None else symptom.but(stage=match.cause.stage)


def _loudest(match: Match, run: Run, graph: Graph) -> Event:
    by_id = {e.event_id: e for e in run.events}
    effects = [by_id[i] for i in graph.effects(match.cause.event_id)]
    loud = [e for e in effects if e.kind in VICTIM_KINDS and e.kind not in QUIET_KINDS and e.kind != Kind.AGENT_STOPS_SIBLING]
    if not loud and match.cause.attrs.get("lived_on"):  # what it went on from comes back later, where the run ends of it
        loud = [e for e in run.events if e.kind == match.cause.kind and not e.attrs.get("lived_on") and e.severity in ("error", "fatal") and (e.time_ns or 0) > (match.cause.time_ns or 2**62)]
    return min(loud, key=lambda e: (e.kind == Kind.AGENT_REPORT, e.time_ns or 2**62, e.event_id)) if loud else match.cause


def _evidence(match: Match) -> list[Evidence]:
    """The lines that prove each link, the link's own first; at most two per event."""
    found: list[Evidence] = []
    for link in match.rule.links:
        event = match.found.get(link.name)
        if event is not None:
            # An error file repeats in one long line what a log says readably.
            readable = [r for r in event.records if not r.source.endswith(".json")] or list(event.records)
            found += [Evidence(record, event.kind, link.role, event) for record in readable[:2]]
    found += match.cited
    unique = {(e.record.source, e.record.offset, e.link): e for e in found}
    return list(unique.values())
