"""A guest never raises: every way into this package goes through here, and after three faults of ours it stays silent."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

FAULTS_MAX = 3
faults: list[str] = []
stops: list[Callable[[], None]] = []  # what else is switched off then
F = TypeVar("F", bound=Callable[..., Any])


def passes(error: BaseException) -> bool:
    """Whether it is not ours: a signal handler of the trainer raised it while one of our frames ran. Its second argument is that frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if any(value is trace.tb_frame for value in trace.tb_next.tb_frame.f_locals.values()):
            return True
        trace = trace.tb_next
    return False


def fault(where: str, error: BaseException) -> None:
    """Count a fault of ours; the third one switches recording off and leaves one line in the journal. What is the trainer's goes on."""
    if passes(error):
        raise error
    try:
        faults.append(f"{where}: {type(error).__name__}: {error}"[:300])
        if len(faults) == FAULTS_MAX:
            from rca.trace_inject import recorder

            recorder.stop("; ".join(faults))
            for stop in stops:
                stop()
    except Exception:  # while the interpreter shuts down, even this may be gone
        return


def quiet(default: Any = None) -> Callable[[F], F]:
    """The function, which gives `default` instead of raising."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                fault(function.__name__, error)
                return default() if callable(default) else default

        return wrapped  # type: ignore[return-value]

    return wrap
