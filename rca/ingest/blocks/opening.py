"""Blocks that one line opens by itself, whatever stands above it.

>>> [type(opened(t)).__name__ for t in ("Fatal Python error: Aborted", "Process 7: python train.py", "Timeout (x", "a")]
['Stacks', 'PySpy', 'NoneType', 'NoneType']
"""

from __future__ import annotations

from rca.ingest.blocks import engine_error, pyspy, stacks


def opened(text: str, known: bool = False) -> stacks.Stacks | pyspy.PySpy | engine_error.Typed | None:
    """The block that begins with this line, or None; `known`: a signature's literal stands in the line."""
    if text.startswith(("Timeout (", "Fatal Python error:")):
        return stacks.Stacks(text) if stacks.SCHEDULED.match(text) or stacks.FATAL.match(text) else None
    if text.startswith(("Process ", "Thread ")):
        return pyspy.PySpy(text) if pyspy.is_start(text) else None
    return engine_error.Typed(text) if known and text.startswith(engine_error.START) else None
