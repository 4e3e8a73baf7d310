"""The words by which programs tell their stages: one file per framework, `plain.toml` for anybody's, `calls.toml` for names of calls.

A mark is a phrase that announces a stage, ends it or sums it up. `[[mark]]` entries are phrases of one framework, `[timer]` its named timers,
`plain.toml` holds names of stages and verbs in the languages that people log in. Everything is found by a cheap search for `literal`s and
roots of words first; patterns run only on lines that hold one.

>>> course = load()
>>> "start to update weight" in course.literals, course.frameworks["(areal)"]
(True, 'areal')
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rca.discover import data_files
from rca.errors import RcaError, did_you_mean
from rca.ingest.settings import WORDS as SETTINGS
from rca.taxonomy import STAGES

HERE = Path(__file__).parent
PHASES = ("start", "end", "failed", "after")
SCANNED_MIN = 9  # characters; shorter phrases are in too many lines
ROOT, VERB, STRONG, FRAMEWORK, SETTING = 1, 2, 4, 8, 16
#: What shows a line of an announcement besides the verbs of `plain.toml`.
ANNOUNCES = ("took ", "cost", "elapsed", "耗时", "用时", " phase", " stage", "phase:", "stage:", "phase=", "stage=", "===", ">>>", "-->", "▶", "阶段", "正在")
ORDINARY = ("success", "begin", "fail", "enter", "start", "finish", "complet", "commenc", "initiat", "abort", "launch", "issue", "return")  # stems of the verbs
#: What stands before a verb so short that it is inside many other words.
SHORT_AFTER = (" ", ":", "=", "_", "-")


@dataclass(frozen=True)
class Mark:
    """One phrase: `stage` is empty where `pattern` names a call, or a timer of the framework."""

    literal: str
    stage: str
    phase: str
    pattern: str | None
    call: bool
    group: bool
    framework: str | None


@dataclass(frozen=True)
class Timer:
    """Named timers of one framework. `pattern` has the groups name and seconds, or name, phase and seconds."""

    literal: str
    pattern: str
    stages: dict[str, str]
    framework: str | None
    scan: str | None  # what the scanner looks for: once a line


@dataclass
class Course:
    """All that the files say."""

    marks: dict[str, list[Mark]] = field(default_factory=dict)  # by literal
    timers: dict[str, list[Timer]] = field(default_factory=dict)
    frameworks: dict[str, str] = field(default_factory=dict)  # by what shows them, in lower case
    stages: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    phases: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)  # of plain words, those worth a search of a whole file

    @property
    def literals(self) -> list[str]:
        """What begins no search of plain words: phrases and timers."""
        return sorted({*self.marks, *self.timers})

    def scanned(self) -> dict[str, bool]:
        """What is worth a search of a whole file, and whether the line may be a long one with the literal in its midst."""
        phrases = {word: False for word, marks in self.marks.items() if len(word) >= SCANNED_MIN and not any(m.call and m.phase == "end" for m in marks)}
        timers = {scan: True for found in self.timers.values() for t in found if (scan := t.scan)}
        return dict.fromkeys(self.words, False) | phrases | timers

    def gate(self) -> dict[str, int]:
        """Every string that the gate looks for, in lower case, with what it shows."""
        found: dict[str, int] = {}

        def note(word: str, shows: int) -> None:
            found[word] = found.get(word, 0) | shows

        for words in self.stages.values():
            for root in words["roots"]:
                note(root, ROOT)
            for phrase in words.get("doing", ()):
                note(next(w for w in phrase.split() if len(w) > 2 or not w.isascii()), VERB)
            for phrase in words.get("did", ()):
                note(next((w for w in phrase.split() if w.endswith(("ed", "wrote", "sent", "written")) or not w.isascii()), phrase.split()[0] + " "), VERB)
        for verb in (v for verbs in self.phases.values() for v in verbs):
            stem = next((stem for stem in ORDINARY if verb.startswith(stem)), verb)
            for before in SHORT_AFTER if len(stem) < 4 and stem.isascii() else ("",):
                note(before + stem, VERB)
        for word in ANNOUNCES:
            note(word, VERB)
        for word in self.literals:
            note(word, STRONG)
        for word in self.frameworks:
            note(word, FRAMEWORK)
        for word in SETTINGS:
            note(word, SETTING)
        return found


@cache
def load() -> Course:
    """Read all files. Raises RcaError for a stage or phase that does not exist."""
    course = Course()
    for name, path in data_files(HERE):
        if name == "calls":
            continue
        entry = tomllib.loads(path.read_text("utf-8"))
        framework = entry.get("framework")
        for word in entry.get("seen", ()):
            course.frameworks[word] = framework
        for other, words in entry.get("frameworks", {}).items():
            course.frameworks |= dict.fromkeys(words, other)
        for mark in entry.get("mark", ()):
            found = _mark(mark, framework, path)
            course.marks.setdefault(found.literal, []).append(found)
        if timer := entry.get("timer"):
            for stage in timer["stages"].values():
                _known(stage, path)
            course.timers.setdefault(timer["literal"], []).append(Timer(timer["literal"], timer["pattern"], timer["stages"], framework, timer.get("scan")))
        for stage, words in entry.get("stage", {}).items():
            course.stages[_known(stage, path)] = words
        course.phases |= entry.get("phase", {})
        course.words += entry.get("scan", {}).get("words", ())
    return course


@cache
def calls() -> dict[str, Any]:
    """`calls.toml` as it stands."""
    return tomllib.loads((HERE / "calls.toml").read_text("utf-8"))


def _mark(entry: dict[str, Any], framework: str | None, path: Path) -> Mark:
    literal, phase = entry["literal"], entry.get("phase", "")
    if literal != literal.lower():
        raise RcaError(f"not in lower case: `{literal}`", str(path))
    if phase not in PHASES and not entry.get("stage_group"):
        raise RcaError(f"unknown phase: `{phase}`", str(path), did_you_mean(phase, PHASES))
    stage = entry.get("stage", "")
    if stage:
        _known(stage, path)
    return Mark(literal, stage, phase, entry.get("pattern"), entry.get("call", False), entry.get("stage_group", False), framework)


def _known(stage: str, path: Path) -> str:
    if stage not in STAGES:
        raise RcaError(f"unknown stage: `{stage}`", str(path), did_you_mean(stage, STAGES))
    return stage
