"""Clients and servers over HTTP with the real libraries: what each kind of call, and of failure, leaves behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import venvs

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """All spans by stage in the order of their starts: name, kind, attributes of start and end, id, parent."""
    folder = tmp_path_factory.mktemp("trace")
    python = venvs.python_with("fastapi", "uvicorn", "requests", "httpx")
    done = subprocess.run([python, Path(__file__).with_name("http_clients.py")], env=venvs.environment(RCA_TRACE_DIR=str(folder)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr.strip().endswith("[]"), done.stderr
    spans: dict[str, dict[str, Any]] = {}
    for line in next(iter(folder.glob("controller-*.rca.jsonl"))).read_text().splitlines():
        record = json.loads(line)
        if record.get("e") == "start":
            spans[record["id"]] = {"name": record["n"], "stage": record.get("st"), "id": record["id"], "parent": record["p"], "ended": False, **(record.get("a") or {})}
        elif record.get("e") == "end":
            spans[record["id"]] |= {"ended": True, **(record.get("a") or {})}
    found: dict[str, list[dict[str, Any]]] = {}
    for span in spans.values():
        found.setdefault(span["stage"], []).append(span)
    return found


def of(calls: dict[str, list[dict[str, Any]]], stage: str, kind: int) -> list[dict[str, Any]]:
    return [span for span in calls[stage] if span.get("kind") == kind]


def test_a_call_and_its_other_half(calls) -> None:
    """Names of the field; the query, which may hold a secret, is nowhere; one span although it was asked for twice."""
    (client,), (server,) = of(calls, "plain", 3), of(calls, "plain", 2)
    assert (client["http.request.method"], client["url.path"], client["server.address"], client["http.response.status_code"], client["rca.peer"]) == ("GET", "/item/5", "127.0.0.1", 200, "rollout/3")
    assert (server["parent"], server["http.route"], server["http.response.status_code"], server["rca.port"]) == (client["id"], "/item/{number}", 200, client["server.port"])
    assert next(s for s in calls["plain"] if s["name"] == "look up")["parent"] == server["id"]  # in a worker thread of the server
    assert "secret" not in str(calls)


def test_what_is_sent_again(calls) -> None:
    """Every hop of a redirect is a call; each repetition of a failed one is numbered, and the number ends with success."""
    assert [c["url.path"] for c in of(calls, "redirect", 3)] == ["/moved", "/item/7"]
    retries = of(calls, "retries", 3)
    assert [(c["http.response.status_code"], c.get("http.request.resend_count"), c.get("status")) for c in retries] == [(503, None, "error"), (503, 1, "error"), (200, 2, None)]


def test_failures(calls) -> None:
    """What the server raised, a refused connection, a time-out; a request that is none is the library's to refuse."""
    (client,), (server,) = of(calls, "raises", 3), of(calls, "raises", 2)
    assert (client["http.response.status_code"], client["status"]) == (500, "error")
    assert (server["exception.type"], server["exception.message"]) == ("KeyError", "'labels'") and "in raises" in server["exception.stacktrace"]
    (refused,) = of(calls, "refused", 3)
    assert refused["exception.type"] == "requests.exceptions.ConnectionError" and refused["server.port"] == 9
    (late,) = of(calls, "timeout", 3)
    assert late["exception.type"] == "httpx.ReadTimeout"
    assert of(calls, "no url", 3) == []


@pytest.mark.parametrize("stage", ["stream requests", "stream httpx"])
def test_a_stream_lasts_to_its_last_piece(calls, stage: str) -> None:
    """The call ends with the headers; reading the body is a span of its own."""
    call, body = of(calls, stage, 3)
    assert (call["http.response.status_code"], body["name"], body["ended"], body.get("status")) == (200, "GET /stream body", True, None)


def test_a_stream_that_breaks(calls) -> None:
    """Seen on both sides: what broke in the server, and an answer that was not whole at the client."""
    body, server = of(calls, "stream breaks", 3)[1], of(calls, "stream breaks", 2)[0]
    assert body["exception.type"] == "requests.exceptions.ChunkedEncodingError"
    assert "OSError" in server.get("exception.type", "") or "OSError" in server.get("exception.stacktrace", "") or server["status"] == "error"


def test_a_client_that_leaves(calls) -> None:
    """The server says so; the client's own span has not failed."""
    (server,) = of(calls, "leaves early", 2)
    assert server["ended"] and (server.get("error.type") == "client_disconnected" or server.get("rca.cancelled")), server
    assert all(c.get("status") is None for c in of(calls, "leaves early", 3))


def test_tasks(calls) -> None:
    """Calls of tasks that run at once do not mix; one that was given up is no failure of its own."""
    assert sorted(c["url.path"] for c in of(calls, "tasks", 3) if c["url.path"].startswith("/item")) == [f"/item/{n}" for n in range(4)]
    ids = {c["id"]: c["url.path"] for c in of(calls, "tasks", 3)}
    assert all(ids[s["parent"]] == s["url.path"] for s in of(calls, "tasks", 2))
    (given_up,) = [c for c in of(calls, "tasks", 3) if c["url.path"] == "/slow"]
    assert (given_up["rca.cancelled"], given_up["status"]) == (True, "unset")


def test_nothing_is_left_open(calls) -> None:
    """Every span but those of a server that still handles what nobody waits for has an end."""
    assert [s["name"] for spans in calls.values() for s in spans if not s["ended"] and "/slow" not in s["name"]] == []
