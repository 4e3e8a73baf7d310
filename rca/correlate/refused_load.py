"""Weights that a loader has no place for: a `KeyError` on the name of a parameter, raised while weights are loaded or taken over.

One worker that does so may have a bug of its own. Several that refuse the same name were all given weights of another layout than theirs: another
version wrote them, or they belong to another model.
"""

from __future__ import annotations

import re
from collections import defaultdict

from rca.model import Event
from rca.taxonomy import Kind

RAISED = frozenset({Kind.EXCEPTION, Kind.THREAD_EXCEPTION})
#: `model.layers.0.mlp.up_proj.weight`, `lm_head.weight`; a plain key of a configuration or a batch has no such parts.
PARAMETER = re.compile(
    r"KeyError: ['\"]((?:\w{1,60}\.){1,12}(?:weight|bias|scales?|weight_scale\w{0,20}|qweight|qzeros|gamma|beta|inv_freq)"
    r"|(?:model|module|transformer|language_model|base_model|decoder|encoder|layers|blocks)\.(?:\w{1,60}\.){1,12}\w{1,60})['\"]"
)
LOADS = ("weights_update", "load", "recover")
LOADING = re.compile(r"load|weight|param|refit|sync|import|pull|receiv|broadcast|restore|resume|权重|参数|同步|加载|载入", re.I)


def look(events: list[Event]) -> list[Event]:
    """The same events in the same order: such an error is marked `loading`, and of several workers of kind `checkpoint.mismatch`, marked `by_name`."""
    named: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in events:
        if "KeyError" in event.text and (key := _key(event)) is not None:
            named[event.attempt or 0, key].append(event)
    changed: dict[int, Event] = {}
    for (_, key), prints in named.items():
        raised = [e for e in prints if e.kind in RAISED and e.severity in ("error", "fatal")]
        if not raised or not any(_loads(e, key) for e in prints):
            continue
        several = _workers(raised) > 1
        for event in raised:
            changed[event.event_id] = event.but(kind=str(Kind.CHECKPOINT_MISMATCH), attrs={**event.attrs, "by_name": True}) if several else event.but(attrs={**event.attrs, "loading": True})
    return [changed.get(e.event_id, e) for e in events] if changed else events


def _key(event: Event) -> str | None:
    found = PARAMETER.search(event.text)
    return found[1] if found else None


def _loads(event: Event, key: str) -> bool:
    """Whether one print of the error says what was done: by its stage, by the functions that it passed through, by the words before it."""
    if event.stage in LOADS:
        return True
    return LOADING.search(event.text.replace(key, "")) is not None or any(LOADING.search(str(f[2])) for f in event.attrs.get("frames") or ())


def _workers(raised: list[Event]) -> int:
    """How many processes raised it at least: by their names, or by files of one name in several folders. A caller's copy is nobody's."""
    own = [e for e in raised if e.attrs.get("frames") and not e.attrs.get("remote") and e.role != "controller"]
    who = {(e.rank, e.pid) if e.rank is not None or e.pid is not None else (e.host, e.actor) for e in own}
    folders: dict[str, set[str]] = defaultdict(set)
    for event in own:
        for record in event.records:
            folder, _, name = record.source.rpartition("/")
            folders[name].add(folder)
    return max(len(who), *(len(f) for f in folders.values())) if own else 0
