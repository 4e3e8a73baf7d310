"""The shape of a rule file: which key holds what. Words are checked where they are used; here a value of the wrong type is found, with its key.

A rule may also carry its own tests, `[[test]]` tables: what the rule is to say about some log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rca.errors import RcaError, did_you_mean

TEXT, NUMBER, FLAG, WORDS, TABLE, TABLES = "a text", "a number", "true or false", "a list of texts", "a table", "a list of tables"
RULE = {
    "id": TEXT, "title": TEXT, "cause": TEXT, "status": TEXT, "finds": TEXT, "why": TEXT, "looks_like": TEXT, "told_apart": TEXT, "fooled_by": WORDS,
    "sources": WORDS, "survivable": FLAG, "link": TABLES, "collect": TABLES, "remedy": TABLE, "test": TABLES,
}  # fmt: skip
LINK = {
    "name": TEXT, "role": TEXT, "kind": WORDS, "stage": WORDS, "where": TABLE, "relation": TABLE, "present": NUMBER, "absent": NUMBER, "seen_by": TEXT,
    "latent": FLAG, "cause_class": TABLE, "more": TABLES,
}  # fmt: skip
RELATION = {"to": TEXT, "same": WORDS, "differs": WORDS, "edge": TEXT, "before_s": NUMBER, "after_s": NUMBER}
MORE = {"where": TABLE, "worth": NUMBER, "says": TEXT}
COLLECT = {"what": TEXT, "how": TEXT}
REMEDY = {"action": TEXT, "text": TEXT, "retryable": FLAG, "cordon": FLAG}
TEST = {"name": TEXT, "log": TEXT, "files": TABLE, "path": TEXT, "cause": TEXT, "not_cause": TEXT, "verdict": TEXT, "min": NUMBER, "host": TEXT, "rank": NUMBER}
EXAMPLES = {TEXT: '"..."', NUMBER: "1.5", FLAG: "true", WORDS: '["..."]', TABLE: "{ ... }", TABLES: "[{ ... }]"}


def check(data: dict[str, Any], path: Path) -> None:
    """Raise RcaError for the first value of the wrong type."""
    _types(data, RULE, "", path)
    for number, link in enumerate(data.get("link", ()), 1):
        where = f" of link {number}"
        _types(link, LINK, where, path)
        _types(link.get("relation", {}), RELATION, f" of `relation`{where}", path)
        gap = link.get("relation", {}).get("step_gap", [0, 0])
        if not (isinstance(gap, list) and len(gap) == 2 and all(_is(g, NUMBER) for g in gap)):
            raise _wrong("step_gap", f" of `relation`{where}", gap, "two numbers", "[1, 50]", path)
        for more in link.get("more", ()):
            _types(more, MORE, f" of `more`{where}", path)
        for name, value in link.get("cause_class", {}).items():
            if not _is(value, TEXT):
                raise _wrong(name, f" of `cause_class`{where}", value, TEXT, '"fs.full"', path)
    for number, entry in enumerate(data.get("collect", ()), 1):
        _types(entry, COLLECT, f" of collect {number}", path)
        if set(entry) != set(COLLECT):
            raise RcaError(f"collect {number} needs `what` and `how`, and nothing else", where=str(path), hint='write { what = "...", how = "the command" }')
    _types(data.get("remedy", {}), REMEDY, " of `remedy`", path)
    for number, test in enumerate(data.get("test", ()), 1):
        _test(test, number, path)


def _test(test: dict[str, Any], number: int, path: Path) -> None:
    where = f" of test {number}"
    unknown = next((key for key in test if key not in TEST), None)
    if unknown:
        raise RcaError(f"unknown key: `{unknown}`{where}", where=str(path), hint=did_you_mean(unknown, TEST) or f"known keys: {', '.join(TEST)}")
    _types(test, TEST, where, path)
    if sum(key in test for key in ("log", "files", "path")) != 1:
        raise RcaError(f"test {number} needs one of `log`, `files` and `path`", where=str(path), hint="log = '''the lines of a log'''")
    for name, text in test.get("files", {}).items():
        if not _is(text, TEXT) or Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).name:
            raise RcaError(f"`files`{where} is not a table of names and texts: `{name}`", where=str(path), hint='files = { "rank0.log" = "..." }')
    given = Path(test.get("path", "."))
    if given.is_absolute() or ".." in given.parts:
        raise RcaError(f"`path`{where} leads out of the folder of the rules: `{given}`", where=str(path), hint="put the logs into `tests/` beside the rules")


def _types(table: dict[str, Any], types: dict[str, str], where: str, path: Path) -> None:
    for key, wanted in types.items():
        if key in table and not _is(table[key], wanted):
            raise _wrong(key, where, table[key], wanted, f"{key} = {EXAMPLES[wanted]}", path)


def _wrong(key: str, where: str, value: Any, wanted: str, example: str, path: Path) -> RcaError:
    return RcaError(f"`{key}`{where} is not {wanted}: `{str(value)[:80]}`", where=str(path), hint=f"write {example}")


def _is(value: Any, wanted: str) -> bool:
    if wanted == TEXT:
        return isinstance(value, str)
    if wanted == NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == FLAG:
        return isinstance(value, bool)
    if wanted == TABLE:
        return isinstance(value, dict)
    item = str if wanted == WORDS else dict
    return isinstance(value, list) and all(isinstance(v, item) for v in value)
