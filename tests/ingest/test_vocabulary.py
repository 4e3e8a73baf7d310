"""What programs of all versions print gets the kind that it means; the tables stand in `vocabulary/`, one per speaker."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rca.ingest.line import parse
from rca.ingest.signatures import best, load

TABLES = sorted((Path(__file__).parent / "vocabulary").glob("*.toml"))
SILENT = "silent"  # lines that no signature takes for trouble


def kind_of(line: str) -> str | None:
    """The kind of one raw line by itself, as the reader would give it; None where nothing speaks for it or it is only a notice."""
    low = line.lower()
    hit = best(parse(line).text, [s for s in load() if any(word.lower() in low for word in s.literals)])
    return hit[0].kind if hit else None


@pytest.mark.parametrize("table", TABLES, ids=lambda p: p.stem)
def test_lines_get_their_kind(table: Path) -> None:
    """Every line of the table is recognised, and as what it is."""
    calm = {s.kind for s in load() if s.severity == "info"} | {None}
    wrong = []
    for kind, lines in tomllib.loads(table.read_text("utf-8")).items():
        found = [(line, kind_of(line)) for line in lines]
        wrong += [(kind, got, line) for line, got in found if (got not in calm if kind == SILENT else got != kind)]
    assert wrong == []
