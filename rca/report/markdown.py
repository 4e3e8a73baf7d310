"""The report for a pull request, an issue or a chat: Markdown that no log line can break out of."""

from __future__ import annotations

import re
from typing import Any

from rca.report.document import chain, doubts, headline, percent, place, shown_evidence, when
from rca.report.replayed import sentence
from rca.report.safe import safe_lines, safe_text

MOST_LINES = 8  # evidence lines; the JSON report has them all
_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|~&!$]")
_LIST_START = re.compile(r"^(\s*(?:[0-9]+(?=[.)])|))([-+=.)])")
_MENTION = re.compile(r"(?<![\w.])@(?=\w)")
_WORD_JOINER = "\u2060"


def render(document: dict[str, Any], *, width: int | None = None, color: bool = False) -> str:
    """Headings, lists and fenced lines; reads well as plain text too."""
    verdict, cause, sure = headline(document)
    first = document["hypotheses"][0] if document["hypotheses"] else None
    title = f"# {verdict}" + (f": {code(cause)}" if cause else "") + (f" ({sure})" if sure else "")
    parts = [title, prose(document["summary"])]
    parts += [f"**Replay:** {prose(sentence(r))} ({address(r)})" for r in document.get("replay", [])[:1]]
    if first:
        parts += _first(first)
    others = document["hypotheses"][1:]
    if others:
        parts += ["## Other hypotheses", "\n".join(line for h in others for line in _other(h))]
    if first:
        parts.append(f"Something else than all of these: {percent(document['unknown_probability'])}.")
    parts += _missing(([*first["missing"]] if first else []) + document["coverage"]["missing"])
    parts += _remedy(first, "What to do" if document["verdict"] == "failed" else "What to do if so")
    if document["notes"]:
        parts += ["## Notes", "\n".join(f"- {prose(n['text'])}" + (f" ({address(n)})" if n["file"] else "") for n in document["notes"])]
    return safe_lines("\n\n".join(part for part in parts if part) + "\n")


def prose(text: str) -> str:
    """Text of unknown origin inside a paragraph: no markup, no link, no mention."""
    escaped = _MARKUP.sub(lambda m: "\\" + m[0], safe_text(" ".join(str(text).split())))
    return _MENTION.sub("@" + _WORD_JOINER, _LIST_START.sub(r"\1\\\2", escaped))


def code(text: str) -> str:
    """Text of unknown origin as a code span, whatever backticks it holds."""
    text = safe_text(str(text))
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fence(line: int | None, text: str) -> str:
    """One cited line in a fence longer than any inside; the number in front keeps raw text off the line's start."""
    shown = safe_text(text)
    ticks = "`" * max(3, _longest_run(shown) + 1)
    return f"{ticks}text\n{'' if line is None else line} │ {shown}\n{ticks}"


def address(item: dict[str, Any]) -> str:
    return code(f"{item['file']}:{item['line']}" if item["line"] is not None else item["file"])


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def _first(hypothesis: dict[str, Any]) -> list[str]:
    where, then, kinds = place(hypothesis["entity"]), when(hypothesis), chain(hypothesis)
    facts = [
        f"- **Where:** {prose(where)}" if where else "",
        f"- **When:** {prose(then)}" if then else "",
        f"- **Why:** {prose(hypothesis['summary'])}" if hypothesis["summary"] else "",
        f"- **Chain:** {prose(kinds)}" if kinds else "",
        f"- **Rule:** {code(hypothesis['rule'])}, {prose(hypothesis['title'])}",
    ]
    parts = ["\n".join(fact for fact in facts if fact)]
    shown = shown_evidence(hypothesis, MOST_LINES)
    if shown:
        parts.append("## Evidence")
    for item in shown:
        says = f": {prose(item['says'])}" if item.get("says") else ""
        parts += [f"{prose(item['link'])} {address(item)}{says}", fence(item["line"], item["text"])]
    left = len(hypothesis["evidence"]) - len(shown)
    return [*parts, f"{left} more lines are in the JSON report." if left > 0 else ""]


def _other(hypothesis: dict[str, Any]) -> list[str]:
    where = place(hypothesis["entity"])
    at = f" at {prose(where)}" if where else ""
    lines = [f"- {percent(hypothesis['confidence'])} {code(hypothesis['cause'])}{at}: {prose(hypothesis['title'])}"]
    lines += [f"  - against: {address(e)} {code(e['text'])}" for e in hypothesis["evidence"] if e["link"] == "against"]
    return lines + [f"  - against: {prose(term)}" for term in doubts(hypothesis)]


def _missing(missing: list[dict[str, Any]]) -> list[str]:
    rows = dict.fromkeys(f"- {prose(m['what'])}" + (f". Collect it: {code(m['how'])}" if m["how"] else "") for m in missing)
    return ["## What was missing", "\n".join(rows)] if rows else []


def _remedy(hypothesis: dict[str, Any] | None, heading: str) -> list[str]:
    if not hypothesis:
        return []
    remedy = hypothesis["remedy"]
    retry = {True: "can help", False: "would fail again", None: "not known whether it helps"}[remedy["retryable"]]
    rows = [f"- {code(remedy['action'])}" + (f": {prose(remedy['text'])}" if remedy["text"] else ""), f"- retry: {retry}"]
    if remedy["cordon"]:
        rows.append("- cordon: " + ", ".join(code(host) for host in remedy["cordon"]))
    return [f"## {heading}", "\n".join(rows)]
