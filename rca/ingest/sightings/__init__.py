"""What lines tell of names: which address is which host, which worker listens where, which device is which index.

Such lines are rare and stand anywhere (a worker introduces itself once, an exporter repeats its labels), so they are found by a few literals
of the one scan and by a look at each file's first bytes; ordinary lines are not touched. A sighting is plain: `(kind, fields)`, and means

* `alias`: two names (`a`, `b`) of one host; `soft` where only the form of the line says so;
* `own`: a name or address (`name`) of the host that wrote the file;
* `worker`: a process by role and index with what else the line says of it; `own` where it speaks of itself;
* `gpu`: a device by `index`, `bus` and `uuid`, of `host` or of the file's own; `pid` where a process uses it;
* `nic`: an adapter by `rdma` name, `netdev` and `pci`;
* `zone`: the offset from UTC that its times state, in `minutes`;
* `actor`: the class of the Ray actor that wrote the file;
* `sizes`: degrees of parallelism by axis; `place`: the coordinates of a `rank` in them; `colocated`: whether roles share devices.

What they mean together is learned in correlate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rca.ingest.line import Line, parse
from rca.ingest.sightings import devices, dump, hosts, objects, parallel, workers, zones
from rca.ingest.sources import Source, ranges, read_range

#: Found by the scan, in any case. None of them occurs in the step lines of a training program.
LITERALS = frozenset((*hosts.LITERALS, *workers.LITERALS, *devices.LITERALS, *parallel.LITERALS, *dump.LITERALS, *objects.LITERALS))
HEAD_BYTES = 48 << 10  # what a controller says of its workers when it starts
HEAD_LINES = 400
#: What makes a line of the head worth a look, beside the literals: words, in lower case, those that no letter stands before, and shapes. One expression
#: for all of them took five times as long as `bytes.find` does for each.
HEAD_WORDS = (b"://", "进程号".encode(), b"hostname", b"nodename", b"node_name", b"_ip=")
HEAD_BEGINNINGS = (b"pid=", b"pid:", b"pid ", b"ip=", b"ip:")
HEAD_SHAPES = (re.compile(rb"@ ?[a-z\d.-]{3,60}:\d"), re.compile(rb"\((?:\d{1,3}\.){3}\d{1,3}[):]"))
WORD_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_")
RAY_ACTOR = re.compile(rb"(?::\w{1,30}:[^\n]{0,200}\n){0,3}:actor_name:([\w.()=-]{1,80})")
BEFORE, AFTER = 2 << 10, 4 << 10  # bytes around a hit within which its line is looked for
DECODED_BYTES = 4 << 20  # of a compressed file, which is decoded anew from its beginning for this
MOST = 4000  # sightings of one file

Sighting = tuple[str, dict[str, Any]]


def look(source: Source, size: int, literals: Sequence[bytes], hits: Sequence[tuple[int, int]]) -> list[Sighting]:
    """The sightings of one scanned file of `size` decoded bytes; `hits` are `(literal, offset)` by offset."""
    found: dict[tuple, Sighting] = {}
    head = read_range(source, 0, min(size, HEAD_BYTES))
    if objects.opens(head) and (told := objects.read(source, size)) is not None:
        return told[:MOST]
    lines = [(at, _line(head, at)) for at in sorted(_worth_a_look(head))[:HEAD_LINES]]
    near = size if source.compression is None else DECODED_BYTES
    lines += _around(source, size, sorted({offset for index, offset in hits if offset < near and literals[index] in LITERALS}), head)
    for sighting in zones.read(head):
        found.setdefault(_key(sighting), sighting)
    for sighting in dump.read(source, size, head, {literals[index] for index, _ in hits}):
        found.setdefault(_key(sighting), sighting)
    if m := RAY_ACTOR.match(head):
        found["actor",] = ("actor", {"name": m[1].decode()})
    table = devices.Table()
    for _, raw in sorted(dict(lines).items()):
        text = raw.decode("utf-8", "replace")
        line = parse(text)
        for sighting in (*table.row(line.text), *_all(line, text)):
            found.setdefault(_key(sighting), sighting)
            if len(found) >= MOST:
                return list(found.values())
    return list(found.values())


def _worth_a_look(head: bytes) -> set[int]:
    """Where the lines begin that hold one of the words or shapes.

    >>> _worth_a_look(b"grpid=1\\nPID=7 x\\nloss 2 (step 4)\\n\\nserver gn7 (10.0.0.7) up\\nsent to @gn7:30001")
    {8, 33, 58}
    """
    low, found = head.lower(), set()
    for word in (*HEAD_WORDS, *HEAD_BEGINNINGS):
        at = low.find(word)
        while at >= 0:
            if word in HEAD_WORDS or not at or low[at - 1] not in WORD_BYTES:
                found.add(low.rfind(b"\n", 0, at) + 1)
                at = low.find(b"\n", at)  # no further look at this line
                if at < 0:
                    break
            at = low.find(word, at + 1)
    return found | {low.rfind(b"\n", 0, m.start()) + 1 for shape in HEAD_SHAPES for m in shape.finditer(low)}


def _all(line: Line, raw: str) -> list[Sighting]:
    low = raw.lower()
    return [*hosts.sight(line, raw, low), *workers.sight(line, low), *devices.sight(line, raw, low), *parallel.sight(line.text, low)]


def _key(sighting: Sighting) -> tuple:
    return (sighting[0], *sorted((k, str(v)) for k, v in sighting[1].items()))


def _line(data: bytes, at: int) -> bytes:
    end = data.find(b"\n", at, at + BEFORE + AFTER)
    return data[at : end if end >= 0 else at + BEFORE + AFTER]


def _around(source: Source, size: int, offsets: list[int], head: bytes) -> list[tuple[int, bytes]]:
    """The line of each hit with its offset; of a line that is longer than what is looked at, the part around the hit."""
    lines: list[tuple[int, bytes]] = []
    behind = 0  # where the last line ends
    with ranges(source) as read:
        for offset in offsets:
            if offset < behind:
                continue
            start = max(behind, offset - BEFORE)
            data = head[start : offset + AFTER] if offset + AFTER <= len(head) or len(head) >= size else read(start, offset + AFTER - start)
            near = offset - start
            begin = data.rfind(b"\n", 0, near) + 1
            end = data.find(b"\n", near)
            end = end if end >= 0 else len(data)
            behind = start + end
            lines.append((start + begin, data[begin:end]))
    return lines
