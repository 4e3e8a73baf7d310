"""The report for the person at the terminal: one screen in the usual case, readable without colour and at 80 columns.

Log text reaches the terminal only through `safe_text` and `rich.text.Text`: it is never taken for markup, and no line of the output starts with it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rca.report.document import chain, doubts, headline, percent, place, shown_evidence, when
from rca.report.replayed import sentence
from rca.report.safe import safe_lines, safe_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDTH = 80  # columns, where the terminal does not say
LEAST_WIDTH = 40  # columns; below this the labels leave no room
BAR = "    │ "  # before raw log text: a line of the output never starts with it
LABEL = 10  # columns of the left margin that holds the labels
MOST_LINES = 6  # evidence lines: with the rest of the report they fill a screen; the JSON report has them all
MOST_ROWS = 2  # screen rows per cited line
MOST_OTHERS = 3  # other hypotheses, missing items, notes, doubts
RETRY = {True: "can help", False: "would fail again", None: "not known whether it helps"}
COLORS = {"FAILED": "bold red", "INCONCLUSIVE": "bold yellow", "HEALTHY": "bold green"}


def render(document: dict[str, Any], *, width: int | None = None, color: bool = False) -> str:
    """What broke, where, why, the lines that prove it, and what to do."""
    page = _Page(max(LEAST_WIDTH, width or WIDTH), color)
    first = document["hypotheses"][0] if document["hypotheses"] else None
    _head(page, document)
    if first:
        _where_and_why(page, document, first)
    _replay(page, document.get("replay", []), bool(first))
    if first:
        _evidence(page, first)
        _others(page, document)
    _missing(page, (first["missing"] if first else []) + document["coverage"]["missing"])
    if first:
        _remedy(page, first["remedy"], "To do" if document["verdict"] == "failed" else "If so")
    _notes(page, document["notes"])
    return safe_lines(page.text())


class _Page:
    """Rows of styled text under a hanging label. All text passes `safe_text` here."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.file = width, io.StringIO()
        self.console: Console | None = None  # only colours need one, and it takes long to import
        if color:
            from rich.console import Console

            self.console = Console(
                file=self.file, width=width, force_terminal=True, color_system="standard", markup=False, highlight=False, emoji=False, legacy_windows=False, _environ={}
            )

    def row(self, label: str, *parts: str | tuple[str, str], indent: int = LABEL) -> None:
        """Print `parts` (text or (text, style)) wrapped to the page, the label in the margin."""
        from rich.text import Text

        text = Text()
        for part in parts:
            words, style = part if isinstance(part, tuple) else (part, "")
            text.append(_shown(words), style)
        for number, line in enumerate(list(text.wrap(self.console, self.width - indent, overflow="fold")) or [Text("")]):  # type: ignore[arg-type]
            line.rstrip()
            margin = Text(_shown(label) if number == 0 else "", "bold")
            margin.append(" " * max(0, indent - margin.cell_len))
            self._print(margin + line)

    def quote(self, line: str, rows: int = MOST_ROWS) -> None:
        """Print the beginning of a raw log line, each row set off with a bar."""
        from rich.cells import chop_cells
        from rich.text import Text

        room = self.width - len(BAR)
        text = Text(_shown(line).strip())
        text.truncate(room * rows - rows, overflow="ellipsis")  # a wide character may leave one cell of each row empty
        for piece in chop_cells(text.plain, room):
            self._print(Text(BAR, "dim") + Text(piece))

    def gap(self) -> None:
        self.file.write("\n")

    def _print(self, line: Text) -> None:
        if self.console:
            self.console.print(line, soft_wrap=True)
        else:
            self.file.write(f"{line.plain}\n")

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.file.getvalue().split("\n"))


def _head(page: _Page, document: dict[str, Any]) -> None:
    verdict, cause, sure = headline(document)
    said = [(verdict, COLORS.get(verdict, "bold")), *((f"  {words}", "bold") for words in (cause, sure) if words)]
    page.row("", *said, indent=0)
    page.row("", document["summary"], indent=0)


def _where_and_why(page: _Page, document: dict[str, Any], first: dict[str, Any]) -> None:
    page.gap()
    page.row("Where", place(first["entity"]) or "no source says")
    if then := when(first):
        page.row("When", then)
    if first["summary"] and first["summary"] != document["summary"]:
        page.row("Why", first["summary"])
    if kinds := chain(first):
        page.row("Chain", kinds)
    page.row("Rule", first["rule"], ": ", first["title"])


def _replay(page: _Page, replays: list[dict[str, Any]], beneath: bool) -> None:
    if not replays:
        return
    if not beneath:
        page.gap()
    page.row("Replay", sentence(replays[0]), f" ({_address(replays[0])})")
    _more(page, len(replays) - 1, "replays")


def _evidence(page: _Page, first: dict[str, Any]) -> None:
    shown = shown_evidence(first, MOST_LINES)
    if not shown:
        return
    page.gap()
    page.row("Evidence", indent=0)
    quoted: set[tuple] = set()
    for item in shown:
        says = f"  {item['says']}" if item.get("says") else ""
        page.row(f"  {item['link']}", (_address(item), "cyan"), says, indent=LABEL + 3)
        address = (item["file"], item["line"])
        if address not in quoted:
            page.quote(item["text"])
        quoted.add(address)
    _more(page, len(first["evidence"]) - len(shown), "lines")


def _others(page: _Page, document: dict[str, Any]) -> None:
    others = document["hypotheses"][1:]
    page.gap()
    page.row("Other hypotheses", indent=0)
    for other in others[:MOST_OTHERS]:
        where = place(other["entity"])
        page.row(f"  {percent(other['confidence'])}", (other["cause"], "bold"), f" at {where}" if where else "", f": {other['title']}")
        against = [e for e in other["evidence"] if e["link"] == "against"]
        for item in against[:MOST_OTHERS]:
            page.row("  against", (_address(item), "cyan"), indent=LABEL + 3)
            page.quote(item["text"], rows=1)
        for term in doubts(other)[: MOST_OTHERS - len(against)] if len(against) < MOST_OTHERS else ():
            page.row("  against", term, indent=LABEL + 3)
    _more(page, len(others) - MOST_OTHERS, "hypotheses")
    page.row(f"  {percent(document['unknown_probability'])}", "something else than all of these" if others else "something else")


def _missing(page: _Page, missing: list[dict[str, Any]]) -> None:
    rows = list({m["what"]: m for m in missing}.values())
    if not rows:
        return
    page.gap()
    page.row("Missing", indent=0)
    for item in rows[:MOST_OTHERS]:
        page.row("  -", item["what"], indent=4)
        if item["how"]:
            page.row("    collect:", item["how"], indent=13)
    _more(page, len(rows) - MOST_OTHERS, "items")


def _remedy(page: _Page, remedy: dict[str, Any], label: str) -> None:
    page.gap()
    page.row(label, (remedy["action"], "bold"), f": {remedy['text']}" if remedy["text"] else "")
    page.row("Retry", RETRY[remedy["retryable"]])
    if remedy["cordon"]:
        page.row("Cordon", ", ".join(remedy["cordon"]))


def _notes(page: _Page, notes: list[dict[str, Any]]) -> None:
    if not notes:
        return
    page.gap()
    page.row("Notes", indent=0)
    for note in notes[:MOST_OTHERS]:
        page.row("  -", note["text"], f" ({_address(note)})" if note["file"] else "", indent=4)
    _more(page, len(notes) - MOST_OTHERS, "notes")


def _more(page: _Page, left: int, what: str) -> None:
    if left > 0:
        page.row("", f"{left} more {what}: see `--format json`", indent=4)


def _shown(text: str) -> str:
    return safe_text(text).replace("\t", "    ")


def _address(item: dict[str, Any]) -> str:
    return item["file"] if item["line"] is None else f"{item['file']}:{item['line']}"
