"""Prometheus' text form, as exporters give it: one scrape, or many appended to one file; OpenMetrics alike.

A sample without a time of its own has that of a line with a date above it (`# Fri, 20 Nov 2026 ...`, `### 1794572443`), else of the file's name. Source:
prometheus.io/docs/instrumenting/exposition_formats, dcgm-exporter, node_exporter.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("dcgm-1788545988_h1.prom")
>>> read(SAMPLE.encode(), 0, 1, found)
>>> [(row[0], row[1], row[3], row[4], row[5]) for row in found.rows()]
[(1788545988000000000, 'h1', 'gpu.xid', 79.0, 2), (1788545990000000000, None, 'net.retransmits', 4.0, 3)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import RAW_CUT, Samples, moment_of
from rca.ingest.samples._labels import address_of, host_of, subject_of
from rca.ingest.samples._names import table
from rca.ingest.times import Stamp, epoch
from rca.ingest.times import read as read_time

SAMPLE = """# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-96be",pci_bus_id="00000000:08:00.0",Hostname="h1",err_msg="a } \\"b\\""} 79
node_netstat_Tcp_RetransSegs 4 1788545990000
"""

HEAD = re.compile(rb"(?:#[^\n]{0,300}\n|\s*\n){0,20}# (?:HELP|TYPE) [A-Za-z_:]|(?:#[^\n]{0,300}\n|\s*\n){0,20}(?:DCGM_FI_|DCGM_EXP_|node_[a-z]{2,20}_)\w{2,80}(?:\{[^\n]{0,2000}\})? [-+\d]")
LABEL = re.compile(r'([A-Za-z_]\w{0,80})="((?:[^"\\]|\\.){0,2000})"')
LINE = re.compile(r'(?P<name>[A-Za-z_:][\w:]{0,200})(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(?P<value>\S+)(?:\s+(?P<time>-?[\d.]{9,20}))?')
TIME = re.compile(r"(?<!\d)(1[5-9]\d{8}(?:\.\d{1,9}|\d{3})?)(?!\d)")
CACHED = 50_000


def opens(head: bytes) -> bool:
    """Whether a file begins like a scrape."""
    return HEAD.match(head) is not None


def read(data: bytes, start: int, line: int | None, found: Samples) -> None:
    """Take the samples of `data`, which begins at offset `start` and, where that is known, line `line` of its file."""
    wanted = {name.encode() for name in table()}
    known: dict[bytes, bool] = {}
    labelled: dict[str, tuple] = {}
    found.stamp = moment_of(found.name)
    found.zoned = found.stamp is None or found.stamp.has_zone
    position, size = 0, len(data)
    number = line
    while position < size:
        stop = data.find(b"\n", position)
        stop = size if stop < 0 else stop
        if data[position : position + 1] in (b"#", b"=", b"-", b"["):
            if data[position + 1 : position + 6] not in (b" HELP", b" TYPE", b" UNIT", b" EOF") and (stamp := _date(data[position : min(stop, position + 200)])):
                found.stamp, found.zoned = stamp, found.zoned and stamp.has_zone
        elif stop > position:
            name = data[position : min(stop, position + 200)].split(b"{", 1)[0].split(b" ", 1)[0]
            use = known.get(name)
            if use is None:
                use = name.lower() in wanted
                if len(known) < CACHED:
                    known[name] = use
            if use:
                _take(data[position : min(stop, position + 20_000)].decode("utf-8", "replace"), (number, start + position), labelled, found)
        position = stop + 1
        if number is not None:
            number += 1
    found.understood += size


def _take(text: str, where: tuple[int | None, int], labelled: dict[str, tuple], found: Samples) -> None:
    match = LINE.match(text)
    if match is None:
        found.gap("lines that are cut off or do not parse")
        return
    key = match["labels"] or ""
    about = labelled.get(key)
    if about is None:
        labels = {name: re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value) for name, value in LABEL.findall(key)}
        about = host_of(labels), subject_of(labels)
        if about[0] and (address := address_of(labels)) and address != about[0]:
            found.addresses[address] = about[0]
        if len(labelled) < CACHED:
            labelled[key] = about
    stamp = epoch(match["time"]) if match["time"] else None
    found.add(match["name"], match["value"], (*where, text[:RAW_CUT]), about[1], ns=stamp.ns if stamp else None, host=about[0])


def _date(text: bytes) -> Stamp | None:
    """The time that a comment or rule between two scrapes states."""
    line = text.decode("utf-8", "replace").strip().lstrip("#=-[<> ")
    if (found := read_time(line)) and found[0] is not None:
        return found[0]
    match = TIME.search(line)
    return epoch(match[1]) if match else None
