"""Renderers of what machines recorded. One file per family with `FORMS`: functions that write the family of all hosts in one tool's grammar.

A form is `form(rec: Recorder) -> None`. The recorder knows where this run keeps its files, how often it was sampled, and what is lost.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

from coupling.simulate.world import Host, World

PLACES = ("{host}/{name}", "{family}/{host}.{name}", "telemetry/{host}/{name}", "nodes/{host}/{name}", "collected/{host}_{name}", "{family}/{name}.{host}")
SAMPLES = 110  # about so many samples a host: enough to see a change, small enough to read


class Recorder:
    """The run folder as seen by the renderers of one family."""

    def __init__(self, w: World, files: dict[str, list[str]], family: str) -> None:
        self.w, self.files, self.family, self.rng = w, files, family, w.rng
        self.place = PLACES[w.seed % len(PLACES)]
        span = w.end - w.start
        self.every = next((s for s in (10, 15, 30, 60, 120, 300) if span / s <= SAMPLES), 600)

    def hosts(self) -> list[Host]:
        """Hosts of which this family was kept."""
        return [h for h in self.w.hosts if (self.family, h) not in self.w.lost]

    def file(self, host: Host, name: str) -> list[str]:
        return self.files.setdefault(self.place.format(host=host.name.split(".")[0], name=name, family=self.family), [])

    def shared(self, name: str) -> list[str]:
        return self.files.setdefault(name, [])

    def times(self, phase: float = 0.0, every: float | None = None) -> Iterator[float]:
        t = self.w.start - 120 + phase
        while t < self.w.end + 60:
            yield t
            t += every or self.every

    def days(self, host: Host) -> Iterator[tuple[str, list[float]]]:
        """(day of the month, times) for tools that begin a new file at midnight."""
        for day, times in itertools.groupby(self.times(), key=lambda t: self.local(host, t, "%d")):
            yield day, list(times)

    def value(self, name: str, host: Host, subject: str, t: float) -> float:
        return self.w.series(name, host, subject).at(t, self.rng)

    def local(self, host: Host, t: float, shape: str) -> str:
        """The host's own clock in its zone."""
        return time.strftime(shape, time.gmtime(host.clock(t) + self.w.tz))

    def nics(self, host: Host) -> list[str]:
        """Network devices: those that something happened to, and one more."""
        touched = {s for (_, h, s) in self.w.series_of if h is host and s.startswith("eth")}
        return sorted(touched | {"eth0"})

    def ports(self, host: Host) -> list[str]:
        return [f"mlx5_{i}" for i in range(host.gpus)]

    # Prometheus in its two carriers.

    def prom_json(self, name: str, rows: list[tuple[str, dict[str, str], str, Host, str]]) -> None:
        """One range query per file: rows are (metric, labels, series, host, subject). Prometheus' own clock is the true one."""
        result = []
        for metric, labels, series, host, subject in rows:
            values = [[round(t, 3), _number(self.value(series, host, subject, t))] for t in self.times()]
            result.append({"metric": {"__name__": metric, **labels}, "values": values})
        self.shared(f"metrics/{name}").append(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))

    def scrapes(self, host: Host, name: str, rows: list[tuple[str, str, str, str]], every: float) -> None:
        """The exporter's text, fetched again and again into one file with the time in between; rows are (metric, labels, series, subject)."""
        lines = self.file(host, name)
        kinds = {m: ("counter" if self.w.series(s, host, sub).counter else "gauge") for m, _, s, sub in rows}
        for t in self.times(self.rng.uniform(0, 20), every):
            lines.append(f"# scraped {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(host.clock(t)))}")
            last = ""
            for metric, labels, series, subject in rows:
                if metric != last:
                    lines.append(f"# TYPE {metric} {kinds[metric]}")
                    last = metric
                braces = "{" + labels + "}" if labels else ""
                lines.append(f"{metric}{braces} {_number(self.value(series, host, subject, t))}")


def _number(v: float) -> str:
    return str(int(v)) if v == int(v) and abs(v) < 1e15 else f"{v:.6g}"
