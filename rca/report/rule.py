"""A rule as a page: its own words, in the order in which a reader asks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from rca.report.safe import safe_text

WIDTH = 80  # columns, where the terminal does not say


def page(rule: Any, width: int | None = None) -> str:
    """What it finds, why, what it looks like, what it is taken for, and what to do; empty fields are left out."""
    wide = width or WIDTH

    def paragraph(text: Any, lead: str = "  ", hang: str = "  ") -> list[str]:
        return textwrap.wrap(safe_text(" ".join(str(text or "").split())), wide, initial_indent=lead, subsequent_indent=hang)

    def items(values: Iterable[str]) -> list[str]:
        return [row for value in values for row in paragraph(value, "  - ", "    ")]

    remedy = {key: _get(rule.remedy, key) for key in ("action", "text", "retryable")}
    advice = ": ".join(part for part in (remedy["action"], remedy["text"]) if part)
    retry = {True: "A retry can help.", False: "A retry would fail again."}.get(remedy["retryable"], "")
    sections = (
        ("What it finds", paragraph(rule.finds)),
        ("Why it happens", paragraph(rule.why)),
        ("What it looks like", paragraph(rule.looks_like)),
        ("How to tell it from look-alikes", paragraph(rule.told_apart)),
        ("What fools it", items(_listed(rule.fooled_by))),
        ("Chain", items(_link(link) for link in rule.links)),
        ("Cause classes", items(_listed(rule.causes))),
        ("What to do", paragraph(advice) + paragraph(retry)),
        ("What to collect", items(f"{_get(c, 'what')}: {_get(c, 'how')}" for c in rule.collect or ())),
        ("Sources", items(_listed(rule.sources))),
        ("File", paragraph(rule.path)),
    )
    rows = [safe_text(rule.id), *paragraph(rule.title, "", "")]
    for name, lines in sections:
        rows += ["", name, *lines] if lines else []
    return "\n".join(rows) + "\n"


def _link(link: Any) -> str:
    kinds, stages = (", ".join(_listed(_get(link, key))) for key in ("kinds", "stages"))
    return f"{_get(link, 'name')} ({_get(link, 'role')}): {kinds}" + (f" in {stages}" if stages else "")


def _get(thing: Any, key: str) -> Any:
    return thing.get(key) if isinstance(thing, dict) else getattr(thing, key, None)


def _listed(value: Any) -> list[str]:
    if value is None or isinstance(value, str):
        return [value] if value else []
    return [str(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
