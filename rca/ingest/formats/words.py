"""The words that headers share: levels, and names that denote a process rather than a logger.

>>> [level(w) for w in SAMPLE.split()]
['info', 'warning', 'warning', 'error', 'critical', 'critical', 'debug']
>>> [n for n in ("controller", "train-0", "RPCClient", "httpx", "engine_rollout-1", "ckpt") if is_process(n)]
['controller', 'train-0', 'engine_rollout-1']
"""

from __future__ import annotations

import re
from functools import lru_cache

SAMPLE = "INFO WARN warning E FATAL CRITICAL V"
LEVELS = {
    "trace": "debug", "debug": "debug", "debug2": "debug", "debug3": "debug", "verbose": "debug", "v": "debug", "d": "debug",
    "info": "info", "i": "info", "notice": "info", "success": "info",
    "warning": "warning", "warn": "warning", "w": "warning",
    "error": "error", "err": "error", "e": "error", "severe": "error",
    "critical": "critical", "crit": "critical", "c": "critical", "fatal": "critical", "f": "critical", "alert": "critical",
    "emerg": "critical", "panic": "critical",
    "trc": "debug", "dbg": "debug", "inf": "info", "wrn": "warning", "ftl": "critical", "pnc": "critical",
}  # fmt: skip
LEVELS |= {word.upper(): name for word, name in LEVELS.items()} | {word.title(): name for word, name in LEVELS.items()}
#: Source of a regex for a level as a word of its own; the upper-case form is what nearly every logger prints.
LEVEL = r"(?:DEBUG|INFO|NOTICE|SUCCESS|WARN(?:ING)?|ERROR|CRIT(?:ICAL)?|FATAL|SEVERE|TRACE)"
#: Levels of three letters, as zerolog and Serilog print them; `INF` and `ERR` are also words of messages, so only behind a time.
SHORT_LEVEL = r"(?:TRC|DBG|INF(?!\ (?:detected|found|in|at|or|and|loss|values?|grad\w*)\b)|WRN|ERR|FTL|PNC)"
PROCESS = re.compile(
    r"controller|driver|train|rollout|actor|critic|^ref(?:erence)?|reward|meta_?server|engine|worker|launcher|agent|scheduler"
    r"|router|manager|coordinator|master|loader|sampler|learner|orchestrator|runner|^server|[-_]\d+$",
    re.I,
)


def level(word: str | None) -> str | None:
    """The level that a word or letter means, or None."""
    return LEVELS.get(word) if word else None


@lru_cache(maxsize=1024)
def is_process(name: str) -> bool:
    """Whether a name in a header is that of a process of the job; `httpx` or `ckpt` are loggers inside one."""
    return PROCESS.search(name.rsplit(".", 1)[-1]) is not None
