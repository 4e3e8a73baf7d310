"""`rca rules test DIR`: every rule and signature of a folder is checked, and every rule's own tests are run.

A test is a log and what the analyzer, with the rules of the folder, is to say about it:

    [[test]]
    log = '''the lines of a log'''     # or files = { "rank0.log" = "..." }, or path = "tests/run-7" beside the rules
    cause = "fs.full"                  # the first hypothesis; without any expectation the rule's own cause
    min = 0.8                          # of its confidence
    # or: not_cause = "fs.full"        # must not come first
    # and: verdict = "failed", host = "node-7", rank = 3
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rca.discover import data_files
from rca.errors import RcaError

VERDICTS = ("failed", "healthy", "inconclusive")


class Outcome(NamedTuple):
    """What became of one test."""

    rule: str
    name: str
    passed: bool
    told: str  # what came out, and what was expected instead


def problems(folder: Path) -> list[RcaError]:
    """Everything that is wrong with the files of a folder of rules, one error per file, with the line where it can be told."""
    from rca.ingest.signatures import load
    from rca.rules.chain import NOT_RULES, read_rule
    from rca.taxonomy import CAUSES

    found: list[RcaError] = []
    for rule_id, path in data_files(folder):
        if rule_id.split("/")[0] in NOT_RULES:
            continue
        try:
            read_rule(path, rule_id)
            for number, test in enumerate(tomllib.loads(path.read_text("utf-8")).get("test", ()), 1):
                for key, known in (("cause", CAUSES), ("not_cause", CAUSES), ("verdict", VERDICTS)):
                    if key in test and test[key] not in known:
                        raise RcaError(f"unknown {key}: `{test[key]}` of test {number}", where=str(path))
        except RcaError as error:
            found.append(_located(error, path))
    if (signatures := folder / "signatures").is_dir():
        try:
            load(signatures)
        except RcaError as error:
            found.append(error)
    return found


def outcomes(folder: Path) -> Iterator[Outcome]:
    """Run the tests of all rules of a folder that has no problems. Raises RcaError where a log cannot be read."""
    from rca.rules.chain import load_rules

    for rule in load_rules(folder):
        if not rule.path.is_relative_to(folder):
            continue
        for number, test in enumerate(tomllib.loads(rule.path.read_text("utf-8")).get("test", ()), 1):
            name = test.get("name", f"test {number}")
            told = _run(test, rule.cause, folder)
            yield Outcome(rule.id, name, told[0], told[1])


def _run(test: dict[str, Any], own: str, folder: Path) -> tuple[bool, str]:
    import rca

    with tempfile.TemporaryDirectory(prefix="rca-") as place:
        logs = folder / test["path"] if "path" in test else Path(place) / "logs"
        if "path" in test and not logs.exists():
            raise RcaError(f"no such file or folder: `{test['path']}`", where=str(folder), hint="`path` counts from the folder of the rules")
        for name, text in (test.get("files") or {"log.txt": test.get("log", "")}).items() if "path" not in test else ():
            (logs / name).parent.mkdir(parents=True, exist_ok=True)
            (logs / name).write_text(text, "utf-8")
        document = rca.analyze(logs, rules=folder).document
    first = document["hypotheses"][0] if document["hypotheses"] else {"cause": None, "confidence": 0.0, "rule": "", "entity": {}}
    told = f"{document['verdict']}: {first['cause']} {first['confidence']:.2f} by {first['rule']}" if first["cause"] else f"{document['verdict']}, no cause"
    expected = {k: test[k] for k in ("cause", "not_cause", "verdict", "min", "host", "rank") if k in test}
    if not expected.keys() & {"cause", "not_cause", "verdict"}:
        expected["cause"] = own
    wrong = []
    if "cause" in expected and first["cause"] != expected["cause"]:
        wrong.append(f"{expected['cause']} first")
    if "not_cause" in expected and first["cause"] == expected["not_cause"]:
        wrong.append(f"something else than {expected['not_cause']}")
    if "verdict" in expected and document["verdict"] != expected["verdict"]:
        wrong.append(f"verdict {expected['verdict']}")
    if "min" in expected and first["confidence"] < expected["min"]:
        wrong.append(f"at least {expected['min']}")
    wrong += [f"{key} {expected[key]}" for key in ("host", "rank") if key in expected and first["entity"].get(key) != expected[key]]
    return not wrong, told + (f"; expected {', '.join(wrong)}" if wrong else "")


def _located(error: RcaError, path: Path) -> RcaError:
    """The error with the line that holds the word it complains of."""
    if error.where != str(path):
        return error
    words = error.message.split("`")[1::2]
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return error
    for word in sorted(words, key=len, reverse=True):
        number = next((i for i, line in enumerate(lines, 1) if word and word in line and not line.lstrip().startswith("#")), None)
        if number:
            return RcaError(error.message, f"{path}:{number}", error.hint)
    return error
