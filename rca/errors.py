"""User errors: what happened, where, and what to do about it.

Anything a user can cause (a missing path, a mistyped option, a broken rule file) is an `RcaError`; it is
shown without a traceback. Asserts are for our own bugs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RcaError(Exception):
    """A problem the user can act on.

    `message` says what happened, in lower case and without a full stop; `where` is a `path` or `path:line`;
    `hint` says what to do.
    """

    exit_code = 2

    def __init__(self, message: str, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.where, self.hint = message, where, hint

    def __str__(self) -> str:
        text = f"error: {self.message}"
        if self.where:
            text += f" in {self.where}"
        if self.hint:
            text += f"\n\nhint: {self.hint}"
        return text


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The hint that offers the nearest valid name, or None when nothing is near."""
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return f"did you mean `{near[0]}`?" if near else None
