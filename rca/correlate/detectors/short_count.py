"""Counts that do not agree: what a worker says it sent against what its receiver says, or what it has always been.

Controllers write down what each worker sent, step after step, and need not notice that it was less than the worker made.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rca.correlate.identity import Writer
from rca.correlate.view import View
from rca.model import Event, Record
from rca.taxonomy import Kind

LEAST = 3  # times that the usual number was seen before
USUAL = 0.9  # of all times
WORD = re.compile(r"[\w-]+")
UNIT = re.compile(r"# (rows|samples|responses|completions|trajectories|条)|out=\(#")


def detect(view: View) -> list[Event]:
    """One event for each kind of line whose last number falls short of the sender's own, or of its usual one."""
    lines = [(reading, writer, rows) for reading in view.readings for writer in view.identity.writers_of(reading.source)[:1] for rows in _of_kinds(reading.facts.get("samples", ())).values()]
    made: dict[str, tuple[Writer, dict[str, int]]] = {}
    for _, writer, rows in lines:
        if writer.actor:
            made.setdefault(writer.actor, (writer, {}))[1][_unit(rows[-1][2])] = rows[-1][4]
    found = []
    for reading, writer, rows in lines:
        name, value = str(rows[-1][2]), rows[-1][4]
        sender = next((made[word][0] for word in WORD.findall(name) if word in made and word != writer.actor), None)
        sent = made[sender.actor][1].get(_unit(name), 0) if sender else 0
        usual, times = Counter(r[4] for r in rows[:-1]).most_common(1)[0] if len(rows) > LEAST else (0, 0)
        expected = max(sent, usual if times >= max(LEAST, USUAL * (len(rows) - 1)) else 0)
        if value < expected:
            found.append(_event(rows[-1], expected, reading, writer, sender, view))
    return found


def _of_kinds(rows: Any) -> dict[str, list[tuple]]:
    """The samples of counts by the text around them, in the order of the file; errors repeat numbers and are no counts."""
    kinds: dict[str, list[tuple]] = {}
    for row in rows:
        if row[3] == "handed" and "rror" not in str(row[2]):
            kinds.setdefault(str(row[2]), []).append(row)
    return kinds


def _unit(name: object) -> str:
    match = UNIT.search(str(name))
    return (match[1] or "rows") if match else ""


def _event(row: tuple, expected: int, reading: Any, writer: Writer, sender: Writer | None, view: View) -> Event:
    ns, _, _, _, value, line, offset, raw = row
    when = view.clock.resolve(ns, writer.host, bool(reading.facts.get("zoned")))
    about = {"about": {"worker": sender.actor, "host": sender.host, "role": sender.role}} if sender else {}
    return Event(
        Kind.PAYLOAD_DIFFERS, f"{value} of {expected} arrived: {raw.strip()[:200]}", severity="warning", time_ns=when, host=writer.host, role=writer.role, actor=writer.actor,
        attempt=view.identity.attempts - 1, attrs={"got": value, "expected": expected, **about}, also=(Record(reading.source, line, offset, raw),),
    )  # fmt: skip
