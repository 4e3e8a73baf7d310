"""The course of the run: one series of phases, from the marks of whoever tells most.

A controller that announces its stages tells it exactly. Others only sum up after a step, or each worker says when it was done; then the phases
are put together from what all of them say, and what lies between two known phases is the stage that comes between them in this run's own order.
Everything is tolerant of what is missing: ends, whole steps, clocks, files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from rca.correlate.clock import Clock
from rca.correlate.identity import Identity, Writer
from rca.model import Record

SECOND_NS = 10**9
#: The order in which a step runs its stages where the run itself does not show another.
ORDER = ("weights_update", "rollout", "reference", "train", "save", "latest_recover_save", "periodic_recover_save", "eval")
OF_STEPS = frozenset({"weights_update", "rollout", "reference"})  # stages that only a run with several roles has
ENOUGH_STAGES = 3  # of the steps, that a controller must announce to be believed alone
NEAR_NS = 20 * SECOND_NS  # ends of one phase on several workers lie this near, clocks included
GAP_NS = 15 * SECOND_NS  # between two phases: longer ones are something that nobody told
ROLE_STAGES = {
    "rollout": ("rollout", "weights_update", "eval"), "reference": ("reference",), "critic": ("train",), "reward": ("rollout",),
    "train": ("train", "weights_update", "latest_recover_save", "periodic_recover_save", "save", "recover"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Phase:
    """One stage of one step. `end_ns` is None where nothing ended it (`open`); `sure` is False where no line states it."""

    stage: str
    step: int | None
    start_ns: int
    end_ns: int | None
    open: bool = False
    record: Record | None = None
    sure: bool = True
    failed: bool = False
    role: str | None = None  # of who told it


@dataclass(frozen=True, slots=True)
class Course:
    """The phases, by start. `staged` says that the run has stages besides training; `frameworks` who was recognised."""

    phases: tuple[Phase, ...] = ()
    staged: bool = False
    announced: frozenset[tuple[str, str]] = frozenset()  # (source, stream) of writers that announce enough stages to be believed
    starts: tuple[int, ...] = ()

    def at(self, time_ns: int | None, slack_ns: int = 0, role: str | None = None) -> Phase | None:
        """The phase that a moment falls into; of several that overlap the one of the role, then the one that began last.

        In a gap it is the phase that ended last, or the one that begins within the slack.
        """
        if time_ns is None or not self.phases:
            return None
        index = bisect_right(self.starts, time_ns)
        if index == 0:
            first = self.phases[0]
            return first if first.start_ns - time_ns <= max(slack_ns, 0) and slack_ns else None
        mine = ROLE_STAGES.get(role or "", ())
        best = None
        for phase in self.phases[max(0, index - 16) : index]:
            if (phase.end_ns is None or time_ns <= phase.end_ns) and (best is None or phase.stage in mine or best.stage not in mine):
                best = phase
        if best is not None:
            return best
        if index < len(self.phases) and self.phases[index].start_ns - time_ns <= max(slack_ns, SECOND_NS):
            return self.phases[index]
        last = max(self.phases[max(0, index - 16) : index], key=lambda p: p.end_ns or 0)
        if index < len(self.phases) or time_ns - (last.end_ns or 0) <= max(slack_ns, GAP_NS):
            return last
        return None

    def cleaning_since(self, time_ns: int) -> int | None:
        """When the clean-up began that this moment falls into; None where a stage of training was announced since, or there was none."""
        before = [p for p in self.phases if p.start_ns <= time_ns and p.sure]
        return before[-1].start_ns if before and before[-1].stage == "cleanup" else None

    def given_up_ns(self) -> int | None:
        """When the last clean-up began that no stage of training follows: what is written from then on is no sign that the run went on."""
        last = max((i for i, p in enumerate(self.phases) if p.stage == "cleanup"), default=None)
        if last is None or any(p.stage != "cleanup" and p.sure for p in self.phases[last:]):
            return None
        return self.phases[last].start_ns

    def until_broken(self, time_ns: int | None) -> tuple[Phase, ...]:
        """The phases from a moment on until the run, or this part of it, broke off: a clean-up or a restart is not among them."""
        found: list[Phase] = []
        first = self.at(time_ns)
        for phase in self.phases:
            if first is None or phase.start_ns < first.start_ns:
                continue
            if found and phase.stage in ("cleanup", "init", "recover"):
                break
            found.append(phase)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Span:
    """What one line of one writer says: a stage of a step ended, after so long."""

    stage: str
    step: int | None
    start_ns: int | None
    end_ns: int
    record: Record
    role: str | None


def build(identity: Identity, clock: Clock) -> Course:
    """Put the phases together."""
    told: list[tuple[Writer, list[Phase], list[_Span], list[dict[str, Any]]]] = []
    for writer in identity.writers:
        marks = writer.info.get("marks") or ()
        if marks:
            common = clock.of_file(writer.host, bool(writer.reading.facts.get("zoned")))
            told.append((writer, *_of_writer(writer, [(common(m[0]), *m[1:]) for m in marks])))
    if not told:
        return Course()
    stages = {p.stage for _, phases, spans, _ in told for p in (*phases, *spans)} | {s for _, _, _, sums in told for x in sums for s, _ in x["stages"]}
    staged = bool(stages & OF_STEPS) and len(stages & set(ORDER)) > 1
    ranked = sorted((t for t in told if t[1]), key=lambda t: (-len({p.stage for p in t[1]} & set(ORDER)), t[0].role != "controller", -len(t[1]), t[0].source, t[0].stream))
    believed = frozenset((w.source, w.stream) for w, phases, _, _ in ranked if len({p.stage for p in phases} & set(ORDER)) >= ENOUGH_STAGES)
    order = _order([x for _, _, _, sums in told for x in sums])
    phases = _counted(_announced(ranked), _step_lines(identity, clock))
    have = {p.stage for p in phases}
    if ranked and (ranked[0][0].source, ranked[0][0].stream) in believed:
        phases = _closed(phases)
    else:
        chained = [p for _, _, _, sums in told for x in sums for p in _chain(x, phases)]
        spans = [s for _, _, found, _ in told for s in found if s.stage not in have or s.stage in ("weights_update",)]
        phases = _joined(phases, chained, _clusters(spans))
        phases = _closed(_stepped(phases, order))
        phases = _filled(phases, order)
    phases = _initial(phases, ranked, clock)
    phases.sort(key=lambda p: (p.start_ns, p.end_ns or 1 << 62, p.stage))
    return Course(tuple(phases), staged, believed, tuple(p.start_ns for p in phases))


def _of_writer(writer: Writer, marks: list[tuple]) -> tuple[list[Phase], list[_Span], list[dict[str, Any]]]:
    """The announced phases of one writer, what it says had ended, and its sums."""
    phases: list[Phase] = []
    spans: list[_Span] = []
    sums: list[dict[str, Any]] = []
    current: Phase | None = None
    by_call = False  # whether the current phase is known by a request only
    step: int | None = None
    for ns, stage, said, phase, line, offset, raw, _, seconds, own, call in marks:
        record = Record(writer.source, line, offset, raw)
        if phase == "after":
            if sums and sums[-1]["offset"] <= offset and sums[-1]["step"] == said and offset - sums[-1]["last"] < 2000:
                sums[-1]["stages"].append((stage, seconds or 0.0))
                sums[-1]["last"] = offset
            else:
                sums.append({"step": said, "ns": ns, "own": own, "stages": [(stage, seconds or 0.0)], "offset": offset, "last": offset, "record": record, "role": writer.role})
            continue
        if ns is None:
            continue
        if phase == "start":
            if current is not None and current.stage == stage and (said is None or said == current.step):
                continue
            if call and current is not None and not by_call and stage not in ("cleanup", "init"):
                continue
            if current is not None:
                phases.append(current)  # nothing says when it ended
            if said is not None and stage not in ("recover",):
                step = said
            current, by_call = Phase(stage, said if said is not None else None if stage in ("init", "recover") else step, ns, None, record=record, role=writer.role), call
            continue
        if call:
            spans.append(_Span(stage, said, None, ns, record, writer.role))
        elif current is not None and _same(current.stage, stage):
            phases.append(replace(current, end_ns=max(ns, current.start_ns), failed=phase == "failed"))
            current = None
        elif phase == "end":
            spans.append(_Span(stage, said, ns - int(seconds * SECOND_NS) if seconds else None, ns, record, writer.role))
        if said is not None and not call:
            step = said
    if current is not None:
        phases.append(replace(current, open=True))
    return phases, spans, sums


def _same(a: str, b: str) -> bool:
    return a == b or (a.endswith("save") and b == "save")


def _announced(ranked: list[tuple]) -> list[Phase]:
    """The phases of the one who announces most, and of others those stages that it does not tell."""
    phases: list[Phase] = []
    for _, found, _, _ in ranked:
        have = {p.stage for p in phases}
        if phases and not any(p.stage in ORDER and p.stage not in have for p in found):
            continue
        phases += [p for p in found if p.stage not in have]
    return sorted(phases, key=lambda p: p.start_ns)


def _step_lines(identity: Identity, clock: Clock) -> list[tuple[int, int]]:
    """`(common time, step)` of the lines that state a step, by time; a step's lines come when its training is done."""
    found = set()
    for writer in identity.writers:
        common = clock.of_file(writer.host, bool(writer.reading.facts.get("zoned")))
        found |= {(ns, m[1]) for m in writer.info["steps"] if m[1] is not None and (ns := common(m[0])) is not None}
    return sorted(found)


def _counted(phases: list[Phase], lines: list[tuple[int, int]]) -> list[Phase]:
    """Phases whose announcements count no steps: a step is that of its first line within it or behind; behind the last line it is the next one.

    Trainings announced in turn tell the steps apart: between one training's beginning and the next lie the saves of the first and the weights,
    the rollout and the reference of the second.
    """
    if not lines or any(p.step is not None for p in phases if p.stage in ORDER):
        return phases
    trainings = [p for p in phases if p.stage == "train"]
    steps: list[tuple[int, int]] = []  # (beginning of a training, its step)
    for at, one in enumerate(trainings):
        other = trainings[at + 1] if at + 1 < len(trainings) else None
        inside = [s for ns, s in lines if one.start_ns <= ns and (other is None or ns < other.start_ns)]
        ended = [s for ns, s in lines if one.start_ns <= ns <= (one.end_ns or 0)]
        if said := (ended or inside):
            steps.append((one.start_ns, Counter(said).most_common(1)[0][0]))
        elif steps:
            steps.append((one.start_ns, steps[-1][1] + 1))
    if not steps:
        return phases
    out = []
    for phase in phases:
        before = [s for ns, s in steps if ns <= phase.start_ns]
        after = [s for ns, s in steps if ns >= phase.start_ns]
        late = phase.stage == "train" or phase.stage.endswith("save")
        step = None
        if phase.stage in ORDER:
            step = (before[-1] if before else None) if late else after[0] if after else before[-1] + 1
        out.append(replace(phase, step=step))
    return out


def _closed(phases: list[Phase]) -> list[Phase]:
    """Open phases end where the next one begins."""
    ordered = sorted(phases, key=lambda p: (p.start_ns, p.end_ns or 1 << 62))
    out = []
    for at, phase in enumerate(ordered):
        after = ordered[at + 1].start_ns if at + 1 < len(ordered) else None
        out.append(replace(phase, end_ns=after, open=False) if phase.end_ns is None and after is not None else phase)
    return out


def _order(sums: list[dict[str, Any]]) -> tuple[str, ...]:
    """The stages in the order of a step: as the sums list them most often, then the usual one."""
    seen = Counter(tuple(dict.fromkeys(s for s, _ in x["stages"] if s in ORDER)) for x in sums)
    listed = max(seen, key=lambda o: (len(o), seen[o], o), default=())
    if len(listed) < ENOUGH_STAGES:
        return ORDER
    rest = [s for s in ORDER if s not in listed]
    if "weights_update" in rest:
        return ("weights_update", *listed, *(s for s in rest if s != "weights_update"))
    return (*listed, *rest)


def _chain(x: dict[str, Any], phases: list[Phase]) -> list[Phase]:
    """The phases of a step that was summed up, laid end to end from one that was announced, else back from the moment of the sum."""
    stages = [(s, int(seconds * SECOND_NS)) for s, seconds in x["stages"]]
    anchor = next(((i, p) for i, (s, _) in enumerate(stages) for p in phases if p.stage == s and p.step == x["step"] and p.step is not None), None)
    starts: list[int] = [0] * len(stages)
    if anchor is not None:
        at, phase = anchor
        starts[at] = phase.start_ns
        for i in range(at + 1, len(stages)):
            starts[i] = starts[i - 1] + stages[i - 1][1]
        for i in range(at - 1, -1, -1):
            starts[i] = starts[i + 1] - stages[i][1]
    elif x["ns"] is not None:
        end = x["ns"]
        for i in range(len(stages) - 1, -1, -1):
            starts[i] = end = end - stages[i][1]
    else:
        return []
    return [Phase(s, x["step"], at, at + length, record=x["record"], sure=False, role=x["role"]) for (s, length), at in zip(stages, starts, strict=True)]


def _clusters(spans: Iterable[_Span]) -> list[Phase]:
    """What many workers say of one phase, made one: from the first start to the last end."""
    by_stage: dict[str, list[_Span]] = {}
    for span in spans:
        by_stage.setdefault(span.stage, []).append(span)
    found: list[Phase] = []
    for stage, members in sorted(by_stage.items()):
        usual = median([s.end_ns - s.start_ns for s in members if s.start_ns is not None] or [0])
        members.sort(key=lambda s: (s.end_ns, s.record.source, s.record.offset))
        groups: list[list[_Span]] = []
        for span in members:
            last = groups[-1] if groups else None
            same_step = last is not None and span.step is not None and any(s.step == span.step for s in last)
            near = last is not None and (span.end_ns - last[-1].end_ns <= NEAR_NS or (span.start_ns is not None and span.start_ns < last[-1].end_ns))
            clash = last is not None and span.step is not None and any(s.step is not None and s.step != span.step for s in last)
            if last is not None and not clash and (near or same_step):
                last.append(span)
            else:
                groups.append([span])
        for group in groups:
            starts = [s.start_ns for s in group if s.start_ns is not None]
            steps = Counter(s.step for s in group if s.step is not None)
            start = min(starts) if starts else group[0].end_ns - int(usual)
            step = max(steps, key=lambda k: (steps[k], k)) if steps else None
            found.append(Phase(stage, step, start, group[-1].end_ns, record=group[0].record, role=group[0].role))
    return found


def _joined(announced: list[Phase], chained: list[Phase], clusters: list[Phase]) -> list[Phase]:
    """Announced phases, then what workers say, then sums: each adds what those before it do not tell."""
    phases = list(announced)
    for more in (clusters, chained):
        lengths = {(p.stage, p.step): (p.end_ns or p.start_ns) - p.start_ns for p in more if p.step is not None}
        phases = [p if p.end_ns is not None or not (n := lengths.get((p.stage, p.step))) else replace(p, end_ns=p.start_ns + n, open=False) for p in phases]
        known = {(p.stage, p.step) for p in phases if p.step is not None}
        spots = [(p.stage, p.start_ns, p.end_ns if p.end_ns is not None else p.start_ns) for p in phases]
        for phase in more:
            if phase.step is not None and (phase.stage, phase.step) in known:
                continue
            if any(_same(s, phase.stage) or _same(phase.stage, s) for s, a, b in spots if a <= (phase.end_ns or phase.start_ns) and phase.start_ns <= b):
                continue
            phases.append(phase)
    return sorted(phases, key=lambda p: p.start_ns)


def _stepped(phases: list[Phase], order: tuple[str, ...]) -> list[Phase]:
    """Phases without a step get that of their neighbours, by their places in the order of a step."""
    place = {s: i for i, s in enumerate(order)}
    out = list(phases)
    for at, phase in enumerate(out):
        if phase.step is not None or phase.stage not in place:
            continue
        before = next((p for p in reversed(out[:at]) if p.step is not None and p.stage in place), None)
        after = next((p for p in out[at + 1 :] if p.step is not None and p.stage in place), None)
        step = None
        if after is not None and place[phase.stage] < place[after.stage]:
            step = after.step
        if before is not None and (step is None or step == before.step):
            wraps = place[phase.stage] <= place[before.stage] and phase.start_ns >= (before.end_ns or before.start_ns) - NEAR_NS
            step = before.step + (1 if wraps and phase.stage != before.stage else 0) if before.step is not None else None
            if after is not None and after.step is not None and step is not None and step > after.step:
                step = after.step
        out[at] = replace(phase, step=step if step is not None else after.step if after is not None else None)
    return out


def _filled(phases: list[Phase], order: tuple[str, ...]) -> list[Phase]:
    """What lies in a gap, and behind the last phase, where only one stage of this run can."""
    seen = {p.stage for p in phases}
    cycle = [s for s in order if s in seen]
    if len(cycle) < 2:
        return phases
    out = list(phases)
    regular = [p for p in phases if p.stage in cycle]
    for one, other in pairwise(regular):
        if one.end_ns is None or other.start_ns - one.end_ns < SECOND_NS:
            continue
        a, b = cycle.index(one.stage), cycle.index(other.stage)
        between = [s for s in (cycle[(a + i) % len(cycle)] for i in range(1, (b - a) % len(cycle) or len(cycle))) if s not in ("eval",)]
        must = [s for s in between if not s.endswith("save")] or between[:1]
        if len(must) == 1:
            wrapped = cycle.index(must[0]) < a
            step = one.step + 1 if wrapped and one.step is not None else one.step
            out.append(Phase(must[0], step, one.end_ns, other.start_ns, sure=False))
    last = max((p for p in regular), key=lambda p: (p.end_ns is None, p.end_ns or p.start_ns), default=None)
    if last is not None and last.end_ns is not None:
        place = (cycle.index(last.stage) + 1) % len(cycle)
        step = last.step + 1 if place == 0 and last.step is not None else last.step
        out.append(Phase(cycle[place], step, last.end_ns, None, open=True, sure=False))
    return out


def _initial(phases: list[Phase], ranked: list[tuple], clock: Clock) -> list[Phase]:
    """What comes before the first announced stage is the start-up."""
    if not phases or not ranked:
        return phases
    writer = ranked[0][0]
    first = writer.info["first"]
    began = clock.resolve(first[0], writer.host, bool(writer.reading.facts.get("zoned"))) if first else None
    head = min(p.start_ns for p in phases)
    if began is None or began >= head:
        return phases
    return [Phase("init", None, began, head, record=Record(writer.source, first[3], first[4], first[5]), sure=False, role=writer.role), *phases]


#: Of a run of which nothing is told.
NOTHING = Course()
