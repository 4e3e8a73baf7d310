"""What tracing costs, and what it keeps when the process is killed: ours beside the processors of OpenTelemetry's SDK.

    python bench/tracing.py [--rounds N] [--kills N]

All ways take turns in one process, in small batches over many rounds, and of each the median round counts: whatever else runs on the machine meets all of them alike.
The SDK and its file exporter are installed into an environment of their own (`tests/venvs.py`); this file runs again inside it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

NEWEST = ("opentelemetry-sdk", "opentelemetry-proto", "opentelemetry-exporter-otlp-json-file>=0.60b0")
BATCH = 40  # spans of one way in one round
WRITE = b"x" * 299 + b"\n"
STEP_S = 0.001  # of work between two spans: a thousand spans a second
BARS = {"begin and end, of two bare writes": 2.0, "off": 2.5, "OpenTelemetry API, our processor": 25.0, "import": 50.0, "share of a step at 1,000 spans/s": 1.0}


def memory() -> str | None:
    """Where journals lie by default: files in memory, if there are such."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# -- cost, inside the environment -------------------------------------------------------------------------------------------


def ways(folder: str) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """Each way of leaving a span: a batch of them, and what is done behind it outside the clock."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.json.file import FileSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    from rca import trace_inject as rt
    from rca.trace_inject import mirror, otel, recorder, ring, spans

    rt.install(f"{folder}/trace", role="train", rank=0, run="bench", otel=False)
    trace.set_tracer_provider(TracerProvider())  # for the mirror: no processor at all
    fd = os.open(f"{folder}/bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    rt.step(1).__enter__()  # spans are rarely the outermost
    journal = recorder.journal
    write = os.write

    def bare() -> None:
        for _ in range(BATCH):
            write(fd, WRITE)
            write(fd, WRITE)

    def ours() -> None:
        for _ in range(BATCH):
            with rt.Span("span"):
                pass

    def records() -> None:
        begin, end = rt.begin, rt.end
        for _ in range(BATCH):
            end(begin("span"))

    def with_attributes() -> None:
        for i in range(BATCH):
            with rt.span("span", path="/data/shard-00017", rows=i):
                pass

    @rt.traced
    def work() -> None:
        pass

    def decorated() -> None:
        for _ in range(BATCH):
            work()

    def off() -> None:
        recorder.journal, recorder._stopped = None, True
        ours()

    def on_again() -> None:
        recorder.journal, recorder._stopped = journal, False
        spans.mirror, spans.write = None, write

    mapped = ring.Ring(f"{folder}/ring")
    recorder.journal = mapped
    with rt.Span("the first makes the ring"):
        copy = spans.write
    recorder.journal, spans.write = journal, write

    def in_ring() -> None:
        recorder.journal, spans.write = mapped, copy
        ours()

    def mirrored() -> None:
        mirror.start()
        ours()

    def by_sdk(provider: TracerProvider) -> Callable[[], None]:
        tracer = provider.get_tracer("bench")

        def batch() -> None:
            for _ in range(BATCH):
                with tracer.start_as_current_span("span"):
                    pass

        return batch

    def nothing() -> None:
        pass

    def provided(*processors: object) -> TracerProvider:
        provider = TracerProvider()
        for processor in processors:
            provider.add_span_processor(processor)
        return provider

    batching = provided(BatchSpanProcessor(FileSpanExporter(f"{folder}/batch.jsonl")))
    flushed = by_sdk(batching)

    def with_flush() -> None:
        flushed()
        batching.force_flush()

    return {
        "two bare writes of 300 bytes": (bare, nothing),
        "ours: begin() and end()": (records, nothing),
        "ours: a span by `with`": (ours, nothing),
        "ours, with two attributes": (with_attributes, nothing),
        "ours, a decorated call": (decorated, nothing),
        "ours, in a ring": (in_ring, on_again),
        "ours, switched off": (off, on_again),
        "OpenTelemetry API, no processor": (by_sdk(provided()), nothing),
        "OpenTelemetry API, our processor": (by_sdk(provided(otel._processor())), nothing),
        "ours, mirrored into OpenTelemetry": (mirrored, on_again),
        "SDK, Batch and a file, in the caller": (flushed, lambda: batching.force_flush() and None),
        "SDK, Batch and a file, all of it": (with_flush, nothing),
        "SDK, Simple and a file": (by_sdk(provided(SimpleSpanProcessor(FileSpanExporter(f"{folder}/simple.jsonl")))), nothing),
    }


def cost(rounds: int) -> dict[str, tuple[float, float]]:
    """Microseconds a span of each way: the median, and the tenth part of the rounds that was the quickest."""
    from rca.trace_inject import recorder

    with tempfile.TemporaryDirectory(dir=memory(), prefix="rca-bench-") as folder:
        found = ways(folder)
        took: dict[str, list[float]] = {name: [] for name in found}
        names = list(found)
        for turn in range(rounds + 20):
            random.shuffle(names)
            for name in names:
                batch, behind = found[name]
                began = time.perf_counter_ns()
                batch()
                took[name].append((time.perf_counter_ns() - began) / BATCH / 1e3)
                behind()
            if turn == 19:  # warm from here on
                took = {name: [] for name in found}
        recorder.stop()  # or the last record, at the exit, would make the folder again
        return {name: (statistics.median(values), sorted(values)[len(values) // 10]) for name, values in took.items()}


def share(rounds: int) -> float:
    """Per cent of a step that one span takes, the median over steps of a millisecond's work: what that work has put out of the caches is paid here."""
    from rca import trace_inject as rt

    if rt.install(otel=False) is None:
        raise SystemExit("recording is switched off")

    def work(size: int) -> int:
        total = 0
        for i in range(size):
            total += i
        return total

    clock = time.perf_counter_ns
    size, began = 20_000, clock()
    work(size)
    size = int(size * STEP_S * 1e9 / (clock() - began))
    worked, traced, nothing = [], [], []
    for _ in range(rounds * 2):
        a = clock()
        work(size)
        b = clock()
        with rt.Span("step"):
            pass
        c = clock()
        work(size)
        d = clock()
        nothing.append(clock() - d)
        worked.append(b - a)
        traced.append(c - b)
    return 100 * (statistics.median(traced) - statistics.median(nothing)) / statistics.median(worked)


# -- what is left after SIGKILL ---------------------------------------------------------------------------------------------


def victim(kind: str, folder: str) -> None:
    """Finish spans inside an open one and count them where a kill leaves the count, until killed."""
    with open(f"{folder}/count", "r+b") as file:
        counter = mmap.mmap(file.fileno(), 8)
    done = 0
    if kind == "ours":
        from rca import trace_inject as rt

        rt.install(f"{folder}/trace", otel=False)
        start = rt.span
    else:
        from opentelemetry.exporter.otlp.json.file import FileSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        provider = TracerProvider()
        provider.add_span_processor({"batch": BatchSpanProcessor, "simple": SimpleSpanProcessor}[kind](FileSpanExporter(f"{folder}/spans.jsonl")))
        start = provider.get_tracer("bench").start_as_current_span
    with start("the open one"):
        while True:
            with start("finished"):
                pass
            done += 1
            counter[:] = done.to_bytes(8, "little")
            time.sleep(0.0005)


def kills(kind: str, count: int) -> tuple[list[int], int, int]:
    """Of some kills: finished spans lost in each, finished in all, and how often the open one was seen."""
    lost, finished, seen = [], 0, 0
    for _ in range(count):
        with tempfile.TemporaryDirectory(dir=memory(), prefix="rca-bench-") as folder:
            Path(f"{folder}/count").write_bytes(bytes(8))
            process = subprocess.Popen([sys.executable, __file__, "--victim", kind, folder], env={**os.environ, "RCA_TRACE_DIR": ""})
            until = time.monotonic() + 60
            while Path(f"{folder}/count").read_bytes() == bytes(8) and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(random.uniform(1.0, 3.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            done = int.from_bytes(Path(f"{folder}/count").read_bytes(), "little")
            text = "".join(p.read_text("utf-8", "replace") for p in Path(folder).rglob("*.jsonl"))
            there = text.count('"e":"end"') if kind == "ours" else text.count('"finished"')
            lost.append(max(0, done - there))
            finished += done
            seen += "the open one" in text
    return lost, finished, seen


def import_ms() -> tuple[float, float]:
    """The least wall and processor time of several imports, in ms, without OpenTelemetry."""
    program = "import time; b, c = time.perf_counter(), time.process_time()\nfrom rca import trace_inject\nprint((time.perf_counter() - b) * 1e3, (time.process_time() - c) * 1e3)"
    took = [subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True).stdout.split() for _ in range(15)]
    return min(float(t[0]) for t in took), min(float(t[1]) for t in took)


def main() -> int:
    """Print the tables; gives 1 where a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--share", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--victim", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.victim:
        victim(*args.victim)
    if args.share:
        print(share(args.rounds))
        return 0
    if args.inside:
        print(json.dumps({"cost": cost(args.rounds), "kills": {kind: kills(kind, args.kills) for kind in ("ours", "batch", "simple")}}))
        return 0
    from tests.venvs import environment, python_with

    wall, cpu = import_ms()
    with tempfile.TemporaryDirectory(dir=memory(), prefix="rca-bench-") as folder:
        part = float(subprocess.run([sys.executable, __file__, "--share", "--rounds", str(args.rounds)], env=environment(RCA_TRACE_DIR=folder), stdout=subprocess.PIPE, text=True, check=True).stdout)
    done = subprocess.run([python_with(*NEWEST), __file__, "--inside", "--rounds", str(args.rounds), "--kills", str(args.kills)], env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    took, quick = ({name: values[i] for name, values in found["cost"].items()} for i in (0, 1))
    bare = took["two bare writes of 300 bytes"]
    print(f"median of {args.rounds} rounds, {BATCH} spans each\n")
    print("| way | us a span | of two bare writes | the quickest tenth, us |\n| --- | --- | --- | --- |")
    for name, value in took.items():
        print(f"| {name} | {value:.2f} | {value / bare:.1f} | {quick[name]:.2f} |")
    print(f"\n| {args.kills} kills each | finished spans lost | of | open span seen |\n| --- | --- | --- | --- |")
    for name, (lost, finished, seen) in found["kills"].items():
        print(f"| {name} | {min(lost)} to {max(lost)} a kill | {finished} | {seen} of {args.kills} |")
    figures = {
        "begin and end, of two bare writes": took["ours: begin() and end()"] / bare, "off": took["ours, switched off"], "OpenTelemetry API, our processor": took["OpenTelemetry API, our processor"],
        "import": wall, "share of a step at 1,000 spans/s": part,
    }  # fmt: skip
    units = {"off": "us", "OpenTelemetry API, our processor": "us", "import": f"ms ({cpu:.0f} of processor time)", "share of a step at 1,000 spans/s": "%"}
    print("\n| bar | most | measured | |\n| --- | --- | --- | --- |")
    for name, value in figures.items():
        print(f"| {name} | {BARS[name]:g} | {value:.2f} {units.get(name, 'times')} | {'reached' if value <= BARS[name] else 'MISSED'} |")
    return int(any(value > BARS[name] for name, value in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
