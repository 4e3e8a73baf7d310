"""The stage and step that a message states.

>>> for text in SAMPLE.splitlines():
...     print(find(text))
('train', 12)
('weights_update', 1)
(None, 1)
(None, 118)
(None, 27)
(None, None)
(None, None)

Source: formats/04-frameworks.md.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD

SAMPLE = """\
stage=train step=12 loss=0.31
step=1 stage=weights_update begin
Epoch 1/3 Step 1/512 Train step 1/1536 done.
generated 64 sequences for step 118 in 189.86s
loss is inf at step 27; aborting
Resuming from /ckpt/global_step_200
max_steps=500 epoch_step: 3"""

STAGE = re.compile(r"""stage["']?\ ?[=:]\ ?["']?([A-Za-z_][\w-]{0,40})""")
NUMBER = re.compile(r"\d{1,12}(?!\d|\.\d*[1-9])", re.ASCII)
AFTER = re.compile(r"""tep(?:["']?\ ?[=:]\ {0,8}|(\ {1,8}#?))(\d{1,12})(/|\ /)?(?!\d|\.\d*[1-9])""", re.ASCII)
#: Words that may be joined to `step` and leave it the current one; `max_step`, `epoch_step`, `recover_step` are others.
JOINED = ("global_", "train/", "training/", "training/global_", "train_", "training_", "cur_", "current_", "iter_", "trainer/global_")
TOTAL = ("global_", "training/global_", "trainer/global_")
#: Words before "step 12" that make it a statement about now: "at step 27". Others may speak of another time: "from step 20".
NOW = ("for", "at", "after", "global", "train", "training", "done")
ITERATION = re.compile(r"(?:^|[|\]]|\bat )\s{0,20}[Ii]teration[ =:#]{1,20}(\d{1,12})(?!\d|\.\d)", re.ASCII)
#: A line without any header that states a step first of all: print() of a training loop, a ruler with the step in it.
LEADS = re.compile(r"[\s=*#>\[(✨-]{0,60}(?:[Gg]lobal[ _]|[Tt]rain(?:ing)?[ /_])?(?:[Ss]tep|[Ii]teration)[\s=:#]{1,20}(\d{1,12})(?!\d|\.\d*[1-9])", re.ASCII)
JOINERS = ("_", "/", "-", ".")
JOINT = re.compile(r"[\w./-]*\Z")
MANY = 6  # occurrences of "step" that are looked at


def find(text: str) -> tuple[str | None, int | None]:
    """`(stage, step)` of the message of a line that has a header."""
    stage = step = None
    at = text.find("stage", 0, HEAD)
    if at >= 0 and (at == 0 or not (text[at - 1].isalnum() or text[at - 1] in JOINERS)) and (match := STAGE.match(text, at)):
        stage = match[1]
    at = text.find("step=", 0, HEAD)  # by far the most frequent form
    if at >= 0 and (at == 0 or text[at - 1] == " ") and (match := NUMBER.match(text, at + 5)):
        return stage, int(match[0])
    if "tep" in text:
        step = _step(text)
    if step is None and "teration" in text and (match := ITERATION.search(text, 0, HEAD)):
        step = int(match[1])
    return stage, step


def lead(text: str) -> int | None:
    """The step of a line without a header: only what stands at its very beginning counts, never a mention in prose or code.

    >>> lead(" iteration     7000/  159576 | consumed samples"), lead("step:118 - actor/loss:0.1"), lead("    opt.step(step=3)")
    (7000, 118, None)
    >>> lead("========= Step 3/100 ========="), lead("waiting for step 3"), lead("step by step")
    (3, None, None)
    """
    if "tep" in text or "teration" in text:
        if text.startswith("{'"):  # a trainer that prints its metrics as a dict
            return _step(text)
        match = LEADS.match(text, 0, HEAD)
        if match:
            return int(match[1])
    return None


METRICS = re.compile(r"loss|grad|\btok|it/s|s/it|samples/s", re.I)
WRITERS = frozenset(("R", "w", "r", "p", "g"))  # first letters of what `writer` takes
COUNTED = re.compile(r"(?:^|[\s|\[(])(?:global[_ ]?)?(?:step|iter(?:ation)?|it|batch|ba|update|seq)s?[\s=:#]{1,12}(\d{1,10})(?![\d.])", re.I | re.ASCII)
#: What a program counts that makes no finer count.
EPOCHS = re.compile(r"(?:^|[\s|\[(])(?:epoch|ep|round|episode)s?[\s=:#\[(]{1,12}(\d{1,7})(?![\d.])", re.I | re.ASCII)
WRITER = re.compile(r"(?:R(\d{1,5})|(?:worker|rank|proc|gpu)[ _]?(\d{1,5})/\d{1,5}|[Rr]ank[ _]?(\d{1,5})(?::| ?\|))\s", re.ASCII)


def has_metric(low: str) -> bool:
    """Whether a line, given in lower case, may be one that `counted` takes: to be asked first, because it costs little."""
    return "loss" in low or "grad" in low or "tok" in low or "it/s" in low or "s/it" in low or "samples/s" in low


def counted(text: str) -> int | None:
    """The step of a line of training metrics, whatever its program calls a step.

    >>> counted("it    3/25 | loss 1.36"), counted("R0 batch 40: loss=1.3"), counted("lr at step 3 of warm-up")
    (3, 40, None)
    >>> counted("ep 11 | it 2000/5004 | loss 0.77"), counted("epoch 20 | train loss 0.413 | val 61.00")
    (2000, 20)
    """
    if not METRICS.search(text, 0, HEAD):
        return None
    match = COUNTED.search(text, 0, HEAD) or EPOCHS.search(text, 0, HEAD)
    return int(match[1]) if match else None


def writer(text: str) -> int | None:
    """The rank that a message begins with, where its logger has no field for it.

    >>> writer("R0 saving"), writer("worker 1/8 (fit) it 3"), writer("rank 3: loss 1"), writer("worker 3 died")
    (0, 1, 3, None)
    """
    match = WRITER.match(text, 0, HEAD)
    return int(match[match.lastindex or 1]) if match else None


def _step(text: str) -> int | None:
    """The global step where one is named so, else the first step that is stated rather than mentioned."""
    best = None
    at = text.find("tep", 1, HEAD)
    for _ in range(MANY):
        if at < 0:
            break
        if text[at - 1] in "sS" and (match := AFTER.match(text, at)):
            gap, digits, slash = match.groups()
            before = text[max(0, at - 20) : at - 1]
            if before[-1:].isalnum() or before[-1:] in JOINERS:
                joined = JOINT.search(before)[0]
                if gap is None and joined in JOINED:
                    if joined in TOTAL:
                        return int(digits)
                    best = int(digits) if best is None else best
            else:
                words = before.split()
                word = words[-1].lower() if words else ""
                if word in ("global", "train", "training") and gap:
                    return int(digits)
                # "step=3" and "Step 3/70" state a step wherever they stand; "step 3" needs a word that says it is now.
                if best is None and (gap is None or slash or not word or word in NOW or before[-1:] in "[(|,;" or word[-1] in ",;:|.]"):
                    best = int(digits)
        at = text.find("tep", at + 1, HEAD)
    return best
