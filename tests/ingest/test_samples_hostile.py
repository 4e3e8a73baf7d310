"""Exports that are damaged, huge or not what they seem: a stated gap, bounded work, never a traceback."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import rca
from rca.ingest import samples
from rca.ingest.sources import list_sources
from rca.taxonomy import Kind


def answer(*series: dict[str, Any]) -> str:
    """A range answer."""
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


def one(values: Any, **labels: str) -> dict[str, Any]:
    """One series of retransmissions."""
    return {"metric": {"__name__": "node_netstat_Tcp_RetransSegs", "nodename": "h1"} | labels, "values": values}


def read(path: Path) -> samples.Samples:
    """The samples of one file."""
    (source,) = list_sources([path])
    found = samples.whole(source, source.size)
    assert found is not None
    return found


GOOD = [[1_795_000_000 + 60 * i, str(i)] for i in range(9)]


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        (answer(one([[1_795_000_000, "NaN"], [1_795_000_060, "+Inf"], [1_795_000_120, "-Inf"]])), "NaN"),
        (answer(one([[1_795_000_000, "1e999"], [1_795_000_060, "9" * 59]])), "absurdly large"),
        (answer(one([["yesterday", "1"], [1_795_000_000, None], [1_795_000_000, True], [1e300, "1"], [-5, "1"]])), "wrong type"),
        (answer(one([[1_795_000_000, "abc"]])), "no numbers"),
        (answer(one([])), "without values"),
        (answer({"metric": {"nodename": "h1"}, "values": GOOD}), "without a name"),
        (answer(one(GOOD))[:-200], "cut off"),
        (answer({"metric": {"__name__": "node_load1"}, "histograms": [[1_795_000_000, {"count": "1"}]]}), "histograms"),
        ('{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}', "query timed out"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_stated(text: str, gap: str, tmp_path: Path) -> None:
    """In the coverage of the report."""
    (tmp_path / "range.json").write_text(text)
    report = rca.analyze(tmp_path, workers=1)
    (file,) = report.document["coverage"]["sources"]
    assert gap in str(file["reason"])


def test_good_series_beside_bad_ones_are_used(tmp_path: Path) -> None:
    """A quoted brace in a label, a series cut off at the end."""
    text = answer(one(GOOD, device='a "}]} b'), one(GOOD), one(GOOD, device="z"))
    (tmp_path / "range.json").write_text(text[:-120])
    found = read(tmp_path / "range.json")
    assert len({r[2] for r in found.rows()}) == 3


def test_several_answers_pretty_and_plain_in_one_file(tmp_path: Path) -> None:
    """One behind the other, as a loop of curl writes them."""
    (tmp_path / "all.json").write_text("\n".join([answer(one(GOOD)), json.dumps(json.loads(answer(one(GOOD, device="b"))), indent=4), answer({"metric": {"__name__": "node_load1"}, "value": [1_795_000_000, "3"]})]))
    rows = read(tmp_path / "all.json").rows()
    assert {r[3] for r in rows} == {"net.retransmits", "cpu.load1"} and len({r[2] for r in rows}) == 3
    lines = (tmp_path / "all.json").read_text().splitlines()
    assert all(r[7].split("\n")[0] in lines[r[5] - 1] for r in rows)


def test_a_large_export_is_bounded(tmp_path: Path) -> None:
    """Time and samples, whatever its size."""
    path = tmp_path / "node.prom"
    with path.open("w") as file:
        for scrape in range(400):
            file.write(f"# scrape {1_795_000_000 + 30 * scrape}\n")
            for cpu in range(400):
                file.write(f'node_cpu_seconds_total{{cpu="{cpu}",mode="idle",nodename="h1"}} {scrape * 29.5 + cpu}\n')
            file.write(f'node_load1{{nodename="h1"}} {scrape % 17}\nnode_netstat_Tcp_RetransSegs{{nodename="h1"}} {scrape * 3}\n')
    began = time.process_time()
    found = read(path)
    seconds = time.process_time() - began
    assert len(found.rows()) < 3000 and found.rows()[0][0] == 1_795_000_000 * 10**9
    assert path.stat().st_size / 1e6 / seconds > 5  # MB/s, on the slowest machine


def test_many_series_are_bounded(tmp_path: Path) -> None:
    """A label that never repeats."""
    (tmp_path / "x.prom").write_text("# TYPE node_load1 gauge\n" + "".join(f'node_load1{{pod="p{i}"}} {i}\n' for i in range(25_000)))
    found = read(tmp_path / "x.prom")
    assert len(found.rows()) <= 20_000 and "series beyond the limit" in found.gaps


def test_scrapes_without_any_time_keep_their_order(tmp_path: Path) -> None:
    """Nothing says when; that it changed is known."""
    text = "".join(f'# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter\nDCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="1",Hostname="h1"}} {int(i > 5)}\n' for i in range(9))
    (tmp_path / "x.prom").write_text(text)
    (event,) = [e for e in rca.analyze(tmp_path, workers=1).run.events if e.source is None]
    assert (event.kind, event.host, event.gpu, event.time_ns) == (Kind.DEVICE_MEMORY_ERROR, "h1", 1, None)
