#!/usr/bin/env python3
"""Measure the byte scanner against ripgrep, interleaved, and check that it finds every planted line.

    python bench/scan.py [--corpus DIR] [--rounds 5] [--generator PATH] [--dense] [--small] [--gz]

A round runs, one after the other on a warm cache: `rg -n -F -f PATTERNS -j2`, the same with `-i`, and our whole scan in a
fresh interpreter (start, listing, compiling, scanning, line numbers and text of every hit). Absolute times drift with
the neighbours of a shared machine, so only ratios within a round are reported, by their median. The patterns are the
literals of the product's signatures and one phrase per planted failure. Goal: at most 0.40x of the case-sensitive rg.
"""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
GOAL = 0.40
DENSE_LINES = 80_000  # in 46 MB: the case that made an earlier prototype 3.8x slower than rg
# Without the product's signatures: phrases of the kind they hold.
PHRASES = (
    "Watchdog caught collective operation timeout", "has fallen off the bus", "CUDA out of memory", "No space left on device",
    "Connection reset by peer", "Read-only file system", "Stale file handle", "Segmentation fault", "oom-kill:", "Killed process",
    "uncorrectable ECC error", "device-side assert triggered", "is killed by signal", "unhandled system error", "Address already in use",
)  # fmt: skip


def probe(folder: str, patterns: str) -> None:
    """What is measured: scan everything, print `name:line:offset:text` of every hit."""
    from rca.ingest.engines import matcher
    from rca.ingest.parts import InParts
    from rca.ingest.pool import scan_all
    from rca.ingest.scan import Part, line_numbers, merged, scan, search
    from rca.ingest.sources import list_sources, read_range

    with open(patterns, "rb") as file:
        literals = file.read().splitlines()

    def work(source, engine):
        return show(source, scan(source, engine))

    def join(source, _engine, parts):
        return show(source, merged([Part(*p) for p in parts]))

    def show(source, result):
        hits = [offset for _, offset in result.hits]
        source = source._replace(lines=result.lines)
        found = []
        for offset, line in zip(hits, line_numbers(source, hits) if hits else (), strict=True):
            low = max(0, offset - 4096)
            around = read_range(source, low, 8192)
            start = around.rfind(b"\n", 0, offset - low) + 1
            end = around.find(b"\n", offset - low)
            found.append((line, low + start, around[start : end if end >= 0 else None]))
        return found

    sources = list_sources([folder])
    out = []
    for source, found in zip(sources, scan_all(sources, work, lambda: matcher(literals), in_parts=InParts(lambda *task: tuple(search(*task)), join)), strict=True):
        out += [b"%s:%d:%d:%s\n" % (source.name.encode(), *hit) for hit in dict.fromkeys(found or ())]
    os.write(1, b"".join(out)) if len(out) < 1000 else sys.stdout.buffer.write(b"".join(out))


def measured(command: list[str], out: str) -> tuple[float, float]:
    """Seconds of wall and of CPU that a command takes, its output going to a file."""
    import subprocess
    import time

    # As installed: with compiled modules, which some containers forbid to write. They go beside the output.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": f"{out}.cache"}
    with open(out, "wb") as file:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=file, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: rg found nothing
        sys.exit(f"failed: {' '.join(command)}")
    return wall, usage.ru_utime + usage.ru_stime


def compare(title: str, commands: dict[str, list[str]], base: str, rounds: int, out: str) -> dict[str, float]:
    """Run all commands in every round; print and return the medians of the ratios to `base` within a round."""
    from statistics import median

    walls: dict[str, list[float]] = {name: [] for name in commands}
    cpus: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        measured(command, out)  # warms the page cache and the bytecode
    for _ in range(rounds):
        for name, command in commands.items():
            wall, cpu = measured(command, out)
            os.replace(out, f"{out}.{name}")
            walls[name].append(wall)
            cpus[name].append(cpu)
    ratios = {}
    print(f"\n{title}: {rounds} rounds, ratio to `{base}`")
    for name in commands:
        ratios[name] = median(a / b for a, b in zip(walls[name], walls[base], strict=True))
        cpu = median(a / b for a, b in zip(cpus[name], cpus[base], strict=True))
        print(f"  {name:12} wall {ratios[name]:5.2f}x  cpu {cpu:5.2f}x   (median {median(walls[name]) * 1000:.0f} ms)")
    return ratios


def literals(generator: str, given: str | None) -> list[str]:
    """The patterns: the signatures' literals, and of each planted line its longest constant part."""
    import re
    import runpy

    try:
        if given:
            raise ImportError(f"taken from `{given}`")
        from rca.ingest.signatures import load

        known = {literal for signature in load() for literal in signature.literals}
        print(f"patterns: {len(known)} literals of the product's signatures, and the planted ones")
    except (ImportError, AttributeError) as error:
        with open(given or os.devnull) as file:
            known = set(file.read().splitlines()) or set(PHRASES)
        print(f"patterns: {len(known)} without the product's signatures, and the planted ones ({error})")
    planted = runpy.run_path(generator)["PLANT"] if os.path.exists(generator) else ()
    known |= {max(re.split(r"\{\w\}", text), key=len).strip()[:60] for _, text in planted}
    return sorted(k for k in known if k and "\n" not in k)


def generated(generator: str, folder: str, *arguments: str) -> str:
    """The corpus in `folder`, made if it is not there."""
    import subprocess

    if not os.path.exists(folder.rstrip("/") + ".truth.json"):
        if not os.path.exists(generator):
            sys.exit(f"error: no corpus at `{folder}` and no generator at `{generator}`\n\nhint: give `--corpus DIR` or `--generator PATH`")
        subprocess.run([sys.executable, generator, folder, *arguments], check=True)
    return folder


def verify(folder: str, found: str) -> None:
    """Every planted line must have been printed with its exact line number and offset."""
    import json

    with open(folder.rstrip("/") + ".truth.json") as file:
        planted = json.load(file)["planted"]
    with open(found, "rb") as file:
        printed = set(file.read().split(b"\n"))
    missing = [p for p in planted if "{file}:{line}:{offset}:{text}".format(**p).encode() not in printed]
    print(f"  planted lines found at their exact offset and line: {len(planted) - len(missing)} of {len(planted)}")
    if missing:
        sys.exit(f"missed: {missing[0]}")


def dense(folder: str, text: str) -> tuple[str, str]:
    """Two folders with one 46 MB file each: ordinary lines, and the same bytes with a failure in every seventh line."""
    import random

    rng = random.Random(7)
    for name in ("clean", "dense"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    with open(f"{folder}/clean/a.log", "wb") as clean, open(f"{folder}/dense/a.log", "wb") as full:
        for i in range(DENSE_LINES):
            lines = [f"2026-01-06 10:00:00,123 INFO step={i} loss=2.{rng.randrange(10**6)} tokens/s={rng.randrange(10**6)} mem=61GiB\n" for _ in range(7)]
            full.write("".join(lines[:6]).encode() + f"[rank3] {text} #{i}\n".encode())
            clean.write("".join(lines[:6]).encode() + f"[rank3] {'a quiet line'.ljust(len(text))} #{i}\n".encode())
    return f"{folder}/clean", f"{folder}/dense"


def main() -> None:
    """Parse the arguments, measure, print."""
    import argparse
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="a tree that the generator made, with its .truth.json beside it")
    parser.add_argument("--generator", default=os.path.join(ROOT, "..", "shared", "bench", "make_corpus.py"))
    parser.add_argument("--patterns", help="a file of literals, one per line, instead of the product's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dense", action="store_true", help="also one 46 MB file with 80,000 hits, against a clean one")
    parser.add_argument("--small", action="store_true", help="also 4096 files of 64 KB")
    parser.add_argument("--gz", action="store_true", help="also eight gzip files, against `rg -z`")
    given = parser.parse_args()
    if not os.path.exists(given.generator):
        print(f"no generator at `{given.generator}`: only a corpus that exists can be measured")
    with tempfile.TemporaryDirectory(prefix="rca-bench-") as work:
        patterns, out = f"{work}/patterns", f"{work}/out"
        known = literals(given.generator, given.patterns)
        with open(patterns, "w") as file:
            file.write("\n".join(known) + "\n")

        def ours(folder: str) -> list[str]:
            return [sys.executable, os.path.abspath(__file__), "--probe", folder, patterns]

        def rg(folder: str, *options: str) -> list[str]:
            return ["rg", "-n", "-F", "-f", patterns, "-j2", *options, folder]

        corpus = given.corpus or generated(given.generator, os.path.join(tempfile.gettempdir(), "rca-bench-corpus"))
        got = compare(f"corpus {corpus}", {"rg": rg(corpus), "rg -i": rg(corpus, "-i"), "rca": ours(corpus)}, "rg", given.rounds, out)
        print(f"  rca to `rg -i`: about {got['rca'] / got['rg -i']:.2f}x; goal {GOAL:.2f}x of rg: {'met' if got['rca'] <= GOAL else 'MISSED'}")
        verify(corpus, f"{out}.rca")
        if given.small:
            small = generated(given.generator, f"{work}/small", "--ranks", "4096", "--mb-per-rank", "0.0625", "--files-per-rank", "1")
            compare("4096 files of 64 KB", {"rg": rg(small), "rca": ours(small)}, "rg", given.rounds, out)
            verify(small, f"{out}.rca")
        if given.dense:
            clean, full = dense(work, known[len(known) // 2])
            compare("46 MB, 80,000 hits", {"clean": ours(clean), "dense": ours(full), "rg dense": rg(full)}, "clean", given.rounds, out)
        if given.gz:
            import gzip
            import shutil

            os.makedirs(f"{work}/gz")
            from rca.ingest.sources import list_sources

            for i, source in enumerate(list_sources([corpus])[:8]):
                with open(source.path, "rb") as plain, gzip.open(f"{work}/gz/{i}.log.gz", "wb", 6) as packed:
                    shutil.copyfileobj(plain, packed)
            compare("8 gzip files", {"rg -z": rg(f"{work}/gz", "-z"), "rca": ours(f"{work}/gz")}, "rg -z", given.rounds, out)


if __name__ == "__main__":
    probe(*sys.argv[2:4]) if sys.argv[1:2] == ["--probe"] else main()
