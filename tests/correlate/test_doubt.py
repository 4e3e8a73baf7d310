"""By what a plain reading of an error is made less sure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rca.correlate.doubt import look
from tests.builders import event


@pytest.mark.parametrize("text, unheard", [
    ("BlobError: PUT http://10.39.218.250:9500: deadline 600s", True),
    ("StoreError: timed out after 30 s: https://meta.svc:8443/v1/keys", True),
    ("ValueError: http://10.39.218.250:9500 is no valid address", False),
    ("ValueError: timeout must be positive", False),
])  # fmt: skip
def test_address_that_did_not_answer(text: str, unheard: bool) -> None:
    """An exception that waited for an address in vain is marked, by whatever name it goes."""
    (seen,) = look(SimpleNamespace(procs={}, events=[event(text=text)]))
    assert seen.attrs.get("unheard", False) is unheard
