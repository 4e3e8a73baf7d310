"""Recording into a folder of the test's own. `http_clients.py` is no test: it runs as a script, in an environment with its libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rca import trace_inject as rt
from rca.trace_inject import context, guard, recorder

collect_ignore = ["http_clients.py"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recording is on, as rank 3 of the trainer, and nothing of ours went wrong."""
    for name in ("RANK", "RCA_TRACE_DIR", "TRACEPARENT", "BAGGAGE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    context.forget()
    guard.faults.clear()
    rt.install(str(tmp_path), role="train", rank=3)
    yield tmp_path
    rt.uninstall()
    recorder._asked = True
    assert guard.faults == []
