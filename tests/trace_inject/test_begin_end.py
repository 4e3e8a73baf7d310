"""`begin` and `end`: the records of a span for callbacks, which have no block of code to stand around."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from journals import records

from rca import trace_inject as rt


def test_records(folder: Path) -> None:
    """In the span around it; what is recorded until its end lies beside it."""
    with rt.stage("train") as outer:
        key = rt.begin("step", {"number": 3})
        with rt.span("inside"):
            pass
        rt.end(key)
    start, end = [r for r in records(folder) if r.get("id") == key]
    assert (start["e"], start["n"], start["p"], start["st"], start["a"]) == ("start", "step", outer.key, "train", {"number": 3})
    assert end["e"] == "end" and "a" not in end
    assert next(r for r in records(folder) if r.get("n") == "inside")["p"] == outer.key


def test_errors_and_strange_keys(folder: Path) -> None:
    """An error is told; a key twice, an unknown one or an empty one is nothing."""
    key = rt.begin("step")
    rt.end(key, ValueError("bad"))
    for other in (key, "", "nobody"):
        rt.end(other)
    ends = [r for r in records(folder) if r["e"] == "end"]
    assert [r["a"]["exception.type"] for r in ends] == ["ValueError"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_does_not_end_what_its_parent_began(folder: Path) -> None:
    """The key is the parent's."""
    key = rt.begin("step")
    pid = os.fork()
    if pid == 0:
        rt.end(key)
        os._exit(0)
    os.waitpid(pid, 0)
    assert [r["e"] for r in records(folder) if r.get("id") == key] == ["start"]


def test_off(folder: Path) -> None:
    """Nothing is recorded, and the key says so."""
    rt.uninstall()
    assert rt.begin("step") == ""
    rt.end("")
