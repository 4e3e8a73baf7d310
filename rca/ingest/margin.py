r"""What stands before every line of a file: a label that a launcher, a collector or whoever copied the text put there.

Launchers and people label lines in ways that no list of formats completes, and a label such as `node: ` or `[3] ` on one line alone
may as well be its content. But what stands before nearly every line of a file, from a handful of values, and hides lines that are
recognised without it, is a label. So the first lines are looked at together, and each layer found is taken off every line.

>>> found = margin(SAMPLE.splitlines())
>>> rest, wrap = found.peel("beta: RuntimeError: x")
>>> rest, wrap.stream, wrap.host
('RuntimeError: x', 'beta', 'beta')
>>> found = margin([f"> {n:3} | {t}" for n, t in enumerate(BODY.splitlines(), 7)])
>>> [found.peel(t)[0] for t in (">  10 |   return f()", "> ", "no margin")]
['  return f()', '', 'no margin']
>>> [margin(t.splitlines()) for t in (BODY, "error: a\nerror: b\nerror: c\nerror: d", "1: a\n2: b")]
[None, None, None]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from rca.ingest.formats import Wrap
from rca.ingest.formats.words import LEVELS, is_process
from rca.ingest.line import parse

BODY = """\
Traceback (most recent call last):
  File "t.py", line 3, in f
    return g()
ValueError: x"""
SAMPLE = """\
alpha: Traceback (most recent call last):
beta: Traceback (most recent call last):
alpha:   File "t.py", line 3, in f
beta:   File "t.py", line 3, in f
alpha: ValueError: x
beta: ValueError: x"""

LINES = 120  # of a file that are looked at
PEEK = 10  # where half of so many are known as they stand, no label hides them
FEWEST, FEWEST_LABELS = 3, 4  # lines that are not blank: fewer are no pattern
SHARE = 0.9  # of the lines that must bear the label
LABELS_MAX = 64  # different values of one label, and no more than a third of the lines
DEPTH = 3
QUOTE = re.compile(r"(?:>[ ]?){1,4}")
INDENT = re.compile(r"[ \t]+")
NUMBERED = re.compile(r"[ \t]{0,8}(\d{1,7})(?:[ ]{0,3}(?:\||:|\u2502|\u2192)[ ]?|[.)][ ]|\t|[ ]{1,2})")
#: Labels whose value repeats: the group is the value. What is behind the one blank that ends it belongs to the line.
LABELS = (
    re.compile(r"()\d{1,7}\.\d{1,3}s[ \t]\d{1,7}[ \t]", re.ASCII),  # Kaggle: seconds and a running number
    re.compile(r"([A-Za-z\d][\w./@-]{0,80}?)[ ]{0,40}\|[ ]?", re.ASCII),  # compose, foreman: `trainer  | `
    re.compile(r"(\[[^\]\[]{1,80}\]|\([^()]{1,80}\)|<[^<>]{1,80}>):?[ ]?"),  # `[n3:r5] `
    re.compile(r"([A-Za-z\d][\w./@-]{0,80}):[ ]?", re.ASCII),  # pdsh: `node: `
    re.compile(r"([A-Za-z\d][\w./@:-]{0,120})[ \t]", re.ASCII),  # one word
    re.compile(r"([A-Za-z\d][\w./@:-]{0,120}[ \t][A-Za-z\d][\w./@:-]{0,60})[ \t]", re.ASCII),  # stern: pod and container
)
#: Words before a colon that a compiler, a tool or a message repeats: they belong to what they stand before.
NO_LABEL = re.compile(
    r"(?:\[?(?:info|debug|notice|warn(?:ing)?|error|err|fatal|critical|trace|note|hint|wandb|srun|slurmstepd|kernel|nccl|nvrm|make|pip|conda|git|step|epoch"
    r"|iter(?:ation)?|traceback|file|frame|at|in|raise|import|return)\b"
    # a time is no label: headers read it
    r"|\[?(?:\d{4}-\d\d-\d\d|\d\d:\d\d|\d{1,2}/\d{1,2}/)|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b)",
    re.I,
)
KNOWN = re.compile(r'Traceback \(most recent call last\)|  File "|[A-Za-z_][\w.]{0,80}(?:Error|Exception): |    \S', re.ASCII)
RANK = re.compile(r"(?:^|[^a-z])(?<!local_)(?<!local )(?<!node_)(?:(?:global[_ ]?)?rank[ _=:-]?|(?<![\w.]-)r[ _=:-]?)(\d{1,6})(?!\d)", re.I)  # `h100-r09` is a rack's
LOCAL_RANK = re.compile(r"local[_ ]?rank[ _=:-]?(\d{1,5})", re.I)
HOST = re.compile(r"[A-Za-z](?=[\w.-]{0,62}[\d-])[\w.-]{0,62}\Z|(?:\d{1,3}\.){3}\d{1,3}\Z", re.ASCII)
UNSURE = ("plain", "srun", "pdsh")  # these wrappers are believed on some lines and not on others
PARTS = re.compile(r"[:/|,@\s]+")
ROLE_LIKE = re.compile(r"(?:rank|local_?rank|r|gpu|task|proc|process|worker|default|stdout|stderr)?[ _=:-]?\d*\Z", re.I)


@dataclass(frozen=True)
class Margin:
    """The layers before every line, outermost first."""

    layers: tuple[Callable[[str], tuple[str, Wrap | None]], ...]

    def peel(self, text: str) -> tuple[str, Wrap | None]:
        """The line behind its labels and what they name; a line that lacks them as it is."""
        found: Wrap | None = None
        for layer in self.layers:
            text, wrap = layer(text)
            if wrap is not None:
                found = wrap if found is None else found._replace(
                    stream=f"{found.stream}/{wrap.stream}", **{k: v for k in ("rank", "local_rank", "host", "actor") if (v := getattr(wrap, k)) is not None})  # fmt: skip
        return text, found


def margin(lines: Iterable[str]) -> Margin | None:
    """What stands before nearly all of these lines, or None."""
    sample = []
    for text in lines:
        if text and not text.isspace():
            sample.append(text)
            if len(sample) >= LINES:
                break
    layers: list[Callable[[str], tuple[str, Wrap | None]]] = []
    while len(sample) >= FEWEST and len(layers) < DEPTH and (layer := _copied(sample) or _label(sample)):
        layers.append(layer)
        sample = [rest for text in sample if (rest := layer(text)[0]).strip()]
    return Margin(tuple(layers)) if layers else None


def _copied(sample: list[str]) -> Callable[[str], tuple[str, Wrap | None]] | None:
    """What a mail, an editor or a page put there: quote marks, line numbers, an indentation of all lines."""
    if _share(sample, QUOTE) >= SHARE:
        return lambda text: (text[match.end() :] if (match := QUOTE.match(text)) else text, None)
    indent = min((len(match[0]) if (match := INDENT.match(text)) else 0) for text in sample)
    if indent > 1:  # one blank before every line is a program's own habit
        return lambda text: (text[indent:] if text[:indent].isspace() else text if text.strip() else "", None)
    if sample[0].lstrip()[:1].isdecimal():
        numbers = [int(match[1]) for text in sample if (match := NUMBERED.match(text))]
        steps = [b - a for a, b in pairwise(numbers)]
        if len(numbers) >= SHARE * len(sample) and sum(1 <= step <= 3 for step in steps) >= SHARE * len(steps):
            return lambda text: (text[match.end() :] if (match := NUMBERED.match(text)) else text, None)
    return None


def _share(sample: list[str], pattern: re.Pattern[str]) -> float:
    return sum(pattern.match(text) is not None for text in sample) / len(sample)


def _known(text: str) -> bool:
    """Whether a line is recognised: a header, a wrapper that tells something, or a part of a traceback."""
    if KNOWN.match(text):
        return True
    line = parse(text)
    return line.shape not in UNSURE or line.rank is not None


def _label(sample: list[str]) -> Callable[[str], tuple[str, Wrap | None]] | None:
    """A label of few values, behind which at least a quarter of the lines is known, and more than twice what was known with it."""
    few = sample[:PEEK]
    if len(sample) < FEWEST_LABELS or 2 * sum(map(_known, few)) >= len(few):
        return None
    before = None
    for pattern in LABELS:
        matches = [match for text in sample if (match := pattern.match(text))]
        if len(matches) < SHARE * len(sample):
            continue
        values = {match[1] for match in matches}
        if len(values) > min(LABELS_MAX, max(1, len(sample) // 3)) or any(NO_LABEL.match(value) for value in values):
            continue
        before = sum(map(_known, sample)) if before is None else before
        after = sum(_known(match.string[match.end() :]) for match in matches)
        if after >= max(2, len(sample) / 4) and after > 2 * before:
            several = len(values) > 1
            return lambda text, pattern=pattern, several=several: (
                (text[match.end() :], wrap(match[1].strip("[](<>)"), several)) if (match := pattern.match(text)) else (text, None)
            )
    return None


@lru_cache(maxsize=1 << 10)
def wrap(value: str, several: bool) -> Wrap | None:
    """What the value of a label names: a rank, a host, a process; in any case a stream of its own.

    >>> wrap("n3:r5", True)[1:7]
    ('n3:r5', 5, None, 'n3', None, None)
    >>> wrap("alpha", True).host, wrap("trainer", True)[4:7], wrap("train", False)[4:7], wrap("17", True).stream
    ('alpha', (None, None, 'trainer'), (None, None, 'train'), '17')
    """
    if not value:
        return None
    local, rank = LOCAL_RANK.search(value), RANK.search(LOCAL_RANK.sub("", value))
    names = [part for part in PARTS.split(value) if not ROLE_LIKE.match(part)]
    host = next((part for part in names if HOST.match(part) and not is_process(part)), None)
    actor = next((part for part in names if part != host and is_process(part)), None)
    if host is None and actor is None and names and value == names[0] and value.lower() not in LEVELS:
        host, actor = (value, None) if several and value.isalpha() else (None, value)
    return Wrap("label", value, rank=int(rank[1]) if rank else None, local_rank=int(local[1]) if local else None, host=host, actor=actor)
