"""Spans that begin in one callback and end in another: a stack that an error closes from within, so that each says what ended it."""

from __future__ import annotations

from typing import Any

from rca.trace_inject import guard, spans


class Open:
    """The spans that a trainer's callbacks hold open, outermost first, each under the name of what ends it."""

    def __init__(self) -> None:
        self._stack: list[tuple[str, spans.Span]] = []

    @guard.quiet()
    def begin(self, what: str, span: spans.Span) -> None:
        """Enter a span; one of the same kind that is still open ends first, with all inside."""
        self.end(what)
        span.__enter__()
        self._stack.append((what, span))

    @guard.quiet()
    def end(self, what: str | None = None, error: BaseException | None = None) -> None:
        """Leave the innermost span of that kind and all inside it, or with no kind every one; nothing where none is open."""
        if what is not None and all(name != what for name, _ in self._stack):
            return
        while self._stack:
            name, span = self._stack.pop()
            span.__exit__(type(error) if error is not None else None, error, None)
            if name == what:
                return

    def __contains__(self, what: str) -> bool:
        return any(name == what for name, _ in self._stack)

    def __bool__(self) -> bool:
        return bool(self._stack)


class Run:
    """The whole of a run as a context manager: an error that ends it ends what callbacks left open, from within."""

    def __init__(self, opened: Open, span: spans.Span) -> None:
        self._opened, self._span = opened, span

    def __enter__(self) -> Run:
        self._opened.end()
        self._span.__enter__()
        return self

    def __exit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        self._opened.end(None, error)
        self._span.__exit__(kind, error, trace)


def of_step(number: int, stage: str, **attributes: Any) -> spans.Span:
    """The span of one step, all inside belongs to that step and stage."""
    return spans._inner("step", attributes, step=number, stage=stage)
