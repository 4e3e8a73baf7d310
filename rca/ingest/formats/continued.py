"""Whether a message behind a header is in truth the next line of a message that began above.

Some loggers repeat their header on every line of a traceback (torch, vLLM, OpenRLHF); carriers such as journald do so by nature.

>>> [is_continued(text) for text in SAMPLE.splitlines()]
[True, True, True, True, True, False, False]

Source: formats/01-torchrun.md 1.4, formats/04-frameworks.md 4.5 and 4.8.
"""

from __future__ import annotations

import re

SAMPLE = """\
  File "core.py", line 461, in run
Traceback (most recent call last):
    return func(*args)
torch.distributed.DistBackendError: NCCL error in: x
During handling of the above exception, another exception occurred:
Invocation of collective_rpc method failed
 retrying"""

RAISED = re.compile(r"[A-Za-z_][\w.]{0,120}?(?:Error|Exception|Exit|Interrupt|Timeout)(?::|$)", re.ASCII)
STARTS = ("Traceback (most recent", "During handling of the above", "The above exception was", "  + Exception Group")


def is_body(text: str) -> bool:
    """Whether `text` is indented like the body of a traceback, or opens one."""
    return text[:2] == "  " or text[:1] == "\t" or text.startswith(STARTS)  # see header.MAY_CONTINUE


def is_continued(text: str) -> bool:
    """Like `is_body`, and the line that ends a traceback: for loggers that are known to repeat their header."""
    return text[:2] == "  " or text.startswith(STARTS) or RAISED.match(text) is not None
