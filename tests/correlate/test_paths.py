"""Which file an event is about, where only its text says so."""

from __future__ import annotations

import pytest

from rca.correlate import paths
from rca.model import Event
from rca.taxonomy import Kind

TEXTS = {
    "one file": ("could not write /mnt/nfs/ckpt/run/latest/optim_01.safetensors: OSError: [Errno 28] No space left on device", "/mnt/nfs/ckpt/run/latest/optim_01.safetensors"),
    "a folder and a file in it": ("cannot load '/mnt/a/latest' at '/mnt/a/latest/model.bin'", "/mnt/a/latest"),
    "source files are no data": ('File "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", line 5', None),
    "what a server exports": ("10.71.3.4:/export/exp is full", None),
    "a URL": ("PUT https://bucket.host/a/b failed", None),
    "two files": ("copy /data/a/x.bin to /scratch/b/x.bin failed", None),
    "none": ("No space left on device", None),
}


@pytest.mark.parametrize("text, path", TEXTS.values(), ids=TEXTS)
def test_path_in_text(text: str, path: str | None) -> None:
    """Only what is one file or folder, and no program's own source."""
    assert paths.named(Event(Kind.NO_SPACE, text)).path == path
    assert paths.named(Event(Kind.EXCEPTION, text)).path is None
