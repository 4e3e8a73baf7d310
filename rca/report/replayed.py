"""What replays said, for every renderer: they are no part of the run's timeline, because they were made after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rca.model import Event
from rca.taxonomy import REPLAY_KINDS, Kind

VERDICTS = {
    Kind.REPLAY_REPRODUCED: "reproduces", Kind.REPLAY_NOT_REPRODUCED: "does not reproduce", Kind.REPLAY_DIVERGED: "diverges", Kind.REPLAY_UNDECIDED: "cannot tell",
}  # fmt: skip
MOST = 8  # replays, the newest first


def entries(events: Iterable[Event], line: Callable[[Event], str]) -> list[dict[str, Any]]:
    """One entry per replay, the newest first: its verdict, whom it is about, how the other requests came out, and the first hand-over that broke."""
    replays: dict[tuple, dict[str, list[Event]]] = {}
    for event in events:
        if event.kind in REPLAY_KINDS:
            replays.setdefault((-(event.attrs.get("made") or 0), event.source or ""), {}).setdefault(str(event.attrs.get("of")), []).append(event)
    return [_entry(found, line) for _, found in sorted(replays.items(), key=lambda r: r[0])][:MOST]


def _entry(found: dict[str, list[Event]], line: Callable[[Event], str]) -> dict[str, Any]:
    verdict, compared, broken = (found.get(name, [None])[-1 if name == "verdict" else 0] for name in ("verdict", "healthy", "hand_over"))
    first = verdict or compared or broken or next(e for events in found.values() for e in events)
    void = first.attrs.get("void")
    return {
        "verdict": VERDICTS.get(Kind(verdict.kind)) if verdict else None,
        "text": first.text,
        "counts": void is None and verdict is not None,
        "why_not": f"no evidence: {void}" if void else None if verdict else "it has no verdict",
        **{name: getattr(first, name) for name in ("role", "rank", "host", "step", "stage")},
        "request": first.request_id,
        "compared": compared.text if compared else None,
        "hand_over": broken.text if broken else None,
        "file": first.source,
        "line": first.line,
        "quote": line(first),
    }


def sentence(entry: dict[str, Any]) -> str:
    """What a replay said, in one line.

    >>> sentence({"verdict": "diverges", "text": "other weights", "why_not": "no evidence: the fault was made again for it", "compared": None})
    'diverges: other weights (no evidence: the fault was made again for it)'
    """
    said = ": ".join(part for part in (entry["verdict"], entry["text"]) if part)
    return said + (f" ({entry['why_not']})" if entry["why_not"] and entry["verdict"] else "")
