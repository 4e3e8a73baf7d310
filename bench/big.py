#!/usr/bin/env python3
"""A run of 512 ranks with 2 GB of logs and a million spans, made on the spot: how long `rca analyze` takes, and how much memory.

    python bench/big.py [--ranks 512] [--gb 2] [--spans 1000000] [--archive] [--keep DIR] [--strict]

Ranks log as in `bench/corpus.py`; a controller calls every rank and 128 rollout workers in each stage of each step, and every call is two spans, the
caller's and the callee's, in OTLP JSON, one file per host, whose clocks are apart. One rollout worker never ends its last call. `--archive` packs all of it into a
`.tar.gz` and analyzes that too. With `--strict` the exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tarfile
import tempfile

import corpus
from measure import run

PYTHON = sys.executable
RCA = [PYTHON, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli.py")]
BARS = {"seconds": 60.0, "MB": 1000.0}  # on two cores
PER_HOST = 8  # ranks
ROLLOUTS = 128
STAGES = (("weights_update", "update_weights", 4), ("rollout", "generate", 60), ("reference", "compute_logp", 12), ("train", "train_batch", 30))
BATCH = 64  # spans per line, as an exporter sends them
START_NS = 1_795_176_000 * 10**9
SPAN = (
    '{"traceId":"%032x","spanId":"%016x","parentSpanId":"%s","name":"%s","kind":%d,"startTimeUnixNano":"%d","endTimeUnixNano":"%d",'
    '"attributes":[{"key":"train.stage","value":{"stringValue":"%s"}},{"key":"train.step","value":{"intValue":"%d"}},'
    '{"key":"worker.index","value":{"intValue":"%d"}}],"status":{"code":%d}}'
)
LINE = (
    '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"%s"}},{"key":"host.name","value":{"stringValue":"%s"}},'
    '{"key":"process.pid","value":{"intValue":"%d"}}]},"scopeSpans":[{"scope":{"name":"bench"},"spans":[%s]}]}]}\n'
)


class Host:
    """The file of one host's spans, in lines of one process each."""

    def __init__(self, folder: str, name: str, ahead_s: int) -> None:
        self.name, self.ahead = name, ahead_s * 10**9
        self._file = open(f"{folder}/{name}.jsonl", "w", buffering=1 << 20)  # noqa: SIM115
        self._waiting: dict[tuple[str, int], list[str]] = {}

    def add(self, service: str, pid: int, values: tuple) -> None:
        """Write a span."""
        spans = self._waiting.setdefault((service, pid), [])
        spans.append(SPAN % values)
        if len(spans) == BATCH:
            self._file.write(LINE % (service, self.name, pid, ",".join(spans)))
            spans.clear()

    def close(self) -> None:
        """Write what waits."""
        for (service, pid), spans in self._waiting.items():
            if spans:
                self._file.write(LINE % (service, self.name, pid, ",".join(spans)))
        self._file.close()


def spans(folder: str, ranks: int, count: int, seed: int) -> int:
    """Write `count` spans or a few more, and tell how many there are."""
    rng = random.Random(seed)
    os.makedirs(folder)
    hosts = [Host(folder, f"node{i}", rng.choice((0, 0, 0, 0, -37, 21))) for i in range(ranks // PER_HOST)]
    first = hosts[0]
    written, step, now = 0, 0, START_NS
    while written < count:
        step += 1
        for stage, call, seconds in STAGES:
            trace, root = rng.getrandbits(128), rng.getrandbits(64)
            began, last = now, now
            workers = range(ROLLOUTS) if stage == "rollout" else range(ranks)
            for worker in workers:
                host = hosts[worker % len(hosts) if stage == "rollout" else worker // PER_HOST]
                mine, theirs = rng.getrandbits(64), rng.getrandbits(64)
                sent = began + rng.randrange(10**8)
                received = sent + 10**6 + rng.randrange(10**6)
                ended = received + int(seconds * (0.9 + 0.1 * rng.random()) * 10**9)
                back = ended + 10**6 + rng.randrange(10**6)
                lost = stage == "rollout" and worker == 77 and written + 2 * len(workers) >= count
                first.add("controller", 100, (trace, mine, f"{root:016x}", call, 3, sent + first.ahead, back + first.ahead, stage, step, worker, 2 if lost else 1))
                if not lost:
                    service = "rollout-worker" if stage == "rollout" else "train-worker"
                    host.add(service, 1000 + worker, (trace, theirs, f"{mine:016x}", call, 2, received + host.ahead, ended + host.ahead, stage, step, worker, 1))
                written, last = written + 2, max(last, back)
            first.add("controller", 100, (trace, root, "", stage, 1, began + first.ahead, last + first.ahead, stage, step, 0, 1))
            written, now = written + 1, last + 10**8
    for host in hosts:
        host.close()
    return written


def size_of(folder: str) -> int:
    """Bytes of all files."""
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)


def make(folder: str, ranks: int, gb: float, count: int, seed: int) -> int:
    """Make the run; tells the number of spans."""
    total = spans(f"{folder}/traces", ranks, count, seed)
    left = gb * 1e9 - size_of(folder)
    corpus.tree(f"{folder}/logs", ranks=ranks, mb_per_rank=max(0.1, left / ranks / 1e6), seed=seed)
    return total


def main() -> int:
    """Make the run if it is not there, analyze it, and say what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--archive", action="store_true")
    parser.add_argument("--keep", metavar="DIR")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory(prefix="rca-big-") as scratch:
        folder = os.path.join(options.keep or scratch, f"big-{options.ranks}-{options.gb}-{options.spans}-{options.seed}")
        if not os.path.isdir(folder):
            made = make(f"{folder}.part", options.ranks, options.gb, options.spans, options.seed)
            os.rename(f"{folder}.part", folder)
            print(f"made {size_of(folder) / 1e9:.2f} GB, {made} spans")
        given = [folder]
        if options.archive:
            given.append(f"{folder}.tar.gz")
            if not os.path.exists(given[1]):
                with tarfile.open(given[1], "w:gz", compresslevel=1) as archive:
                    archive.add(folder, "run")
        for path in given:
            cost = run([*RCA, "analyze", path, "--format", "json"], f"{scratch}/report.json")
            with open(f"{scratch}/report.json", "rb") as file:
                report = json.load(file)
            first = report["hypotheses"][0]["cause"] if report["hypotheses"] else None
            bad = cost.wall > BARS["seconds"] or cost.rss > BARS["MB"]
            missed = missed or (bad and path == folder)
            print(
                f"{os.path.basename(path)}: {cost.wall:.1f} s, {cost.cpu:.1f} s of CPU, {cost.rss:.0f} MB, {len(report['coverage']['sources'])} sources, "
                f"{report['stats']['events']} events, {report['verdict']} {first}; bars {BARS['seconds']:.0f} s, {BARS['MB']:.0f} MB: {'missed' if bad else 'reached'}"
            )
    return int(missed and options.strict)


if __name__ == "__main__":
    sys.exit(main())
