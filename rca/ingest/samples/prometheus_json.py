"""Answers of the Prometheus HTTP API: instant and range queries, pretty or on one line, several in one file, cut or not.

The bytes are searched for series and not loaded as a document: an export may be large, cut off, or several answers one behind the other, and the
address of every value is wanted. Source: prometheus.io/docs/prometheus/latest/querying/api ("Expression query result formats").

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> read(SAMPLE.encode(), 0, 1, found)
>>> [(row[0], row[1], row[3], row[4]) for row in found.rows()]
[(1435781430781000000, 'h7', 'gpu.xid', 0.0), (1435781445781000000, 'h7', 'gpu.xid', 79.0)]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rca.ingest.samples._collect import POINTS_MAX, Samples
from rca.ingest.samples._labels import address_of, host_of, subject_of
from rca.ingest.samples._names import table

SAMPLE = """{"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"__name__":"DCGM_FI_DEV_XID_ERRORS","Hostname":"h7","gpu":"0"},"values":[[1435781430.781,"0"],[1435781445.781,"79"]]}]}}"""

HEAD = re.compile(rb'\s{0,40}\[?\s{0,40}\{(?=[^\0]{0,3000}"(?:resultType|metric|errorType|activeTargets)")')
METRIC = re.compile(rb'"metric"\s{0,40}:\s{0,40}(\{(?:[^{}"]|"(?:[^"\\]|\\.){0,4000}"){0,4000}\})')
VALUES = re.compile(rb'"(values?|histograms?)"\s{0,40}:\s{0,40}\[')
PAIR = re.compile(rb'\[\s{0,40}([-+\d.eE]{1,30})\s{0,40},\s{0,40}(?:"([^"]{0,60})"|([-+\w.]{1,40}))\s{0,40}\]')
ERROR = re.compile(rb'"status"\s{0,9}:\s{0,9}"error"[^\0]{0,600}?"error"\s{0,9}:\s{0,9}"((?:[^"\\]|\\.){0,300})')
WARNINGS = re.compile(rb'"warnings"\s{0,9}:\s{0,9}\[\s{0,9}"((?:[^"\\]|\\.){1,200})')
FIRST_S, LAST_S = 1e9, 4.1e9


def opens(head: bytes) -> bool:
    """Whether a file begins like such an answer."""
    return HEAD.match(head) is not None


def read(data: bytes, start: int, line: int | None, found: Samples) -> None:
    """Take the samples of `data`, which begins at offset `start` and, where that is known, line `line` of its file."""
    found.server_clock = found.zoned = True
    if failed := ERROR.search(data[:4000]):
        found.gap(f"the server answered with an error: {failed[1].decode('utf-8', 'replace')[:160]}")
    if warned := WARNINGS.search(data[-4000:]):
        found.gap(f"the server warned: {warned[1].decode('utf-8', 'replace')[:160]}")
    names, counted = table(), 0
    ends = [m.start() for m in METRIC.finditer(data)]
    for index, begin in enumerate(ends):
        metric = METRIC.match(data, begin)
        stop = ends[index + 1] if index + 1 < len(ends) else len(data)
        if metric is None:
            continue
        try:
            labels = {str(k): str(v) for k, v in json.loads(metric[1]).items()}
        except (ValueError, AttributeError, RecursionError):
            found.gap("series whose labels do not parse")
            continue
        printed = labels.get("__name__")
        if printed is None:
            found.gap("series without a name")
            continue
        if printed.lower() not in names:
            continue
        opened = VALUES.search(data, metric.end(), stop)
        if opened is None:
            found.gap("series that are cut off")
            continue
        if opened[1].startswith(b"hist"):
            found.gap("native histograms")
            continue
        host, subject = host_of(labels), subject_of(labels)
        if host and (address := address_of(labels)) and address != host:
            found.addresses[address] = host
        counted_to = 0
        if line is not None:
            line += data.count(b"\n", counted, begin)
            counted = counted_to = begin
        at_line, pairs = line, list(PAIR.finditer(data, opened.end() - (opened[1] == b"value"), stop))
        for pair in _telling(pairs):
            if at_line is not None:
                at_line += data.count(b"\n", counted_to, pair.start())
                counted_to = pair.start()
            second = _second(pair[1])
            value = (pair[2] if pair[2] is not None else pair[3]).decode("ascii", "replace")
            if second is None or (pair[2] is None and value.strip("-+.0123456789eE") != ""):
                found.gap("values of a wrong type")
                continue
            raw = data[pair.start() : pair.end()].decode("ascii", "replace")
            found.add(printed, value, (at_line, start + pair.start(), raw), subject, ns=second, host=host)
        if not pairs:
            found.gap("series without values")
    tail = data.rstrip()[-1:]
    if tail not in (b"}", b"]"):
        found.gap("the file is cut off")
    found.understood += len(data)


def _telling(pairs: list[re.Match[bytes]]) -> Iterator[re.Match[bytes]]:
    """The pairs worth a look: the ends of each run of one value, and of a long series that never rests every n-th."""
    stride, last, waiting = max(1, len(pairs) // POINTS_MAX), b"", None
    for index, pair in enumerate(pairs):
        value = pair[2]
        if value is not None and value == last:
            waiting = pair
        elif waiting is not None or index % stride == 0:
            if waiting is not None:
                yield waiting
            yield pair
            waiting, last = None, value or b""
    if waiting is not None:
        yield waiting
    elif pairs and (len(pairs) - 1) % stride:
        yield pairs[-1]


def _second(text: bytes) -> int | None:
    """Nanoseconds of a time in seconds since 1970."""
    try:
        value = float(text)
    except ValueError:
        return None
    return round(value * 1000) * 1_000_000 if FIRST_S <= value < LAST_S else None
