"""Ask a Prometheus server for the counters of the run's time (`--prometheus URL`), with nothing but the standard library.

Everything is bounded: the window by the run's own times, the points by the step, the hosts by the run's host names where the server knows many, the bytes
and the seconds by constants. A server that cannot be asked at all is an `RcaError`; what is missing from its answers is stated as the reading's reason.
Source: prometheus.io/docs/prometheus/latest/querying/api.
"""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from rca.errors import RcaError
from rca.ingest.samples import prometheus_json
from rca.ingest.samples._collect import Samples
from rca.ingest.samples._labels import host_of
from rca.ingest.samples._names import table
from rca.model import Reading

WAIT_S, TOTAL_S = 20.0, 90.0
ANSWER_BYTES = 64 << 20
POINTS, STEP_S = 600, 15
BEFORE_S, AFTER_S, LONGEST_S = 1800, 300, 14 * 86400
NAMES_AT_ONCE = 12
HOSTS_ALL = 64  # so many hosts of a server are asked for without a filter
FIRST_NS, LAST_NS = 94_694_400 * 10**9, 4_102_444_800 * 10**9
EXPORTED = re.compile(r"(?:dcgm_|node_|container_|process_resident|machine_|up$)")
PROBES = ("up", "node_load1", "node_boot_time_seconds", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS")


def fetch(url: str, readings: list[Reading]) -> list[Reading]:
    """A reading per answer of the server about the time and the hosts of these readings. Raises RcaError where the server cannot be asked."""
    window = run_window(readings)
    if window is None:
        return [_reading(_shown(url), Samples(_shown(url)), 0, "the logs state no date, so the server could not be asked for their time")]
    start, end, zoned = window
    return ask(url, start, end, hosts=_hosts(readings), note="" if zoned else "the logs state no zone; the server was asked for their times as UTC")


def run_window(readings: list[Reading]) -> tuple[float, float, bool] | None:
    """From the first to the last dated line of the job's logs, in seconds since 1970, and whether a zone is stated; None without any date."""
    spans: dict[bool, list[float]] = {True: [], False: []}
    for reading in readings:
        if reading.facts.get("measured"):
            continue
        for info in reading.facts.get("streams", {}).values():
            ends = [m[0] for m in (info.get("first"), info.get("last")) if m and m[0] is not None and FIRST_NS <= m[0] < LAST_NS]
            spans[bool(reading.facts.get("zoned"))] += [ns / 1e9 for ns in ends]
    known = spans[True] or spans[False]
    return (min(known), max(known), bool(spans[True])) if known else None


def _hosts(readings: list[Reading]) -> set[str]:
    """Names that hosts of the run may have, in lower case: what lines say, and the folders and words of file names."""
    found: set[str] = set()
    for reading in readings:
        for info in reading.facts.get("streams", {}).values():
            found |= {h for h in (info.get("host"), (info.get("facts") or {}).get("host")) if h}
        found |= {e.host for e in reading.events if e.host}
        found |= {w for w in re.split(r"[/.]|[_](?=\w*\d)", reading.source)[:40] if re.search(r"[a-zA-Z].*\d|\d.*[a-zA-Z]", w)}
    return {h.lower() for h in found} | {h.split(".", 1)[0].lower() for h in found if h[:1].isalpha()}


def ask(url: str, start: float, end: float, *, hosts: set[str] | None = None, note: str = "") -> list[Reading]:
    """The known quantities between two times (seconds since 1970), of all hosts or, where the server knows many, of these."""
    base, headers = _address(url)
    gaps = [note] if note else []
    if end - start > LONGEST_S:
        start, _ = end - LONGEST_S, gaps.append("the run is longer than two weeks: only its end was asked for")
    start, end = start - BEFORE_S, end + AFTER_S
    until = time.monotonic() + TOTAL_S
    told = _json(_get(f"{base}/api/v1/series", {"match[]": f'{{__name__=~"{"|".join(PROBES)}"}}', "start": f"{start:.0f}", "end": f"{end:.0f}"}, headers), base)
    known = [series for series in told.get("data") or [] if isinstance(series, dict)]
    instances = {str(s["instance"]): host_of({str(k): str(v) for k, v in s.items()}) or str(s["instance"]) for s in known if s.get("instance")}
    chosen = _chosen(instances, hosts or set(), gaps)
    if not known:
        gaps.append("the server holds none of the known counters for the time of the run")
    step = max(STEP_S, int((end - start) / POINTS) + 1)
    printed = sorted({name for name in table() if EXPORTED.match(name)})
    out: list[Reading] = []
    for at in range(0, len(printed) if known else 0, NAMES_AT_ONCE):
        if time.monotonic() > until:
            gaps.append(f"the server was too slow: {len(printed) - at} of {len(printed)} counters were not asked for")
            break
        names = "|".join(printed[at : at + NAMES_AT_ONCE])
        where = f',instance=~"{chosen}"' if chosen else ""
        asked = {"query": f'{{__name__=~"(?i:{names})"{where}}}', "start": f"{start:.0f}", "end": f"{end:.0f}", "step": str(step)}
        try:
            data = _get(f"{base}/api/v1/query_range", asked, headers)
        except RcaError as error:
            gaps.append(str(error))
            continue
        found = Samples(f"{base}/api/v1/query_range?{urlencode({'query': asked['query']})}", "prometheus_live")
        prometheus_json.read(data, 0, 1, found)
        if len(data) >= ANSWER_BYTES:
            found.gap("an answer was longer than is read")
        if not found.empty or found.gaps:
            out.append(_reading(found.name, found, len(data), "; ".join(sorted(found.gaps))))
    return [*out, _reading(base, Samples(base), 0, "; ".join(dict.fromkeys(gaps)))] if gaps or not out else out


def _chosen(instances: dict[str, str], hosts: set[str], gaps: list[str]) -> str:
    """A pattern for the scraped addresses that belong to the run; empty where all are asked for."""
    if len(instances) <= HOSTS_ALL:
        return ""
    mine = sorted(i for i, host in instances.items() if host.lower() in hosts or host.split(".", 1)[0].lower() in hosts or i.rpartition(":")[0].lower() in hosts)
    if not mine:
        gaps.append(f"the server knows {len(instances)} hosts and none by a name that the logs use: the first {HOSTS_ALL} were asked for")
        mine = sorted(instances)[:HOSTS_ALL]
    return "|".join(re.sub(r"([^\w:-])", r"\\\\\1", i) for i in mine[:2000])


def _address(url: str) -> tuple[str, dict[str, str]]:
    """The server's address without a name and password, and the headers that carry them."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RcaError(f"not a URL of a Prometheus server: `{_shown(url)}`", hint="for instance `--prometheus http://prometheus:9090`")
    headers = {"Accept": "application/json"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return _shown(url), headers


def _shown(url: str) -> str:
    """A URL as it may be printed: without a password, query and the API's own path."""
    parts = urlsplit(url.strip())
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], re.sub(r"/(?:api/v1.*|graph)?$", "", parts.path), "", ""))


def _get(address: str, asked: dict[str, str], headers: dict[str, str]) -> bytes:
    """One answer, cut at a bound. Raises RcaError."""
    base = address.partition("/api/")[0]
    request = Request(address, data=urlencode(asked).encode(), headers=headers | {"Content-Type": "application/x-www-form-urlencoded"}, method="POST")
    began = time.monotonic()
    try:
        with urlopen(request, timeout=WAIT_S) as answer:
            parts, size = [], 0
            while size < ANSWER_BYTES and (part := answer.read(min(1 << 20, ANSWER_BYTES - size))):
                parts.append(part)
                size += len(part)
                if time.monotonic() - began > TOTAL_S:
                    raise TimeoutError
            return b"".join(parts)
    except HTTPError as error:
        said = _said(error)
        raise RcaError(f"the Prometheus server at `{base}` refused the question: {error.code} {said}", hint=_hint(error.code)) from None
    except TimeoutError:
        raise RcaError(f"the Prometheus server at `{base}` did not answer within {WAIT_S:.0f} s", hint="is it reachable from here?") from None
    except URLError as error:
        reason = str(getattr(error.reason, "strerror", None) or error.reason)
        if isinstance(error.reason, TimeoutError):
            reason = f"no answer within {WAIT_S:.0f} s"
        raise RcaError(f"cannot reach a Prometheus server at `{base}`: {reason[:160].lower()}", hint="is the address right, and reachable from here?") from None
    except (OSError, ValueError) as error:
        raise RcaError(f"cannot read from the Prometheus server at `{base}`: {str(error)[:160]}") from None
    except Exception as error:  # http.client's errors have no base of their own that is public
        if type(error).__module__ != "http.client":
            raise
        raise RcaError(f"`{base}` does not answer like a Prometheus server: {type(error).__name__}") from None


def _said(error: HTTPError) -> str:
    """What the server itself says about a refusal."""
    try:
        return str(json.loads(error.read(4096)).get("error", ""))[:200]
    except (ValueError, AttributeError, OSError):
        return str(error.reason)[:80]


def _hint(code: int) -> str | None:
    return {401: "give a name and password: `http://NAME:PASSWORD@host:9090`", 403: "give a name and password: `http://NAME:PASSWORD@host:9090`",
            404: "is there a path before `/api/v1`? give it with the URL"}.get(code)  # fmt: skip


def _json(data: bytes, base: str) -> dict[str, Any]:
    """An answer as a document. Raises RcaError where it is none of Prometheus."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or "status" not in told:
        raise RcaError(f"`{base}` does not answer like a Prometheus server", hint="give the address that serves `/api/v1/query`")
    if told["status"] != "success":
        raise RcaError(f"the Prometheus server at `{base}` refused the question: {str(told.get('error', ''))[:200]}")
    return told


def _reading(name: str, found: Samples, size: int, gaps: str) -> Reading:
    facts = {"streams": {}, "samples": found.rows(), "zoned": True, "measured": {"server_clock": True, "addresses": found.addresses, "gaps": gaps}}
    return Reading(name, "prometheus_live", size, size, 0, 0, gaps or None, facts=facts)
