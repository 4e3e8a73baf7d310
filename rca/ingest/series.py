"""The numbers of training lines - loss, gradient norm, seconds per step, throughput - kept as a thin series per stream.

No line states that a loss rose and stayed or that steps became slow; only the sequence does. Lines are remembered, not parsed: the
newest as they are, older ones ever more thinly, so that a stream of any length costs a bounded memory and next to no time.

>>> values("iteration 10/ 100 | elapsed time per iteration (ms): 18706.1 | lm loss: 6.444662E+00 | loss scale: 2048.0 | grad norm: 98258.265 |")
{'loss': 6.444662, 'gradient': 98258.265, 'seconds': 18.7061}
>>> values("{'loss': nan, 'grad_norm': 0.7, 'epoch': 0.1}"), values("validation loss: 3.1"), values("step 4: loss 2.5, 1,234 tok/s")
({'loss': nan, 'gradient': 0.7}, {}, {'loss': 2.5, 'rate': 1234.0})
>>> values("{'loss': '3.981', 'grad_norm': 'nan', 'learning_rate': '0.0095'}")
{'loss': 3.981, 'gradient': nan}
>>> values("Epoch 0: 10%|# | 10/100 [00:10<01:00,  4.00it/s, v_num=0, loss=2.310]"), values("R0 batch 4: Loss/train inf (2.1s/it)")
({'loss': 2.31, 'seconds': 0.25}, {'loss': inf, 'seconds': 2.1})

Source: Megatron-LM training_log, transformers Trainer.log, Lightning progress bar, DeepSpeed ThroughputTimer, torchtitan metrics, nanoGPT.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

LATE = 48  # newest lines, all kept
KEPT = 128  # older ones; beyond, every second is dropped
RUN_POINTS = 48_000  # of all streams together, half a kilobyte each: thousands of ranks tell no more of the loss than hundreds
LEAST = 12  # points of a stream, however many streams there are
CUT = 600  # characters of a line that are looked at: metrics stand first
NUMBER = r"(?>[-+]?(?:\d[\d,]{0,20}\.?\d{0,20}(?:e[-+]?\d{1,3})?|nan|inf(?:inity)?))"
#: What may stand between a name and its value, and the value. Anchored at the end of a name that was found by its letters: no search.
VALUE = re.compile(rf"(?:/train|/total)?['\"]?\s{{0,6}}[:=]?\s{{0,6}}['\"]?(?:tensor\()?({NUMBER})(?![a-z_%])")
TIME = re.compile(rf"(?: per (?:iteration|step|iter))?(?: ?\((ms|s)\))?['\"]?\s{{0,6}}[:=]?\s{{0,6}}({NUMBER}) ?(ms|s)?(?![a-z])")
BEFORE = re.compile(r"(\d[\d,]{0,20}\.?\d{0,9}) ?(?:tok|token|tokens|toks|samples)?$")
PER_SECOND = re.compile(r"(?:/s|per[ _]s)(?:ec(?:ond)?)?(?:/gpu|/device)?")
#: Joined to `loss`, these leave it the training loss; words that stand before it and make it another one.
JOINED = ("train_", "train/", "training_", "training/", "lm_", "total_", "avg_", "mean_", "global_", "loss/", "train/lm_")
OTHER = ("val", "valid", "validation", "eval", "evaluation", "test", "best", "aux", "auxiliary", "min", "max", "dev", "reward", "kl", "value", "policy", "critic")
WORD = re.compile(r"[\w/.-]*$")
TIMED = ("elapsed ", "step_", "step ", "iter_", "iter ", "iteration_", "iteration ", "batch_", "batch ")
MANY = 6  # occurrences of a name that are looked at


def values(text: str) -> dict[str, float]:
    """The known numbers of one training line; those of validation and of other losses are left out."""
    low = text[:CUT].lower()
    found: dict[str, float] = {}
    for at in _places(low, "loss"):
        if _training(low[max(0, at - 16) : at]) and (match := VALUE.match(low, at + 4)):
            found["loss"] = _number(match[1])
            break
    for at in _places(low, "norm"):
        if low[max(0, at - 9) : at].endswith(("grad_", "grad ", "gradient_", "gradient ", "grads_", "grad-", " g", "|g", ",g")) and (match := VALUE.match(low, at + 4)):
            found["gradient"] = _number(match[1])
            break
    if (seconds := _seconds(low)) is not None:
        found["seconds"] = seconds
    for at in _places(low, "/s") or _places(low, "per") or _places(low, "per_s"):
        if (rate := _rate(low, at)) is not None:
            found["rate"] = rate
            break
    return found


def _places(low: str, word: str) -> list[int]:
    places, at = [], low.find(word)
    while at >= 0 and len(places) < MANY:
        places.append(at)
        at = low.find(word, at + 1)
    return places


def _training(before: str) -> bool:
    """Whether `loss` after these characters is the training loss."""
    joined = WORD.search(before)[0]  # type: ignore[index]
    if joined:
        return joined in JOINED
    return before.rstrip(" '\"|,:").rpartition(" ")[2].strip("'\"|,:[({") not in OTHER


def _seconds(low: str) -> float | None:
    for at in _places(low, "time"):
        if low[max(0, at - 10) : at].endswith(TIMED) and (match := TIME.match(low, at + 4)):
            return _number(match[2]) / (1000 if (match[1] or match[3]) == "ms" else 1)
    for word in ("it/s", "s/it"):
        at = low.find(word)
        if at > 0 and (match := BEFORE.search(low[max(0, at - 14) : at])) and (pace := _number(match[1])):
            return pace if word == "s/it" else 1 / pace
    return None


def _rate(low: str, at: int) -> float | None:
    """A throughput around `/s` or `per second`: `1,234 tok/s`, `tokens/s=1234`, `samples per second: 19.2`."""
    unit = PER_SECOND.match(low, at)
    before = low[max(0, at - 30) : at].rstrip(" _")
    if unit is None or not before.endswith(("tok", "toks", "token", "tokens", "samples")):
        return None
    if (match := BEFORE.search(before)) and match[1]:
        return _number(match[1])
    match = VALUE.match(low, unit.end())
    return _number(match[1]) if match else None


def _number(digits: str) -> float:
    return float(digits.replace(",", ""))


def share(files: int) -> int:
    """Points that a stream may keep where a run has so many files."""
    return max(LEAST, min(LATE + KEPT, RUN_POINTS // max(1, files)))


class Series:
    """The training lines of one stream. A point is `(step, time_ns, rank, number, offset, text)`."""

    __slots__ = ("_kept", "_late", "_most_kept", "_most_late", "_seen", "_stride")

    def __init__(self, most: int = LATE + KEPT) -> None:
        self._most_late = min(LATE, most * 2 // 3)
        self._most_kept = most - self._most_late
        self._late: deque[tuple] = deque()
        self._kept: list[tuple] = []
        self._seen, self._stride = 0, 1

    def add(self, point: tuple) -> None:
        """Take the next line."""
        self._late.append(point)
        if len(self._late) > self._most_late:
            old = self._late.popleft()
            if self._seen % self._stride == 0:
                self._kept.append(old)
                if len(self._kept) >= self._most_kept:
                    del self._kept[1::2]
                    self._stride *= 2
            self._seen += 1

    def finish(self) -> list[tuple[Any, ...]]:
        """The points with their numbers in place of the text: `(step, time_ns, rank, number, offset, raw, values)`."""
        return [(*p[:5], p[5], found) for p in (*self._kept, *self._late) if (found := values(p[5]))]
