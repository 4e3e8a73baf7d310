"""Recording around the methods of one object that a user made, without a change of its class: what is not there is left alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rca.trace_inject import guard


@guard.quiet(False)
def wrap(thing: Any, name: str, before: Callable[..., Any], after: Callable[..., None] | None = None) -> bool:
    """Run each call of `thing.name` inside what `before` gives for its arguments (a context manager, or None for nothing); gives whether it was wrapped now.

    `after` is called with the result and the same arguments, still inside. Faults of both are kept from the caller; arguments, result and errors
    of the method pass unchanged.
    """
    function = getattr(thing, name, None)
    if not callable(function) or getattr(function, "__rca__", False):
        return False
    setattr(thing, name, wrapped(function, before, after))
    return True


def wrapped(function: Any, before: Callable[..., Any], after: Callable[..., None] | None = None) -> Any:
    """The function with `before` and `after` around its calls, see `wrap`."""
    begin, finish = guard.quiet()(before), guard.quiet()(after) if after is not None else None

    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        scope = begin(*args, **kwargs)
        if scope is None:
            result = function(*args, **kwargs)
            if finish is not None:
                finish(result, *args, **kwargs)
            return result
        with scope:
            result = function(*args, **kwargs)
            if finish is not None:
                finish(result, *args, **kwargs)
            return result

    around.__rca__ = True  # type: ignore[attr-defined]
    return around
