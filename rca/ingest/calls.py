"""The stage that a failing call belongs to, by the name of what was called.

>>> [of(text) for text in SAMPLE.splitlines()]
['train', 'weights_update', 'rollout', 'weights_update', 'reference', 'cleanup', 'recover', None, None]
>>> [method(name) for name in ("actor_rollout_update_weights", "/ref/logprobs", "rollout", "put_binary", "_generate_and_score_completions", "_sync_policy_weights_to_vllm")]
['weights_update', 'reference', 'rollout', None, 'rollout', 'weights_update']
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from rca.ingest.courses import calls

SAMPLE = """\
(WorkerDict pid=1) ERROR: actor_rollout_update_actor raised torch.OutOfMemoryError
areal.api.errors.EngineError: TrainEngineError: UploadWeightsError: Status code: 500, CUDA error
Non-retryable error on attempt 1: {"error": "Engine method 'rollout' failed: CUDA out of memory"}
HTTP Request: POST http://10.10.185.88:18002/update_weights "HTTP/1.1 500 Internal Server Error"
ray.exceptions.RayTaskError: ray::RefWorker.ref_compute_ref_log_prob() (pid=3)
TimeoutError: failed to kill actor RefWorker 5: timed out after 60s
run aborted: resume failed: rank 3 cannot read /mnt/x/model.pt
CUDA out of memory. Tried to allocate 2 GiB
the training sample does not load"""

LOOKED_AT = 1500  # characters of a message
TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,79}", re.ASCII)
#: Where a plain word is the name of what was called: `method 'rollout'`, `Worker[3].generate failed`, `ray::X.load()`, a path after an address.
CALLED = re.compile(
    r"""(?:method|function|rpc|call(?:ing)?|endpoint)\s['"`/]?(\w{3,60})['"`]?|\w\]?\.(\w{3,60})(?:\(\)|\s(?:failed|raised|timed\ out|returned))|https?://[^\s/]{1,100}/([\w/]{2,60})"""
    r"""|"?(?:POST|GET|PUT)\s/([\w/]{2,60})|\bcall\s/([\w/]{2,60})|^\W{0,3}(\w{3,60})\sraised\s""",
    re.X,
)
ERROR = re.compile(r"\b([A-Z][A-Za-z]{2,40})(?:Error|Exception)\b")


@cache
def _tables() -> tuple[dict[str, str], dict[str, str], dict[str, str], tuple[str, ...], tuple[tuple[str, str], ...]]:
    data = calls()
    methods = {name: stage for stage, names in data["methods"].items() for name in names}
    plain = {name: stage for stage, names in data["plain"].items() for name in names}
    errors = {name: stage for stage, names in data["errors"].items() for name in names}
    phrases = tuple((phrase, stage) for stage, words in data["phrases"].items() for phrase in words)
    return methods, plain, errors, tuple(sorted(data["prefixes"], key=len, reverse=True)), phrases


@lru_cache(maxsize=4096)
def compound(name: str) -> str | None:
    """The stage of a name that is no ordinary word, or None."""
    methods, _, _, prefixes, _ = _tables()
    low = name.lower()
    for _ in range(3):
        if low in methods:
            return methods[low]
        if (short := next((p for p in prefixes if low.startswith(p) and len(low) > len(p) + 2), None)) is None:
            return _by_words(low)
        low = low[len(short) :]
    return methods.get(low) or _by_words(low)


@cache
def _words() -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    return tuple((entry["stage"], frozenset(entry["does"]), frozenset(entry["what"])) for entry in calls()["words"])


def _by_words(low: str) -> str | None:
    """The stage of a name that nobody listed, by the words it is made of: something is done, and to what."""
    words = set(low.split("_"))
    return next((stage for stage, does, what in _words() if words & does and words & what), None)


@lru_cache(maxsize=4096)
def method(name: str) -> str | None:
    """The stage of what is known to be the name of a method or endpoint, or None."""
    name = name.rsplit(".", 1)[-1].strip("/()").lower()
    parts = name.split("/")
    for tried in (name.replace("/", "_"), parts[-1]):
        if found := compound(tried) or _tables()[1].get(tried):
            return found
    return None


def of(text: str) -> str | None:
    """The stage that an error's text names: a typed error, a remote method or endpoint, a phrase; None where it names none."""
    text = text[:LOOKED_AT]
    _, _, errors, _, phrases = _tables()
    low = text.lower()
    if any(phrase in low for phrase, stage in phrases if stage == "cleanup"):
        return "cleanup"  # what could not be stopped is often named after its own stage
    for match in ERROR.finditer(text):
        if stage := errors.get(match[1]):
            return stage
    if "_" in text:
        for match in TOKEN.finditer(text):
            if "_" in match[0] and (stage := compound(match[0])):
                return stage
    for match in CALLED.finditer(text):
        if stage := method(match[match.lastindex or 1]):
            return stage
    return next((stage for phrase, stage in phrases if phrase in low), None)



def of_frames(frames: Sequence[tuple]) -> str | None:
    """The stage that a stack of `(file, line, function)` passes through, by the innermost frame that is named like a call of one."""
    for frame in reversed(frames):
        if stage := compound(str(frame[2])):
            return stage
    return None


def of_event(text: str, attrs: dict[str, Any], heading: tuple | None) -> str | None:
    """The stage that an event's text names, or for a traceback the line above it, the wrappers around it, or its stack."""
    if found := of(text):
        return found
    if not attrs.get("traceback"):
        return None
    said = [str(heading[0])] if heading else []
    return next((found for t in (*said, *(attrs.get("chain") or ())) if (found := of(t))), None) or of_frames(attrs.get("frames") or ())
