"""An engine that is told to take its memory back and finds none: the request for it is then never answered.

Source: torch_memory_saver (pause and resume), vLLM csrc/cumem_allocator (sleep and wake).
"""

from __future__ import annotations

import re

from rca.correlate.view import View
from rca.model import Edge
from rca.taxonomy import Kind

TAKEN_BACK = re.compile(r"cu_?mem_?create|cumem_allocator|memory_saver", re.I)
RESUMES = ("resume", "onload", "wake", "load")


def build(view: View) -> list[Edge]:
    """Edges from an allocation that failed while memory was mapped anew to the request that asked for it and was not answered."""
    failed = [e for e in view.of(Kind.DEVICE_OOM) if TAKEN_BACK.search(e.text)]
    asked = [e for e in view.of(Kind.EVENT_LOST) if str(e.attrs.get("event", "")).startswith(RESUMES)] if failed else []
    found = []
    for cause in failed:
        for effect in asked:
            above = cause.source == effect.source and cause.offset < effect.offset
            untimed = cause.attrs.get("inherited") or None in (cause.time_ns, effect.time_ns)
            if above if untimed else (cause.time_ns or 0) <= (effect.time_ns or 0):
                found.append(Edge(cause.event_id, effect.event_id, "rpc"))
    return found
