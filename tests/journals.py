"""What a journal holds, for tests of those who write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def records(folder: Path) -> list[dict[str, Any]]:
    """All records but headers, in the order of the files."""
    found = [json.loads(line) for path in sorted(folder.glob("*.rca.jsonl")) for line in path.read_text().splitlines() if line]
    return [r for r in found if "schema" not in r]
