"""The document itself: the report for programs, in the contract's key order."""

from __future__ import annotations

import json
from typing import Any

from rca.report.safe import CI_ANYWHERE


def render(document: dict[str, Any], *, width: int | None = None, color: bool = False) -> str:
    """JSON in ASCII: the same on every terminal and in every locale, and no character of a log acts on what shows it."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, indent=2)
    return CI_ANYWHERE.sub(r"\\u0023", text.replace("\x7f", "\\u007f")) + "\n"
