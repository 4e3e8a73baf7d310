"""Calls to workers, against a real one in a process: what is repeated, what is not, how long it may take, and in which words it fails."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
httpx = pytest.importorskip("httpx")

from rca.replay_trainer import errors, rpc  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402
from rca.replay_trainer.errors import CallError, FrameworkError, InferenceEngineError, RefEngineError, SchedulerError, TrainEngineError  # noqa: E402
from rca.replay_trainer.rpc import Caller, Worker, wait_future_ordered  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import sys, threading, time
from pathlib import Path
import torch
from rca.replay_trainer.serve import Service, prepare, serve
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
counts, go = {}, threading.Event()
def count(values):
    counts[values["of"]] = counts.get(values["of"], 0) + 1
    return {"count": counts[values["of"]]}
def fails(values):
    count({"of": "fails"})
    raise ValueError("no such thing \\u2603 " + "x" * 500)
def hangs(values):
    go.wait(values.get("for_s", 60))
    return {"released": go.is_set()}
def parts(values):
    def some():
        for number in range(values["parts"]):
            if number == values.get("break_at"):
                raise ValueError("broken off")
            yield {"rows": torch.full((2,), float(number))}
    return some()
def event(values):
    go.set()
    return {"name": values["name"]}
async def busy(request):
    counts["busy"] = counts.get("busy", 0) + 1
    from rca.replay_trainer import wire
    return JSONResponse({"error": "not yet"}, 503) if counts["busy"] < 3 else Response(wire.pack({"count": counts["busy"]}))
async def always_busy(request):
    return JSONResponse({"error": "never"}, 503)
async def trickles(request):
    async def drops():
        import asyncio
        while True:
            yield b"x"
            await asyncio.sleep(0.05)
    return StreamingResponse(drops(), int(request.query_params.get("status", 200)))
async def trickles_500(request):
    response = await trickles(request)
    response.status_code = 500
    return response
async def garbage(request):
    return Response(b"\\x00garbage", 500 if request.url.path.endswith("500") else 200)
routes = [Route("/v1/" + f.__name__, f, methods=["POST"]) for f in (busy, always_busy, trickles, trickles_500, garbage)]
routes.append(Route("/v1/garbage_500", garbage, methods=["POST"]))
service = Service("rollout", int(sys.argv[2]), engine={"hangs": hangs, "fails": fails, "sums": lambda v: {"sum": v["a"] + v["b"]}, "parts": parts},
    beside={"event": event, "count": count}, routes=routes)
prepare("rollout", int(sys.argv[2]), sys.argv[1])
serve(service, Path(sys.argv[1]), "127.0.0.1")
"""


def begin(folder, rank=0):
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    log = (folder / f"{rank}.log").open("ab")
    return subprocess.Popen([sys.executable, "-c", WORKER, str(folder), str(rank)], env=env, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a worker that is up; it is shared by tests that leave it as it was."""
    found = tmp_path_factory.mktemp("worker")
    process = begin(found)
    try:
        rpc.find(found, "rollout", 1, 60)
        yield found
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def caller(folder, monkeypatch):
    monkeypatch.setattr(rpc, "PAUSE_S", 0.02)
    caller = Caller(Config(tries=3), {"rollout": rpc.find(folder, "rollout", 1, 1)})
    yield caller
    caller.close()


def one(caller, method, timeout_s=20.0, streamed=False, **values):
    (future,) = caller.call_all("rollout", method, values, timeout_s, streamed)
    return future.result()


@pytest.fixture
def deaf():
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


pytestmark = pytest.mark.real


def test_a_call_carries_tensors_both_ways(caller):
    assert torch.equal(one(caller, "sums", a=torch.arange(3), b=torch.ones(3, dtype=torch.long))["sum"], torch.tensor([1, 2, 3]))


def test_what_the_worker_raises_is_typed_told_and_not_repeated(caller, folder):
    with pytest.raises(FrameworkError, match=r"^fails of rollout: Status code: 500, no such thing ☃ x+ \(rollout/0\)$"):
        one(caller, "fails")
    assert one(caller, "count", of="fails")["count"] == 1 + 1
    log = (folder / "0.log").read_text()
    assert "fails failed" in log and "Traceback" in log


def test_a_worker_that_is_busy_is_asked_again(caller):
    assert one(caller, "busy")["count"] == 3
    with pytest.raises(FrameworkError, match="Status code: 503, never"):
        one(caller, "always_busy")


def test_a_refused_connection_is_tried_again_and_then_typed(deaf, monkeypatch):
    monkeypatch.setattr(rpc, "PAUSE_S", 0.05)
    caller = Caller(Config(tries=3), {"train": [Worker("train", 1, deaf)], "reference": [Worker("reference", 0, deaf)]})
    began = time.monotonic()
    with pytest.raises(TrainEngineError, match=r"^UploadWeightsError: .*refused.* \(train/1\)$"):
        caller.call(caller.workers["train"][0], "upload_weights", {}, 5)
    assert time.monotonic() - began >= 0.05 + 0.1
    with pytest.raises(RefEngineError, match=r"^ComputeLogpError: .*refused"):
        caller.call(caller.workers["reference"][0], "compute_logprobs", {}, 5, streamed=True)
    caller.close()


@pytest.mark.parametrize("method", ["hangs", "trickles", "trickles_500"])
def test_patience_is_for_the_whole_answer(caller, method):
    """Also one that trickles, and an error's."""
    began = time.monotonic()
    with pytest.raises(FrameworkError, match=r"Request timeout after 0\.5 s"):
        one(caller, method, 0.5, for_s=1.5)
    assert time.monotonic() - began < 1.4


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("nothing", "Status code: 404, no such method: nothing"),
        ("garbage", "not a complete payload of 8 bytes"),
        ("garbage_500", "Status code: 500, \x00garbage"),
        ("../health", "Status code: 40"),
    ],
)
def test_wrong_calls_and_answers_fail_in_words(caller, method, says):
    with pytest.raises(FrameworkError) as raised:
        one(caller, method)
    assert says in str(raised.value)


@pytest.mark.parametrize("body", [b"", b"garbage", b"\xff" * 100, b'{"a": 1}'])
def test_a_garbage_body_is_refused_and_the_worker_lives(caller, body):
    answer = httpx.post(f"{caller.workers['rollout'][0].url}/v1/sums", content=body, trust_env=False)
    assert answer.status_code == 400 and "not a complete payload" in answer.json()["error"]
    assert one(caller, "count", of=str(body))["count"] == 1


def test_the_engine_is_one_and_events_are_answered_beside_it(caller):
    """A call that hangs holds up the next one of the engine, and not the event that releases it."""
    worker = caller.workers["rollout"][0]
    (hanging,) = caller.call_all("rollout", "hangs", {"for_s": 20}, 30)
    time.sleep(0.2)
    (behind,) = caller.call_all("rollout", "sums", {"a": torch.ones(1), "b": torch.ones(1)}, 30)
    began = time.monotonic()
    assert caller.call(worker, "event", {"name": "rollout_start"}, 5)["name"] == "rollout_start"
    assert time.monotonic() - began < 3
    assert hanging.result()["released"] and behind.result()["sum"].tolist() == [2.0]


def test_an_answer_in_parts_is_merged(caller):
    assert one(caller, "parts", streamed=True, parts=3)["rows"].tolist() == [0, 0, 1, 1, 2, 2]


def test_an_answer_that_breaks_off_ends_the_call_or_counts_as_far_as_it_came(caller):
    with pytest.raises(FrameworkError, match="parts of rollout"):
        one(caller, "parts", streamed=True, parts=4, break_at=2)
    with pytest.raises(FrameworkError, match="ends within part 1"):
        one(caller, "parts", streamed=True, parts=0)
    careless = Caller(Config(whole_batches=False), caller.workers)
    assert one(careless, "parts", streamed=True, parts=4, break_at=2)["rows"].tolist() == [0, 0, 1, 1]
    with pytest.raises(FrameworkError):
        one(careless, "parts", streamed=True, parts=4, break_at=0)
    careless.close()


def test_stop_waits_for_the_engine_and_times_out_when_it_hangs(tmp_path):
    process = begin(tmp_path)
    try:
        caller = Caller(Config(), {"rollout": rpc.find(tmp_path, "rollout", 1, 60)})
        caller.call_all("rollout", "hangs", {"for_s": 30}, 40)
        time.sleep(0.3)
        began = time.monotonic()
        assert "Request timeout after 0.5 s" in str(caller.stop_all(0.5))
        assert time.monotonic() - began < 2 and process.poll() is None
        one(caller, "event", name="x")
        assert caller.stop_all(10) is None
        assert process.wait(10) == 0
        assert "refused" in str(caller.stop_all(1))
        caller.close()
    finally:
        process.kill()
        process.wait()


def test_who_never_comes_up_is_named(tmp_path):
    with pytest.raises(SchedulerError, match=r"^Failed to start job: rollout \[0, 1\] did not come up in 0\.1 s"):
        rpc.find(tmp_path, "rollout", 2, 0.1)
    (tmp_path / "addresses").mkdir()
    (tmp_path / "addresses" / "rollout-0.json").write_text('{"url": "htt')
    with pytest.raises(SchedulerError, match=r"rollout \[0\] did not come up"):
        rpc.find(tmp_path, "rollout", 1, 0.1)
    (tmp_path / "addresses" / "train.gone").write_text("exit code 1")
    with pytest.raises(SchedulerError, match="train/0 ended before it was up: exit code 1"):
        rpc.find(tmp_path, "train", 1, 30)


def test_the_first_error_is_raised_at_once_or_all_are_told():
    slow, failed = Future(), Future()
    failed.set_exception(InferenceEngineError("RolloutError: gone"))
    began = time.monotonic()
    with pytest.raises(InferenceEngineError):
        wait_future_ordered([slow, failed])
    assert time.monotonic() - began < 1
    threading.Timer(0.1, slow.set_result, [{"a": 1}]).start()
    assert wait_future_ordered([slow, failed], exit_on_exception=False) == [{"a": 1}, None]


def test_every_call_of_the_loop_has_a_type():
    assert str(errors.of_call("train", "save", "x")) == "SaveError: x"
    assert isinstance(errors.of_call("meta_server", "put", "x"), FrameworkError)
    assert not CallError("x").passing


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[]", json.dumps({"error": None}).encode()])
def test_an_error_in_any_form_is_told(body):
    with pytest.raises(CallError, match="Status code: 500"):
        rpc._raise_for(500, body)
