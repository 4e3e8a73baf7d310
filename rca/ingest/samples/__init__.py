"""Files that hold nothing but measurements: recognised by their head, read as a whole, given as samples.

A sample is `(time_ns, host, subject, name, value, line, offset, raw)`: whatever tool printed it, `name` is one of `names.toml` and `subject` a tuple of
pairs that name the device, port or mount. One file per shape: documents have `opens(head)` and `read(data, start, line, found)`, tables of
text `START` and `Table` (see `_tables`). What could not be used is stated as the reading's reason, never raised.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.reader import Reader, Stream
from rca.ingest.samples import _tables, prometheus_json, prometheus_text
from rca.ingest.samples._collect import Samples
from rca.ingest.sources import Source, read_range

HEAD_BYTES = 4096
TABLE_HEAD = 40  # lines at the head by which a file of tables is recognised
TABLE_SHARE = 0.8  # of them that must be understood
DOCUMENT_BYTES, TABLE_BYTES = 64 << 20, 16 << 20  # of a larger file, a quarter is read at its beginning and the rest at its end
DOCUMENTS = (prometheus_json, prometheus_text)
#: What one of the first lines of such files begins with; asked of every file, so it must fail fast.
LIKELY = re.compile(
    rb'\s{0,40}\[?\s{0,40}\{\s{0,40}"(?:status|data|errorType|resultType|metric|result)"'
    rb"|(?>\[?\d[\d/:.TZ-]{7,32}(?:[ T][\d:.,]{8,18}Z?)?\]?,? ?)?"
    rb"(?:# (?:HELP|TYPE|Port) |(?:DCGM_FI|DCGM_EXP|node)_\w{3,80}[{ ]|PING |\d{1,6} bytes from |procs -|link [\w-]{2,30}/\d|timestamp, |index, |name, |uuid, |gpu_uuid, |pci\.bus_id, |gpu_bus_id, "
    rb"|={3,40}NVSMI LOG=|#\s?(?:Date +Time +|Time +)?gpu |NIC statistics:|\d{1,5}: [\w.@-]{1,40}: <|[\w.-]{1,30}: flags=|Inter-\||(?:Ip|Tcp|TcpExt|Icmp):|#kernel|(?:Ip|Tcp)[A-Z]\w{3,40} +\d"
    rb"|device /?\w\S{1,200} mounted on|rpc \d+ \d+|net \d+ \d+ \d+ \d+|Client rpc stats|avg-cpu:|Device:? |Mem(?:Total|Available|Free)?: |[KMGT]i?B Mem"
    rb"|top - | *PID USER| +total +used +free|USER +PID| *r +b +swpd|Filesystem +|low \d|HOST: |[\d.]{4,9} [\d.]{4,9} [\d.]{4,9} \d+/\d+ \d+|[AP]M +(?:CPU|runq|kbmem|IFACE|DEV|tps|proc/s)|(?:CPU|runq-sz|kbmemfree|IFACE|DEV|tps|proc/s) )",
)
LIKELY_WORDS = (b"counters/", b" avg10=", b"memory.current", b"memory.events", b"memory.max", b" mounted on /", b"load average: ", b"/loadavg")
LIKELY_LINES = 8


def whole(source: Source, size: int) -> Samples | None:
    """The samples of a file that holds nothing else; None for any other file. `size` is that of what it decodes to."""
    head = read_range(source, 0, HEAD_BYTES)
    if not likely(head):
        return None
    found = Samples(source.name)
    reader = next((d for d in DOCUMENTS if d.opens(head)), None)
    if reader is None and not _tabular(head, source.name):
        return None
    _tables.prepare(found)
    most = TABLE_BYTES if reader is None else DOCUMENT_BYTES
    parts = [(0, size)] if size <= most else [(0, most // 4), (size - most * 3 // 4, size)]
    for start, end in parts:
        data = read_range(source, start, end - start)
        skipped = data.find(b"\n") + 1 if start else 0
        line = 1 if start == 0 else None
        if reader is not None:
            reader.read(data[skipped:] if skipped else data, start + skipped, line, found)
            found.shape = reader.__name__.rpartition(".")[2]
        else:
            _tables.read(data[skipped:] if skipped else data, start + skipped, line, found)
            found.understood += len(data) - skipped
    found.tabular = reader is None
    if len(parts) > 1:
        found.gap(f"{-(-(size - most) >> 20)} MiB in the middle of a large export")
    return found


def likely(head: bytes) -> bool:
    """Whether a file may be one of ours, told by the beginnings of its first lines."""
    if any(word in head for word in LIKELY_WORDS):
        return True
    start = 0
    for _ in range(LIKELY_LINES):
        if LIKELY.match(head, start):
            return True
        start = head.find(b"\n", start) + 1
        if not start:
            break
    return False


def _tabular(head: bytes, name: str) -> bool:
    """Whether nearly all first lines belong to tables that we know."""
    cut = head.rfind(b"\n") + 1
    trial = Samples(name)
    understood, lines = _tables.read(head[:cut] if cut and len(head) == HEAD_BYTES else head, 0, 1, trial, TABLE_HEAD)
    return lines > 0 and understood >= TABLE_SHARE * lines and trial.shape != "samples"


def stated(found: Samples) -> str:
    """The gaps of a file in words. Values that say nothing are no missing part of it."""
    gaps = "; ".join(f"{what} ({count})" if count > 1 else what for what, count in sorted(found.gaps.items()))
    return gaps if not gaps or any(not what.startswith(("values that", "series without a name", "native hist")) for what in found.gaps) else f"unused: {gaps}"


def result(found: Samples, reader: Reader) -> dict[str, Any]:
    """What the reading of a file hands over, with what a reader of its lines saw, if one was asked. Changes of tables are judged from the samples."""
    reader.streams.setdefault("", Stream(reader.points))
    plain = reader.finish()
    plain["events"] = [e for e in plain["events"] if e["attrs"].get("signature")]
    plain |= {"samples": found.rows(), "shape": found.shape, "zoned": found.zoned, "parsed": found.understood}
    plain["measured"] = {"server_clock": found.server_clock, "addresses": found.addresses, "gaps": stated(found)}
    return plain
