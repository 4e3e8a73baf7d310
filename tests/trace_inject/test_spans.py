"""Spans, scopes and their way to other processes, as the journal tells them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from journals import records

from rca import trace_inject as rt
from rca.trace_inject import guard


def test_a_span_is_there_before_it_ends(folder: Path) -> None:
    """The start is on disk while the work goes on."""
    with rt.step(7), rt.stage("rollout"), rt.span("generate", tokens=12):
        (*_, last) = records(folder)
        assert (last["e"], last["n"], last["st"], last["s"], last["a"]) == ("start", "generate", "rollout", 7, {"tokens": 12})
    assert [r["e"] for r in records(folder)] == ["start"] * 3 + ["end"] * 3
    head = json.loads(next(iter(folder.glob("train-3-*.rca.jsonl"))).read_text().splitlines()[0])
    assert (head["schema"], head["role"], head["rank"]) == ("rca.trace/1", "train", 3)


def test_an_error_is_told_and_passes(folder: Path) -> None:
    """Type, message and innermost frames; the trainer sees its own exception."""
    with pytest.raises(KeyError), rt.span("load"):
        raise KeyError("layers.3")
    end = records(folder)[-1]["a"]
    assert (end["status"], end["exception.type"], end["exception.message"]) == ("error", "KeyError", "'layers.3'")
    assert "test_spans.py" in end["exception.stacktrace"]


def test_decorated_functions(folder: Path) -> None:
    """Plain functions, coroutines, generators of both kinds: one span each, and what they give back."""

    @rt.traced
    def plain(a: int) -> int:
        return a + 1

    @rt.traced("named", stage="save")
    async def task(a: int) -> int:
        await asyncio.sleep(0)
        return a + 2

    @rt.traced
    def numbers() -> Iterator[int]:
        yield from (1, 2, 3)

    @rt.traced
    async def later() -> Any:
        yield 4

    async def all_of_it() -> tuple[int, list[int]]:
        return await task(1), [x async for x in later()]

    assert (plain(1), asyncio.run(all_of_it()), list(numbers())) == (2, (3, [4]), [1, 2, 3])
    half = numbers()
    next(half)
    half.close()
    found = records(folder)
    assert sum(r["e"] == "start" for r in found) == sum(r["e"] == "end" for r in found) == 5
    assert next(r for r in found if r.get("n") == "named")["st"] == "save"
    assert not any("status" in r.get("a", {}) for r in found)


def test_tasks_do_not_mix(folder: Path) -> None:
    """Concurrent tasks and threads each have their own stack of spans."""

    async def work(name: str) -> None:
        with rt.request(name):
            await asyncio.sleep(0.01)
            with rt.span("inner"):
                await asyncio.sleep(0.01)

    async def both() -> None:
        await asyncio.gather(*(work(f"r{i}") for i in range(8)))

    asyncio.run(both())
    thread = threading.Thread(target=lambda: rt.span("alone").__enter__())
    with rt.span("outer"):
        thread.start()
        thread.join()
    found = records(folder)
    outer = {r["id"]: r for r in found if r.get("n") == "request"}
    assert all(outer[r["p"]]["rq"] == r["rq"] for r in found if r.get("n") == "inner")
    assert next(r for r in found if r.get("n") == "alone")["p"] == ""


def test_the_way_over_http(folder: Path) -> None:
    """A callee that extracts what the caller injected is in the caller's trace, request, stage and step."""
    with rt.step(4), rt.stage("rollout"), rt.request("r-1") as caller:
        headers = rt.inject({"x": "y"})
    for carrier in (headers, {k.title(): v for k, v in headers.items()}, {k.encode(): v.encode() for k, v in headers.items()} | {}):
        if any(isinstance(k, bytes) for k in carrier):
            carrier = {k.decode(): v for k, v in carrier.items()}
        with rt.extract(carrier), rt.span("handle"):
            last = records(folder)[-1]
            assert (last["p"], last["rq"], last["st"], last["s"]) == (caller.key, "r-1", "rollout", 4)


@pytest.mark.parametrize("value", ["", "00", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "x" * 9999, "00-" + "g" * 32 + "-" + "1" * 16 + "-01", "\ud800"])
def test_headers_of_strangers(folder: Path, value: str) -> None:
    """What is no trace context changes nothing and raises nothing."""
    with rt.extract({"traceparent": value, "baggage": f"rca.step={value},{value}"}), rt.span("handle"):
        assert records(folder)[-1]["p"] == ""


CHILD = "from rca import trace_inject as rt\nwith rt.span('child'): pass\n"


def test_child_processes_and_ranks(folder: Path) -> None:
    """A child with our environment goes on in our trace; ranks of one launch share one that nobody told them."""
    with rt.span("parent") as parent:
        subprocess.run([sys.executable, "-c", CHILD], env=rt.environment(), check=True, timeout=60)
    found = records(folder)
    child = next(r for r in found if r.get("n") == "child")
    assert child["p"] == parent.key and child["tr"] == next(r for r in found if r.get("n") == "parent")["tr"]
    for rank in "01":
        subprocess.run([sys.executable, "-c", CHILD], env={"PYTHONPATH": ":".join(sys.path), "RCA_TRACE_DIR": str(folder / "ranks"), "RANK": rank, "TORCHELASTIC_RUN_ID": "job-7"}, check=True, timeout=60)
    assert len({r["tr"] for r in records(folder / "ranks") if "tr" in r}) == 1
    assert len(list((folder / "ranks").glob("train-*"))) == 2


def test_long_records_are_cut(folder: Path) -> None:
    """No record is longer than one safe write, whatever it is given."""
    with rt.span("x" * 9000, text="y" * 90_000, many=list(range(9999)), odd=object(), surrogate="\ud800", nan=float("nan"), **{f"k{i}": "z" * 300 for i in range(99)}):
        pass
    (path,) = folder.glob("*.rca.jsonl")
    assert max(map(len, path.read_bytes().splitlines())) < 3500
    assert records(folder)[0]["a"]["rca.cut"] is True


def test_off(tmp_path: Path) -> None:
    """Without `install` and without the variable nothing is written, and everything works."""
    code = "from rca import trace_inject as rt\nassert rt.install() is None\nwith rt.step(1), rt.span('a'): rt.event('b'); rt.handoff('c', [1])\nprint(rt.inject({})['traceparent'])"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path), "RCA_TRACE_OFF": "1", "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("00-") and not done.stderr and not list(tmp_path.iterdir())


def test_three_faults_switch_it_off(folder: Path) -> None:
    """What is wrong with us is told once, in the journal, and then we are silent."""
    for _ in range(3):
        guard.fault("here", RuntimeError("ours"))
    with rt.span("after"):
        pass
    assert [r["n"] for r in records(folder)] == ["rca.stopped"]
    guard.faults.clear()


def test_what_a_span_says_is_said_of_itself(folder: Path) -> None:
    """An outer span that says more while an inner one is open; and its stage and step, not the inner one's."""
    with rt.step(4), rt.stage("rollout") as outer, rt.stage("save"), rt.span("write"):
        outer.set(rows=3)
    starts = {r["id"]: r for r in records(folder) if r["e"] == "start"}
    (said,) = (r for r in records(folder) if r["e"] == "event")
    assert (starts[said["p"]]["n"], said["n"], said["a"], said["st"], said["s"]) == ("rollout", "attributes", {"rows": 3}, "rollout", 4)
    assert guard.faults == []
