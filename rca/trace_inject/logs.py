"""Ordinary log lines that say whose they are: rank, stage, step, request id and span of the place that wrote them."""

from __future__ import annotations

import logging

from rca.trace_inject import context, guard, identity, recorder

FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s [%(rca)s] %(name)s: %(message)s"
TIMES = "%Y-%m-%d %H:%M:%S"


class Stamp(logging.Filter):
    """Puts `rank`, `role`, `stage`, `step`, `request_id`, `trace_id`, `span_id`, and all that is known of them as `rca`, onto each record.

    `logging.getLogger().handlers[0].addFilter(Stamp())`, with a format that uses them, see `FORMAT`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._about = identity.describe()  # where nothing is recorded

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        self._stamp(record)
        return True

    def _stamp(self, record: logging.LogRecord) -> None:
        about = journal.about if (journal := recorder.current()) is not None else self._about
        said = {"role": about.get("role"), "rank": about.get("rank"), "stage": None, "step": None, "request_id": None, "trace_id": None, "span_id": None}
        try:
            at = context.here()
            said |= {"stage": at.stage, "step": at.step, "request_id": at.request, "trace_id": at.trace, "span_id": context.span_id() or None}
        except Exception as error:
            guard.fault("log", error)
        for name, value in said.items():
            setattr(record, name, value)
        record.rca = " ".join(f"{name}={said[name]}" for name in ("role", "rank", "stage", "step", "request_id") if said[name] is not None)


def stamp_logs(logger: logging.Logger | None = None, fmt: str = FORMAT) -> logging.Handler | None:
    """Stamp the lines of a logger's handlers (the root's by default), or give it a handler on stderr that does."""
    try:
        logger = logger or logging.getLogger()
        if not logger.handlers:
            handler = logging.StreamHandler()
            logger.addHandler(handler)
        for handler in logger.handlers:
            if not any(isinstance(f, Stamp) for f in handler.filters):
                handler.addFilter(Stamp())
                handler.setFormatter(logging.Formatter(fmt, TIMES))
        return logger.handlers[0]
    except Exception as error:
        guard.fault("stamp_logs", error)
        return None
