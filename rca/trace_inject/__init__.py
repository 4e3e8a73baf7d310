"""Leave evidence in any trainer, so that the next failure explains itself: spans, requests, hand-overs, events, checkpoints.

    from rca import trace_inject as rt

    rt.install()

    @rt.traced
    def load_batch(): ...

    with rt.step(12), rt.stage("rollout"), rt.request():
        requests.post(url, headers=rt.inject({}))

Nothing here raises, blocks or holds a lock; nothing but the standard library is imported. Everything goes to one file per process
(`rca.trace/1`) in `RCA_TRACE_DIR`, record by record, and `rca analyze` reads it. See docs/tracing.md.
"""

from __future__ import annotations

from typing import Any

from rca.trace_inject import guard, recorder, spans
from rca.trace_inject.context import environment, extract, inject
from rca.trace_inject.spans import Span, begin, end, event, request, span, stage, step, traced

#: What is imported only when it is used, by its file.
LATER = {
    "handoff": "handovers", "settle": "handovers", "emit_event": "delivery", "ack_event": "delivery", "deliver": "delivery",
    "saving": "checkpoints", "checkpoint_saved": "checkpoints", "checkpoint_loaded": "checkpoints", "collective": "collectives", "wrap_distributed": "collectives",
    "sync_point": "cuda", "ipc_probe": "cuda", "stamp_logs": "logs", "Stamp": "logs",
    "install_otel": "otel", "sample_in_background": "sampler",
    "trace_requests": "integrations.http_client", "trace_httpx": "integrations.http_client", "TraceMiddleware": "integrations.asgi",
    "traced_actor": "integrations.ray", "traced_task": "integrations.ray", "traced_handle": "integrations.ray", "trace_ray": "integrations.ray",
    "ray_environment": "integrations.ray",
    "record_requests": "recording", "recorded": "requests", "recorded_call": "calls", "recorded_file": "requests",
}  # fmt: skip
__all__ = ["Span", "begin", "end", "environment", "event", "extract", "inject", "install", "request", "span", "stage", "step", "traced", "uninstall", *LATER]


def __getattr__(name: str) -> Any:
    if name in LATER:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


@guard.quiet()
def install(folder: str | None = None, *, role: str | None = None, rank: int | None = None, run: str | None = None, size_max: int | None = None, otel: bool | None = None, ring: bool | None = None) -> str | None:
    """Switch recording on in this process and its children; gives the folder.

    `folder` is `RCA_TRACE_DIR`, or one in this machine's memory (`/dev/shm`): a network file system that hangs would hang the trainer. `role` is one of
    controller, train, rollout, reference, reward, critic, meta_server, dataloader; role, rank and run come from the launcher's variables where
    they are not given. `size_max` bounds the bytes of one process's files, 64 MiB by default. `RCA_TRACE_OFF=1` switches everything off.
    `ring` records into mapped memory of fixed size (8 MiB, or `size_max`), where the newest overwrites the oldest; so does `RCA_TRACE_RING=1`.

    Spans of a user's own OpenTelemetry provider, set before or after this call, go into the journal too. `otel=True` also sends the spans of this package to that
    provider, `otel=False` leaves OpenTelemetry alone.
    """
    about: dict[str, Any] = {k: v for k, v in (("role", role), ("rank", rank), ("run", run)) if v is not None}
    journal = recorder.start(folder, about, size_max, ring)
    if journal is not None:
        recorder.follow_otel(otel)
    return journal.folder if journal is not None else None


def uninstall() -> None:
    """Switch recording off."""
    recorder.stop()
    spans.mirror = None
