"""By what a plain reading of an error is made less sure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rca.correlate.doubt import confirm, look
from rca.taxonomy import Kind
from tests.builders import NOON_NS, SECOND_NS, event


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


def test_report_that_repeats_the_error_is_no_missing_share() -> None:
    """A caller's reply that quotes the shape error has its numbers by nature; a reply with counts of its own tells of rows that did not come."""
    error = event(Kind.SHAPE_MISMATCH, "RuntimeError: The expanded size of the tensor (8192) must match the existing size (8448) at dimension 1", step=6, stage="reference", role="reference", event_id=1, time_ns=NOON_NS)
    procs = {1: SimpleNamespace(role="reference"), 2: SimpleNamespace(role="controller")}
    quoting = event(Kind.RPC_FAILED, "forward at 10.0.0.3:25000 failed: RuntimeError: The expanded size of the tensor (8192) must match the existing", role="controller", step=6, event_id=0, source="driver.log", time_ns=NOON_NS - SECOND_NS)
    counting = quoting.but(text="forward at 10.0.0.3:25000 failed: 8192 of 8448 rows came")
    marks = [look(SimpleNamespace(procs=procs, events=[said, error]))[1].attrs for said in (quoting, counting)]
    assert ["accounted" in m or "rows_lost" in m for m in marks] == [False, True]


def test_rows_and_a_wire() -> None:
    """Rows that are missing after a wire failed may be lost on it; one that was up again, or none, says nothing."""
    rows = event(Kind.SHAPE_MISMATCH, "expected [64, 512], got [32, 512]", step=6, event_id=1, attrs={"short_rows": True}, time_ns=NOON_NS)
    loss = event(Kind.PACKET_LOSS, "8 % lost", rank=None, step=None, event_id=0, source="ping.txt", time_ns=NOON_NS - SECOND_NS)
    over = loss.but(attrs={"recovered": True})
    assert ["rows_lost" in confirm(SimpleNamespace(events=[*wire, rows]))[-1].attrs for wire in ([loss], [over], [])] == [True, False, False]
