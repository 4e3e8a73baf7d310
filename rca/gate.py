"""The CI gate: a report and a policy to an exit code.

The policy is data, in `rca.toml`; other tables of that file belong to others:

    [gate]
    min_confidence = 0.5            # hypotheses below it are not judged

    [[gate.policy]]
    cause = "gpu.*"                 # a glob over the cause classes
    action = "warn"                 # fail, warn or ignore

    [[gate.known]]                  # an issue somebody already works on
    fingerprint = "1f0c9e7d52ab3c44"
    id = "INFRA-12"
    owner = "alice"
    reason = "driver 570 on the a100 pool, fixed by the upgrade"
    expires = "2026-12-31"          # the last day on which it is ignored

Of several globs that match, the longest decides, and of equally long ones the strictest; globs of the command line come before the file's.
A cause that no glob matches fails.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rca.errors import RcaError, did_you_mean
from rca.taxonomy import CAUSES

MIN_CONFIDENCE = 0.5  # the verdict's own threshold for `failed`, design.md section 5
ACTIONS = ("ignore", "warn", "fail")  # from the most lenient to the strictest
FINGERPRINT_DIGITS = 16  # hexadecimal; 64 bits make a clash among a fleet's issues negligible
FINGERPRINT_WORDS = 24  # what follows may be cut off elsewhere on another host, whose name is longer
VIOLATED = 1
_KEYS = {
    "gate": ("min_confidence", "policy", "known"),
    "gate.policy": ("cause", "action"),
    "gate.known": ("fingerprint", "id", "owner", "reason", "expires"),
}


@dataclass(frozen=True, slots=True)
class Known:
    """An issue that somebody already works on, ignored up to and including the day `expires`."""

    fingerprint: str
    owner: str
    reason: str
    expires: date
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do about which cause. `first` and `then` hold (glob, action); `first` comes from the command line and decides before `then`."""

    min_confidence: float = MIN_CONFIDENCE
    first: tuple[tuple[str, str], ...] = ()
    then: tuple[tuple[str, str], ...] = ()
    known: tuple[Known, ...] = ()

    def action(self, cause: str) -> str:
        """`fail`, `warn` or `ignore` for a cause class."""
        for globs in (self.first, self.then):
            matching = [(len(glob), ACTIONS.index(action)) for glob, action in globs if fnmatchcase(cause, glob)]
            if matching:
                return ACTIONS[max(matching)[1]]
        return "fail"

    def over(self, *, fail: Iterable[str] = (), warn: Iterable[str] = (), ignore: Iterable[str] = (), min_confidence: float | None = None) -> Policy:
        """This policy with the command line's options before it."""
        first = [(_checked_glob(glob, None), action) for action, globs in (("fail", fail), ("warn", warn), ("ignore", ignore)) for glob in globs]
        least = self.min_confidence if min_confidence is None else _checked_share(min_confidence, "option `--min-confidence`")
        return replace(self, first=tuple(first), min_confidence=least)


@dataclass(frozen=True, slots=True)
class Decision:
    """The exit code, the lines that say why, and what deserves a warning."""

    exit_code: int
    lines: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def decide(document: dict[str, Any], policy: Policy = Policy(), *, today: date | None = None) -> Decision:
    """Judge a report by a policy: 1 where it is violated, else 0."""
    verdict, hypotheses = document["verdict"], document["hypotheses"]
    if verdict == "healthy":
        return Decision(0, ("gate: met: nothing failed",))
    judged = [h for h in hypotheses if h["confidence"] >= policy.min_confidence]
    mark = fingerprint(document)
    if not judged:
        best = f", best guess {_said(hypotheses[0])}" if hypotheses else ""
        return Decision(0, ("gate: met: nothing is sure enough to fail",), (f"{verdict}{best}; nothing reaches {policy.min_confidence:g}",))
    worst = max(judged, key=lambda h: ACTIONS.index(policy.action(h["cause"])))
    action, said = policy.action(worst["cause"]), f"{_said(worst)}, fingerprint {mark}"
    known, warnings = _known(policy.known, mark, today or datetime.now(UTC).date())
    if known:
        return Decision(0, (f"gate: met: known issue {known.id or mark} of {known.owner} until {known.expires}: {known.reason} ({said})",))
    if action == "fail":
        return Decision(VIOLATED, (f"gate: violated: {said}",), warnings)
    if action == "warn":
        return Decision(0, ("gate: met: the policy only warns of this cause",), (*warnings, said))
    return Decision(0, (f"gate: met: the policy ignores {said}",), warnings)


def fingerprint(document: dict[str, Any]) -> str:
    """The same for the same failure on any machine at any time: cause, rule and the words of the symptom, 16 hexadecimal digits.

    Host names, times, ranks, addresses, paths and numbers never enter it.
    """
    first = document["hypotheses"][0] if document["hypotheses"] else {}
    words = _words((document.get("symptom") or {}).get("text") or "", _hosts(document))
    material = "\n".join((first.get("cause", document["verdict"]), first.get("rule", ""), words))
    return hashlib.sha256(material.encode()).hexdigest()[:FINGERPRINT_DIGITS]


def read_policy(path: Path) -> Policy:
    """Read `rca.toml`; a mistake in it is an `RcaError` that names the file and the nearest valid word."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise RcaError(f"cannot read the policy: {e.strerror}", str(path)) from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise RcaError(f"the policy is not valid TOML: {e}", str(path)) from e
    where = str(path)
    gate = _table(table.get("gate", {}), "gate", where)
    entries = [_entry(item, where) for item in _tables(gate, "policy", where)]
    issues = [_issue(item, where) for item in _tables(gate, "known", where)]
    least = _checked_share(gate.get("min_confidence", MIN_CONFIDENCE), where)
    return Policy(least, (), tuple(entries), tuple(issues))


# --- the parts ----------------------------------------------------------------------------------------------------------


def _said(hypothesis: dict[str, Any]) -> str:
    entity = hypothesis["entity"]
    places = [f"{key} {entity[key]}" for key in ("host", "gpu", "rank") if entity.get(key) is not None]
    return f"{hypothesis['cause']} ({hypothesis['confidence']:.2f})" + (f" at {', '.join(places)}" if places else "")


def _known(issues: Iterable[Known], mark: str, today: date) -> tuple[Known | None, tuple[str, ...]]:
    """The issue that still covers this fingerprint, or warnings about those that did."""
    same = [issue for issue in issues if issue.fingerprint == mark]
    valid = next((issue for issue in same if today <= issue.expires), None)
    gone = tuple(f"known issue {i.id or mark} of {i.owner} expired on {i.expires} and is not ignored any more" for i in same)
    return valid, gone


def _hosts(document: dict[str, Any]) -> set[str]:
    names = set((document.get("run") or {}).get("hosts") or ())
    names |= {h["entity"].get("host") for h in document["hypotheses"]} | {(document.get("symptom") or {}).get("host")}
    full = {str(name).lower() for name in names if name}
    return full | {name.split(".")[0] for name in full}


def _words(text: str, hosts: set[str]) -> str:
    """The words of a line: what holds a digit or a slash is an address, a number or a time, and goes."""
    for host in sorted(hosts, key=lambda name: (-len(name), name)):
        text = re.sub(rf"(?i)(?<![\w-]){re.escape(host)}(?:\.[\w.-]+)?(?![\w-])", " ", text)
    tokens = [t for t in re.split(r"[\s\[\](){}<>=,;|\"'`]+", text.lower()) if not re.search(r"[0-9/\\@]", t)]
    words = (re.sub(r"[^a-z_]+", " ", t).strip() for t in tokens)
    return " ".join([w for w in " ".join(words).split() if w not in _CALENDAR][:FINGERPRINT_WORDS])


_CALENDAR = frozenset((
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "mon", "tue", "wed", "thu", "fri", "sat", "sun", "january",
    "february", "march", "april", "june", "july", "august", "september", "october", "november", "december", "monday", "tuesday", "wednesday",
    "thursday", "friday", "saturday", "sunday", "am", "pm", "utc", "gmt", "cet", "cest", "est", "edt", "pst", "pdt",
))  # fmt: skip


def _table(value: Any, name: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RcaError(f"`{name}` must be a table", where)
    for key in value:
        if key not in _KEYS[name]:
            raise RcaError(f"unknown key `{key}` in `[{name}]`", where, did_you_mean(key, _KEYS[name]) or f"known keys: {', '.join(_KEYS[name])}")
    return value


def _tables(gate: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    items = gate.get(key, [])
    if not isinstance(items, list):
        raise RcaError(f"`gate.{key}` must be a list of tables", where, f"write `[[gate.{key}]]`, with two brackets")
    return [_table(item, f"gate.{key}", where) for item in items]


def _entry(item: dict[str, Any], where: str) -> tuple[str, str]:
    action = _text(item, "action", "gate.policy", where)
    if action not in ACTIONS:
        raise RcaError(f"unknown action `{action}` in `[[gate.policy]]`", where, did_you_mean(action, ACTIONS) or f"one of {', '.join(ACTIONS)}")
    return _checked_glob(_text(item, "cause", "gate.policy", where), where), action


def _issue(item: dict[str, Any], where: str) -> Known:
    mark = _text(item, "fingerprint", "gate.known", where)
    if not re.fullmatch(rf"[0-9a-f]{{{FINGERPRINT_DIGITS}}}", mark):
        raise RcaError(f"`{mark}` is no fingerprint", where, f"`rca gate` prints it: {FINGERPRINT_DIGITS} hexadecimal digits")
    expires = item.get("expires")
    try:
        day = expires if type(expires) is date else date.fromisoformat(str(expires))
    except ValueError:
        raise RcaError(f"`expires` must be a date YYYY-MM-DD, got `{expires}`", where, "a known issue needs the day on which it is looked at again") from None
    owner, reason = (_text(item, key, "gate.known", where) for key in ("owner", "reason"))
    return Known(mark, owner, reason, day, _text(item, "id", "gate.known", where) if "id" in item else None)


def _text(item: dict[str, Any], key: str, name: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RcaError(f"`{key}` is missing or not a text in `[[{name}]]`", where)
    return value


def _checked_glob(glob: str, where: str | None) -> str:
    """A glob that matches at least one cause class: anything else is a mistyped one."""
    if any(fnmatchcase(cause, glob) for cause in CAUSES):
        return glob
    families = {f"{cause.split('.')[0]}.*" for cause in CAUSES}
    raise RcaError(f"no cause class matches `{glob}`", where, did_you_mean(glob, {*CAUSES, *families}) or "`rca rules list` shows the causes")


def _checked_share(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise RcaError(f"the minimum confidence must be a number from 0 to 1, got `{value}`", where)
    return float(value)
