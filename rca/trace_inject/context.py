"""Where the process is: trace, span, request, stage and step, per thread and task, and their way to other processes.

Across processes it travels as W3C `traceparent` and `baggage`: HTTP headers, keyword arguments of Ray tasks, environment variables of children.
Ranks that one launcher started share a trace without talking, see `identity.trace_of_run`.

Source: https://www.w3.org/TR/trace-context/, https://www.w3.org/TR/baggage/.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from rca.trace_inject import guard, identity

PARENT = re.compile(r"[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}(?:-.*)?$")
BAGGAGE_MAX = 8192
OWN = {"rca.request_id": "request", "rca.stage": "stage", "rca.step": "step"}
ENVIRONMENT = {"traceparent": "TRACEPARENT", "baggage": "BAGGAGE"}


class Scope(NamedTuple):
    """What all spans share that are made in one place; `tail` is how a record says it."""

    trace: str
    request: str | None
    stage: str | None
    step: int | None
    parent: str  # id of the span that another process holds open, or ""
    tail: str
    more: tuple[tuple[str, str], ...] = ()  # the baggage of others, passed on


def scope(trace: str, request: str | None = None, stage: str | None = None, step: int | None = None, parent: str = "", more: tuple[tuple[str, str], ...] = ()) -> Scope:
    """A scope with its part of a record."""
    tail = f',"tr":"{trace}"'
    if request is not None:
        tail += f',"rq":{json.dumps(request[:200])}'
    if stage is not None:
        tail += f',"st":{json.dumps(stage[:80])}'
    if step is not None:
        tail += f',"s":{step:d}'
    return Scope(trace, request, stage, step, parent, tail, more)


#: The innermost span of this thread or task (see `spans`), or the scope that came from another process.
current: ContextVar[Any] = ContextVar("rca", default=None)
_root: Scope | None = None


def root() -> Scope:
    """The scope of a process outside all spans: what its parent handed it, else the launcher's trace, else one of its own."""
    global _root
    if _root is None:
        found = _read(os.environ, upper=True)
        _root = found or scope(identity.trace_of_run(identity.describe()) or os.urandom(16).hex())
    return _root


def here() -> Scope:
    """The scope at this place."""
    found = current.get()
    return root() if found is None else found if type(found) is Scope else found.scope


def span_id() -> str:
    """The id of the innermost span, in 16 hex digits, or ""."""
    found = current.get()
    if found is None:
        return root().parent
    return found.parent if type(found) is Scope else found.key


@guard.quiet(dict)
def inject(carrier: MutableMapping[str, str] | None = None) -> MutableMapping[str, str]:
    """Put this place into headers; gives them. `requests.post(url, headers=inject({}))`."""
    carrier = {} if carrier is None else carrier
    at = here()
    carrier["traceparent"] = f"00-{at.trace}-{span_id() or os.urandom(8).hex()}-01"  # never from `random`: its state is the trainer's
    entries = [(k, v) for k, v in at.more if k not in OWN]
    entries += [(key, str(value)) for key, name in OWN.items() if (value := getattr(at, name)) is not None]
    if entries:
        carrier["baggage"] = ",".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in entries)[:BAGGAGE_MAX]
    return carrier


@guard.quiet(dict)
def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment for a child process: `subprocess.run(cmd, env=environment())`."""
    found = dict(os.environ if base is None else base)
    found.update({ENVIRONMENT[k]: v for k, v in inject({}).items()})
    return found


@guard.quiet()
def _read(carrier: Mapping[str, Any], upper: bool = False) -> Scope | None:
    low = {str(k).lower(): _text(v) for k, v in carrier.items() if str(k).lower() in ENVIRONMENT} if not upper else {k: carrier.get(name, "") for k, name in ENVIRONMENT.items()}
    match = PARENT.match(low.get("traceparent", "").strip())
    if match is None or set(match[1]) == {"0"}:
        return None
    said: dict[str, Any] = {}
    more = []
    for entry in low.get("baggage", "")[:BAGGAGE_MAX].split(","):
        key, equals, value = entry.split(";", 1)[0].partition("=")
        key, value = unquote(key.strip()), unquote(value.strip())
        if key in OWN:
            said[OWN[key]] = value
        elif equals:
            more.append((key, value))
    step = said.get("step", "")
    return scope(match[1], said.get("request"), said.get("stage"), int(step) if step.isdecimal() and len(step) < 16 else None, match[2], tuple(more))


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class extract:
    """Go on where a caller is: `with extract(request.headers): ...`. Takes any mapping; without a `traceparent` nothing changes."""

    __slots__ = ("_carrier", "_token")

    def __init__(self, carrier: Mapping[str, Any]) -> None:
        self._carrier, self._token = carrier, None

    def __enter__(self) -> extract:
        found = _read(self._carrier)
        if found is not None:
            self._token = current.set(found)
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if self._token is not None:
                current.reset(self._token)
        except ValueError:  # left in another context than entered: what holds there is not ours to change
            return


def forget() -> None:
    """Read the environment again (after a change of it)."""
    global _root
    _root = None
