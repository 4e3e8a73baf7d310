"""How many spans of OTLP JSON are read in a second: writes a file as a collector would leave it and reads it.

    python bench/spans.py [SPANS] [--workers N]

A job of 64 workers whose controller calls each of them in five stages a step: the callers' spans come in batches, the callees' one a line.
Peak memory is that of the largest process.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

WORKERS = 64
STAGES = ("weights_update", "rollout", "reference", "train", "save")


def attribute(key: str, value: object) -> dict:
    """One attribute in OTLP's spelling."""
    return {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def write(path: Path, count: int) -> int:
    """Write about `count` spans; gives the number."""
    rng, written, step, now = random.Random(1), 0, 0, 1_795_176_000_000_000_000
    with path.open("w") as file:

        def line(service: str, host: str, pid: int, spans: list[dict]) -> None:
            about = {"attributes": [attribute("service.name", service), attribute("host.name", host), attribute("process.pid", pid)]}
            file.write(json.dumps({"resourceSpans": [{"resource": about, "scopeSpans": [{"scope": {"name": "grpo"}, "spans": spans}]}]}, separators=(",", ":")) + "\n")

        while written < count:
            step, trace = step + 1, f"{rng.getrandbits(128):032x}"
            for stage in STAGES:
                common = [attribute("train.stage", stage), attribute("train.step", step)]
                ids = [f"{rng.getrandbits(64):016x}" for _ in range(WORKERS)]
                calls = [
                    {"traceId": trace, "spanId": ids[w], "name": f"rpc.{stage}", "kind": 3, "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 20 * 10**9 + rng.randrange(10**9)), "status": {"code": 1},
                     "attributes": [*common, attribute("peer.worker", f"{stage}/{w}"), attribute("server.address", f"10.7.1.{w}"), attribute("server.port", 30000 + w), attribute("http.response.status_code", 200)]}
                    for w in range(WORKERS)
                ]  # fmt: skip
                line("controller", "n0", 80581, calls)
                for w in range(WORKERS):
                    line(f"{stage}-worker", f"n{w // 8}", 40000 + w, [{
                        "traceId": trace, "spanId": f"{rng.getrandbits(64):016x}", "parentSpanId": ids[w], "name": stage, "kind": 2, "startTimeUnixNano": str(now + 10**6),
                        "endTimeUnixNano": str(now + 19 * 10**9 + rng.randrange(10**9)), "attributes": [*common, attribute("worker.index", w)], "status": {"code": 1},
                    }])  # fmt: skip
                now += 21 * 10**9
                written += 2 * WORKERS
    return written


def main() -> None:
    """Print one line of figures for reading, and one for the join."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spans", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=None)
    flags = parser.parse_args()
    from rca.correlate import spans as tables
    from rca.ingest.read import ingest
    from rca.ingest.sources import list_sources, read_range
    from rca.ingest.spans import otlp
    from rca.ingest.spans.table import Table

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.jsonl"
        count, size = write(path, flags.spans), path.stat().st_size
        source = list_sources([path])[0]
        table, began = Table(), time.process_time()
        otlp.read(source, read_range(source, 0, 4096), table)
        spent = time.process_time() - began
        decoder = "msgspec" if otlp.msgspec is not None else "json of the standard library"
        print(f"{count:,} spans, {size / 1e6:.0f} MB, {decoder}: decoding {spent:.2f} s of one core, {count / spent:,.0f} spans/s, {sum(len(c) * c.itemsize for c in table.columns.values()) / count:.0f} bytes a span")
        del table
        began = time.monotonic()
        readings, _ = ingest([path], workers=flags.workers)
        wall = time.monotonic() - began
        began = time.process_time()
        joined = tables.join(readings)
        print(f"ingest {wall:.2f} s on the clock, {count / wall:,.0f} spans/s; join of {len(joined):,}: {time.process_time() - began:.2f} s")
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        print(f"peak {peak / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
