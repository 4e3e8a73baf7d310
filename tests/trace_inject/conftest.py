"""Recording into a folder of the test's own. `http_clients.py` is no test: it runs as a script, in an environment with its libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trained import Library

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


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    """The example that a module's `EXAMPLE` names, imported once."""
    with Library(request.module.EXAMPLE) as found:
        yield found


@pytest.fixture(scope="module")
def healthy(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as its README runs it: `trace` beside `out`."""
    base = tmp_path_factory.mktemp("healthy")
    done = library.main(base / "trace", str(base / "out"))
    assert done.returncode == 0, (base / "trace" / "stderr.log").read_text()
    return base
