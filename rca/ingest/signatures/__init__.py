'''Signatures: phrases as data, one file per speaker.

A signature says which bytes the scanner looks for (`literal`, any one of them, ASCII caseless; other letters as written), which regular
expression a peeled line must then match (`regex`, case as written), and what kind of event the line states. Named groups become attributes of the event;
`path, pid, rank, local_rank, host, gpu, bus_id, nic, step, stage, signal, exitcode` are columns of it. `true` is a line it must
take, `miss` a look-alike it must leave; both run as tests. A file looks like this:

>>> entry = """
... [[signature]]
... id = "gloo/peer_closed"
... literal = ["Connection closed by peer"]
... regex = 'Connection closed by peer \\\\[(?P<peer>[^\\\\]]+)\\\\]'
... kind = "peer.lost"
... severity = "error"
... true = "RuntimeError: [pair.cc:553] Connection closed by peer [10.42.8.11]:19174."
... miss = "ssh: Connection closed by peer"
... """
>>> signature = _parse(entry, Path("gloo.toml"))[0]
>>> found = best("[pair.cc:553] Connection closed by peer [10.42.8.11]:19174", [signature])
>>> found and (found[0].kind, found[1].groupdict())
('peer.lost', {'peer': '10.42.8.11'})
'''

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rca.discover import data_files
from rca.errors import RcaError, did_you_mean
from rca.taxonomy import SEVERITIES, Kind

HERE = Path(__file__).parent
LITERAL_MIN = 5  # bytes; shorter ones hit by chance in gigabytes of numbers and hashes
KINDS = frozenset(kind.value for kind in Kind)
REQUIRED = {"id": str, "literal": list, "regex": str, "kind": str, "severity": str, "true": str, "miss": str}
OPTIONAL = {"rank_of": str, "priority": int, "exception": bool, "frames": str, "less": list}
RANK_OF = (None, "peer")


@dataclass(frozen=True)
class Signature:
    """One phrase and what it means.

    `rank_of` is "peer" where the `rank` group names another process than the one the event is about; otherwise None. Of several
    signatures that take one line the one with the highest `priority` speaks for it, see `best`. `exception` marks phrases that
    normally end a Python traceback. `frames` is a regular expression that the `file function` of one frame of the traceback must match:
    such a signature never speaks for a line alone. `less` names pairs of groups, "k<n": where both numbers stand in the line, the first
    must be the smaller one.
    """

    id: str
    literals: tuple[str, ...]
    regex: str
    kind: str
    severity: str
    rank_of: str | None
    priority: int
    exception: bool
    true: str
    miss: str
    path: Path
    frames: str | None = None
    less: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled `regex`, compiled when it is first needed: most runs need a tenth of them."""
        return re.compile(self.regex)

    @cached_property
    def stands_in(self) -> re.Pattern[str] | None:
        """The compiled `frames`."""
        return re.compile(self.frames) if self.frames else None


def load(extra: Path | None = None) -> tuple[Signature, ...]:
    """All signatures in the order of their ids; those of the folder `extra` come on top and are checked more closely. They are read once.

    Raises `RcaError` with the file and the line of the entry when one is malformed, of an unknown kind, or has a taken id.
    """
    return _load(extra)


@cache  # a function of its own, because `load()` and `load(None)` would be two entries
def _load(extra: Path | None) -> tuple[Signature, ...]:
    found: dict[str, Signature] = {}
    for folder in (HERE, extra):
        for _, path in data_files(folder) if folder else ():
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise RcaError(f"cannot read signatures: {error}", str(path)) from error
            for position, signature in enumerate(_parse(text, path)):
                if signature.id in found:
                    where = _where(text, path, position)
                    raise RcaError(f"signature id is taken: `{signature.id}`", where, f"it is already in {found[signature.id].path.name}")
                if folder is extra:
                    _check_closely(signature, _where(text, path, position))
                found[signature.id] = signature
    return tuple(found[name] for name in sorted(found))


@cache
def framed() -> tuple[Signature, ...]:
    """Those that ask for a frame: every traceback is held against them, and the scanner need not look for their literals."""
    return tuple(s for s in load() if s.frames)


def best(text: str, candidates: Iterable[Signature], frames: Sequence[str] = ()) -> tuple[Signature, re.Match[str]] | None:
    """The signature that speaks for a line, and its match: highest priority, then longest match, then first id.

    `frames` are the `file function` of the traceback that the line ends. Returns None when no candidate takes the line.
    """
    chosen: tuple[Signature, re.Match[str]] | None = None
    for signature in candidates:
        if signature.frames and not any(signature.stands_in.search(frame) for frame in frames):
            continue
        match = signature.pattern.search(text)
        if match and signature.less and not _less(match, signature.less):
            continue
        if match and (chosen is None or _outranks(signature, match, *chosen)):
            chosen = (signature, match)
    return chosen


def _less(match: re.Match[str], pairs: tuple[str, ...]) -> bool:
    """Whether of each pair `k<n` whose groups both took part the first number is the smaller."""
    for pair in pairs:
        few, many = (match[name] for name in pair.split("<"))
        if few is not None and many is not None and int(few) >= int(many):
            return False
    return True


def _outranks(one: Signature, match: re.Match[str], other: Signature, its: re.Match[str]) -> bool:
    ours, theirs = (one.priority, match.end() - match.start()), (other.priority, its.end() - its.start())
    return ours > theirs or (ours == theirs and one.id < other.id)


def _parse(text: str, path: Path) -> list[Signature]:
    """The signatures of one file, in its order."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RcaError(f"not valid TOML: {error}", str(path)) from error
    entries = document.pop("signature", None)
    if document or not isinstance(entries, list):
        hint = "a signature file is a list of `[[signature]]` tables and nothing else"
        raise RcaError(f"unexpected `{next(iter(document))}`" if document else "no `[[signature]]`", str(path), hint)
    return [_signature(entry, text, path, position) for position, entry in enumerate(entries)]


def _signature(entry: dict[str, Any], text: str, path: Path, position: int) -> Signature:
    """Check one entry and make it a `Signature`."""
    if not (REQUIRED.keys() <= entry.keys() <= REQUIRED.keys() | OPTIONAL.keys()) or not all(
        type(value) is (REQUIRED.get(name) or OPTIONAL[name]) for name, value in entry.items()
    ):
        _complain_of_fields(entry, _where(text, path, position))
    problem = hint = None
    if entry["kind"] not in KINDS:
        problem, hint = f"unknown event kind: `{entry['kind']}`", did_you_mean(entry["kind"], KINDS)
    elif entry["severity"] not in SEVERITIES:
        problem, hint = f"unknown severity: `{entry['severity']}`", did_you_mean(entry["severity"], SEVERITIES)
    elif entry.get("rank_of") not in RANK_OF:
        problem, hint = f"unknown rank_of: `{entry['rank_of']}`", "leave it out, or use `peer`"
    elif not entry["id"].startswith(f"{path.stem}/"):
        problem, hint = f"signature id does not match its file: `{entry['id']}`", f"begin it with `{path.stem}/`"
    elif not entry["literal"] or not all(isinstance(word, str) and len(word.encode()) >= LITERAL_MIN for word in entry["literal"]):
        problem, hint = f"bad literal: `{entry['literal']}`", f"give one or more strings of at least {LITERAL_MIN} bytes"
    elif not all(isinstance(pair, str) and pair.count("<") == 1 and all(f"(?P<{name}>" in entry["regex"] for name in pair.split("<")) for pair in entry.get("less", ())):
        problem, hint = f"bad less: `{entry['less']}`", "each is `few<many`, two named groups of the regex"
    if problem:
        raise RcaError(problem, _where(text, path, position), hint)
    return Signature(
        entry["id"], tuple(entry["literal"]), entry["regex"], entry["kind"], entry["severity"], entry.get("rank_of"),
        entry.get("priority", 0), entry.get("exception", False), entry["true"], entry["miss"], path, entry.get("frames"), tuple(entry.get("less", ())),
    )  # fmt: skip


def _complain_of_fields(entry: dict[str, Any], where: str) -> None:
    """Raise the error that names the missing, unknown or mistyped field."""
    known = REQUIRED | OPTIONAL
    for name, value in entry.items():
        if name not in known:
            raise RcaError(f"unknown field: `{name}`", where, did_you_mean(name, known) or f"known fields: {', '.join(known)}")
        if type(value) is not known[name]:
            raise RcaError(f"field `{name}` has the wrong type: `{value!r}`", where, f"expected {known[name].__name__}")
    missing = ", ".join(f"`{name}`" for name in REQUIRED if name not in entry)
    raise RcaError(f"missing field: {missing}", where, "every signature has " + ", ".join(f"`{name}`" for name in REQUIRED))


def _check_closely(signature: Signature, where: str) -> None:
    """Run what the tests run for our own files: the regex compiles, takes `true` and leaves `miss`."""
    try:
        pattern = signature.pattern
        _ = signature.stands_in
    except re.error as error:
        raise RcaError(f"bad regular expression: {error}", where, f"`{signature.regex}`") from error
    if not pattern.search(signature.true):
        raise RcaError(f"signature `{signature.id}` does not take its `true` line: `{signature.true}`", where)
    if pattern.search(signature.miss):
        raise RcaError(f"signature `{signature.id}` takes its `miss` line: `{signature.miss}`", where)
    if not any(word.lower() in signature.true.lower() for word in signature.literals):
        raise RcaError(f"signature `{signature.id}`: no literal occurs in its `true` line", where)


def _where(text: str, path: Path, position: int) -> str:
    """`path:line` of the entry at `position`."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith("[[signature]]")]
    return f"{path}:{lines[position]}" if position < len(lines) else str(path)
