"""Ray's structured events: one JSON object a line under `events/`, whose label says what happened and whose fields say to whom.

`host_name` is the writer's; a node that was removed stands in `custom_fields`.

>>> import json
>>> line = read(json.loads(SAMPLE))
>>> line.text, line.level, line.host, line.pid, line.actor
('RAY_NODE_REMOVED: the node missed its health checks', 'error', '10.0.0.3', None, 'gcs')
>>> read({"label": "x", "source_type": "shop", "severity": "INFO"})

Source: ray src/ray/util/event.cc, python/ray/_private/event/event_logger.py.
"""

from __future__ import annotations

from typing import Any

from rca.ingest.formats import Line
from rca.ingest.formats.fields import moment
from rca.ingest.formats.words import level

SAMPLE = """{"custom_fields":{"ip":"10.0.0.3","node_id":"ab12"},"event_id":"9f","host_name":"head-1","label":"RAY_NODE_REMOVED",\
"message":"the node missed its health checks","pid":"65","severity":"ERROR","source_type":"GCS","timestamp":1750669108}"""
KEYS = ("label", "source_type", "severity", "event_id")
LONGEST = 4000


def read(record: dict[str, Any]) -> Line | None:
    """Read such an event; None for any other object."""
    if not all(isinstance(record.get(key), str) for key in KEYS):
        return None
    custom = record.get("custom_fields")
    custom = custom if isinstance(custom, dict) else {}
    victim = next((custom[k] for k in ("ip", "node_ip", "node_ip_address") if isinstance(custom.get(k), str) and custom[k]), None)
    writer = record.get("host_name")
    pid = str(record.get("pid", ""))
    label, message = record["label"], str(record.get("message", ""))[:LONGEST]
    return Line(
        f"{label}: {message}" if label else message, moment(record.get("timestamp")), level(record["severity"]),
        host=victim or (writer if isinstance(writer, str) and writer else None), pid=int(pid) if pid.isdecimal() and not victim and len(pid) < 10 else None,
        actor=record["source_type"].lower(), shape="ray_event", prefixed=True,
    )  # fmt: skip
