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
FIRST_BYTES, LAST_BYTES = 16 << 20, 48 << 20  # of a larger file, what is read at its ends
DOCUMENTS = (prometheus_json, prometheus_text)
#: What the first lines of such files begin with; asked of every file, so it must fail fast.
LIKELY = re.compile(
    rb'\s{0,40}\[?\s{0,40}\{\s{0,40}"(?:status|data|errorType|resultType|metric|result)"'
    rb"|(?:[^\n]{0,300}\n){0,5}?(?:# (?:HELP|TYPE) |DCGM_FI_|DCGM_EXP_|node_[a-z]+_\w+[{ ]"
    rb"|.{0,60}?(?:PING \S+ ?\(|\d+ bytes from |procs -{2,}|\s{0,6}r\s+b\s+swpd|link [\w-]+/\d|/(?:hw_)?counters/|(?:hw_)?counters/\w+:|# Port .{0,20}counters|timestamp, |index, |name, |uuid, |gpu_uuid, |pci\.bus_id, |gpu_bus_id, "
    rb"|=+NVSMI LOG=+|# gpu |NIC statistics:|\d+: [\w.@-]+: <|(?:Ip|Tcp|TcpExt):|#kernel|\S+ mounted on /|device \S+ mounted on|rpc \d+ \d+|net \d+ \d+ \d+ \d+|Linux \S+ \(|avg-cpu|Device[: ]|some avg10=|MemTotal:|\s+total\s+used\s+free|top - |Mem:|Filesystem\s|[\d.]+ [\d.]+ [\d.]+ \d+/\d+ \d+|.{0,20}load average|(?:low|high|max|oom|oom_kill) \d+$|\S{0,200}memory\.(?:events|current)|Start: .{0,60}\nHOST:|HOST: ))",
)


def whole(source: Source, size: int) -> Samples | None:
    """The samples of a file that holds nothing else; None for any other file. `size` is that of what it decodes to."""
    head = read_range(source, 0, HEAD_BYTES)
    if not LIKELY.match(head):
        return None
    found = Samples(source.name)
    reader = next((d for d in DOCUMENTS if d.opens(head)), None)
    if reader is None and not _tabular(head, source.name):
        return None
    _tables.prepare(found)
    parts = [(0, size)] if size <= FIRST_BYTES + LAST_BYTES else [(0, FIRST_BYTES), (size - LAST_BYTES, size)]
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
    if len(parts) > 1:
        found.gap(f"{(size - FIRST_BYTES - LAST_BYTES) >> 20} MiB in the middle of a large export")
    return found


def _tabular(head: bytes, name: str) -> bool:
    """Whether nearly all first lines belong to tables that we know."""
    cut = head.rfind(b"\n") + 1
    trial = Samples(name)
    understood, lines = _tables.read(head[:cut] if cut and len(head) == HEAD_BYTES else head, 0, 1, trial, TABLE_HEAD)
    return lines > 0 and understood >= TABLE_SHARE * lines and trial.shape != "samples"


def result(found: Samples, reader: Reader) -> dict[str, Any]:
    """What the reading of a file hands over, by way of a reader that saw no line."""
    reader.streams[""] = Stream(reader.points)
    plain = reader.finish()
    gaps = "; ".join(f"{what} ({count})" if count > 1 else what for what, count in sorted(found.gaps.items()))
    plain |= {"samples": found.rows(), "shape": found.shape, "zoned": found.zoned, "parsed": found.understood}
    plain["measured"] = {"server_clock": found.server_clock, "addresses": found.addresses, "gaps": gaps}
    return plain
