"""Calls of the controller: to all workers of a role at once, awaited in order, each with its own request id.

A call is repeated only while nothing can have happened yet: a connection that was refused, status 503. Status 500 is the worker's own error and is not repeated,
nor is a time-out: the worker may be at it still.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from rca import trace_inject as rt
from rca.replay_trainer import errors, wire
from rca.replay_trainer.config import Config
from rca.replay_trainer.errors import CallError
from rca.replay_trainer.serve import address_file

log = logging.getLogger("controller")
CONNECT_S = 10.0
PAUSE_S = 0.5  # before a call is repeated
ERROR_MAX = 1 << 16  # bytes of an error's answer that are looked at
SHOWN = 300  # characters of an answer that is no error of ours


@dataclass(frozen=True)
class Worker:
    role: str
    rank: int
    url: str

    @property
    def name(self) -> str:
        return f"{self.role}/{self.rank}"


def find(run: Path, role: str, ranks: int, timeout_s: float) -> list[Worker]:
    """The workers of a role once they listen. Raises SchedulerError naming those that never did."""
    end = time.monotonic() + timeout_s
    found: dict[int, Worker] = {}
    while len(found) < ranks:
        for rank in set(range(ranks)) - set(found):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found[rank] = Worker(role, rank, json.loads(address_file(run, role, rank).read_text("utf-8"))["url"])
            gone = next((run / "addresses" / f"{name}.gone" for name in (role, f"{role}-{rank}") if (run / "addresses" / f"{name}.gone").exists()), None)
            if rank not in found and gone is not None:
                raise errors.SchedulerError(f"Failed to start job: {role}/{rank} ended before it was up: {gone.read_text('utf-8')}")
        if len(found) < ranks and time.monotonic() > end:
            raise errors.SchedulerError(f"Failed to start job: {role} {sorted(set(range(ranks)) - set(found))} did not come up in {timeout_s:g} s")
        time.sleep(0.05)
    return [found[rank] for rank in range(ranks)]


class Caller:
    """Calls over one pool of connections."""

    def __init__(self, config: Config, workers: Mapping[str, Sequence[Worker]]) -> None:
        self.config, self.workers = config, workers
        everyone = [worker for role in workers.values() for worker in role]
        self._client = httpx.Client(trust_env=False)
        rt.trace_httpx(self._client, {urlsplit(worker.url).netloc: worker.name for worker in everyone})

    def close(self) -> None:
        self._client.close()

    def call_all(self, role: str, method: str, parts: Sequence[dict[str, Any]] | dict[str, Any], timeout_s: float, streamed: bool = False) -> list[Future[dict[str, Any]]]:
        """Call a method of every worker of a role at once; `parts` has one body for each, or is one for all."""
        workers = self.workers[role]
        bodies = [parts] * len(workers) if isinstance(parts, dict) else parts
        group = os.urandom(4).hex()  # of these calls, in the recording
        return [
            begin(self.call, worker, method, body, timeout_s, streamed, None, group)
            for worker, body in zip(workers, bodies, strict=True)
        ]

    def stop_all(self, timeout_s: float) -> CallError | None:
        """Ask every worker to stop, one after the other; gives the first error, after which nobody else is asked."""
        workers = (worker for role in self.workers.values() for worker in role)
        return next((error for worker in workers if (error := self._stop(worker, timeout_s)) is not None), None)

    def _stop(self, worker: Worker, timeout_s: float) -> CallError | None:
        try:
            with rt.request(name="rpc stop", **{"rca.peer": worker.name}):
                self._plain(worker, "stop", b"", timeout_s)
        except CallError as error:
            log.error("stop of %s failed: %s", worker.name, error)
            return error
        return None

    def call(self, worker: Worker, method: str, values: dict[str, Any], timeout_s: float, streamed: bool = False, tries: int | None = None, group: str | None = None) -> dict[str, Any]:
        """One call, repeated where that can do no harm. Raises the typed error of the role and method."""
        body = wire.pack(values)
        most = tries or self.config.tries
        with rt.request(name=f"rpc {method}", **{"rca.peer": worker.name}) as request, rt.recorded_call(worker.name, method, values, group) as recorded:
            for attempt in range(most):
                try:
                    return recorded.result(self._streamed(worker, method, body, timeout_s) if streamed else self._plain(worker, method, body, timeout_s))
                except CallError as error:
                    if error.passing and attempt + 1 < most:
                        log.warning("%s of %s failed, retry %d of %d: %s", method, worker.name, attempt + 1, most - 1, error)
                        time.sleep(PAUSE_S * (attempt + 1))
                        continue
                    raise errors.of_call(worker.role, method, f"{error} ({worker.name})") from error
        raise AssertionError(request)

    def plain(self, worker: Worker, method: str, values: Mapping[str, Any], timeout_s: float, streamed: bool = False) -> dict[str, Any]:
        """One call, once, whose errors are those of the transport and the worker: CallError."""
        body = wire.pack(dict(values))
        return self._streamed(worker, method, body, timeout_s) if streamed else self._plain(worker, method, body, timeout_s)

    def _plain(self, worker: Worker, method: str, body: bytes, timeout_s: float) -> dict[str, Any]:
        data = b"".join(self._pieces(worker, method, body, timeout_s))
        try:
            return wire.unpack(data) if method != "stop" else {}
        except ValueError as error:
            raise CallError(str(error)) from error

    def _pieces(self, worker: Worker, method: str, body: bytes, timeout_s: float) -> Iterator[bytes]:
        """The body of an answer as it comes. An answer that trickles ends as well: each piece is awaited for `timeout_s`, and none once that has passed."""
        end = time.monotonic() + timeout_s
        with _explained(timeout_s), self._client.stream("POST", f"{worker.url}/v1/{method}", content=body, timeout=_patience(timeout_s)) as answer:
            failed = b""
            for data in answer.iter_raw():
                if answer.status_code == 200:
                    yield data
                else:
                    failed = (failed + data)[:ERROR_MAX]
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("the answer is not complete in time")
            if answer.status_code != 200:
                _raise_for(answer.status_code, failed)

    def _streamed(self, worker: Worker, method: str, body: bytes, timeout_s: float) -> dict[str, Any]:
        """An answer that comes in parts, merged. What has come of one that breaks off counts where `whole_batches` is off."""
        from rca.replay_trainer.batch import merge

        parts: list[dict[str, Any]] = []
        taken = wire.Frames()
        try:
            for data in self._pieces(worker, method, body, timeout_s):
                parts += taken.feed(data)
            if taken.left or not parts:
                raise ValueError(f"the answer ends within part {len(parts) + 1}")
        except (CallError, ValueError) as error:
            if self.config.whole_batches or not parts:
                raise CallError(str(error)) from error
            log.warning("answer of %s to %s broke off after %d parts (%s), going on with what has come", worker.name, method, len(parts), error)
        return merge(parts)


def begin(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call in a thread of its own, at this place of the trace. Not of an executor: the end of the program must not wait for an answer that never comes."""
    future: Future[Any] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(function, *args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="call", daemon=True).start()
    return future


def wait_future_ordered(futures: Sequence[Future[Any]], exit_on_exception: bool = True) -> list[Any]:
    """The results in order. The first error is raised as soon as it is there; or, without `exit_on_exception`, logged, and None stands for that result."""
    if exit_on_exception:
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future.done() and future.exception() is not None:
                raise future.exception()  # type: ignore[misc]
    results = []
    for future in futures:
        try:
            results.append(future.result())
        except errors.TrainerError as error:
            log.error("%s: %s", type(error).__name__, error)
            results.append(None)
    return results


def _patience(timeout_s: float) -> httpx.Timeout:
    return httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))


def _raise_for(status: int, body: bytes) -> None:
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = body[:SHOWN].decode("utf-8", "replace")
    raise CallError(f"Status code: {status}, {text}", passing=status == 503)


class _explained:
    """Errors of the transport as CallError, in words that say what happened."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, httpx.ConnectTimeout):
            raise CallError("connection timed out", passing=True) from error
        if isinstance(error, httpx.TimeoutException):
            raise CallError(f"Request timeout after {self.timeout_s:g} s") from error
        if isinstance(error, httpx.ConnectError):
            raise CallError(f"{error}" or "connection failed", passing=True) from error
        if isinstance(error, (httpx.TransportError, ValueError)):
            raise CallError(f"{type(error).__name__}: {error}") from error
