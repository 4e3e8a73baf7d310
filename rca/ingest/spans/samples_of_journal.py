"""Samples that stand among the spans of a journal: counters of the host, taken by `rca sample` or within the trainer.

`"a"` holds values by what they speak of, `{"": {"mem.available": 8e9}, "gpu=0,bus_id=00000000:47:00.0": {"gpu.util": 90}}`, under the names of `names.toml`.
They become what files of measurements give, `(time_ns, host, subject, name, value, line, offset, raw)`, and are judged by the same detectors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rca.ingest.samples._collect import LARGEST, Samples, Subject
from rca.ingest.spans.table import Table

NUMBERED = ("gpu",)  # pairs whose value is a number
RAW_CUT = 500  # characters of a line, which holds many values
SUBJECT_MAX = 2_000  # characters


def take(table: Table, values: Any, ns: int | None, host: Any, offset: int, raw: str) -> None:
    """Take one record; what is no number is passed over."""
    if not isinstance(values, dict):
        table.damaged += 1
        return
    if table.samples is None:
        table.samples = Samples("journal", "rca_trace")
        table.samples.raw_cut = RAW_CUT
    found: Samples = table.samples
    where = host if isinstance(host, str) else None
    for about, named in values.items():
        of, named = (subject(about), named) if isinstance(named, dict) else ((), {about: named})
        for name, value in named.items():
            if isinstance(value, int | float) and abs(value) <= LARGEST:
                found.add(name, value, (None, offset, raw), of, ns=ns, host=where)


@lru_cache(maxsize=4096)
def subject(text: str) -> Subject:
    """Pairs from a record's text.

    >>> subject("gpu=0,bus_id=00000000:47:00.0"), subject(""), subject("mount")
    ((('gpu', 0), ('bus_id', '00000000:47:00.0')), (), ())
    """
    pairs = (pair.partition("=") for pair in text[:SUBJECT_MAX].split(",") if "=" in pair)
    return tuple((k, int(v) if k in NUMBERED and v.isdecimal() and len(v) < 6 else v) for k, _, v in pairs)


def result(table: Table) -> dict[str, Any]:
    """What the reading of a file hands over about them; nothing where there are none."""
    if table.samples is None:
        return {}
    gaps = "; ".join(f"{what} ({count})" for what, count in sorted(table.samples.gaps.items()))
    return {"samples": table.samples.rows(), "measured": {"server_clock": False, "addresses": {}, "gaps": gaps, "process": bool(len(table) or table.records)}}
