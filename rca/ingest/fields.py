"""What the named groups of a signature mean: columns of an event, or attributes; signals and numbers in every spelling."""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.blocks.engine_error import stage_of_sub_error
from rca.ingest.blocks.remote import stage_of_method
from rca.ingest.signatures import Signature

COLUMNS = {"path", "pid", "rank", "local_rank", "host", "gpu", "bus_id", "nic", "step", "stage", "group"}
NUMBERS = {"pid", "rank", "local_rank", "gpu", "step", "exitcode", "signal"}
#: Signals by every spelling that shells, kernels, schedulers and Python give them.
SIGNALS = {
    2: ("SIGINT", "INT", "INTERRUPT"), 1: ("SIGHUP", "HUP", "HANGUP"), 3: ("SIGQUIT", "QUIT"), 4: ("SIGILL", "ILL", "ILLEGAL INSTRUCTION"),
    6: ("SIGABRT", "ABRT", "ABORTED"), 7: ("SIGBUS", "BUS", "BUS ERROR"), 8: ("SIGFPE", "FPE", "FLOATING POINT EXCEPTION"), 9: ("SIGKILL", "KILL", "KILLED"),
    11: ("SIGSEGV", "SEGV", "SEGMENTATION FAULT"), 15: ("SIGTERM", "TERM", "TERMINATED"),
}  # fmt: skip
SIGNAL_NAMES = {name: number for number, names in SIGNALS.items() for name in names}


def fields_of(hit: tuple[Signature, re.Match], attrs: dict[str, Any]) -> dict[str, Any]:
    """Named groups of a match: columns of the event, or attributes."""
    signature, match = hit
    fields: dict[str, Any] = {}
    for name, value in match.groupdict().items():
        if value is None:
            continue
        number: Any = value
        if name.endswith("pid") and (digits := re.match(r"\d+", value)):
            number = int(digits[0])
        elif name in NUMBERS or name.endswith("signal"):
            number = SIGNAL_NAMES.get(value.replace("Signals.", "").rstrip(".").strip().upper()) if not value.lstrip("-").isdecimal() else int(value)
        if name in COLUMNS and not (name in ("rank", "host", "local_rank") and signature.rank_of):
            fields[name] = number
        else:
            attrs[f"{signature.rank_of}_{name}" if signature.rank_of and name in COLUMNS else name] = number
    if "victim" in attrs:
        attrs["how"] = "ended"  # nothing but the end of that process is told
    called = attrs.get("method") or str(attrs.get("url") or attrs.get("endpoint") or "").rstrip("/'\"").rpartition("/")[2]
    called = called if called.isidentifier() else None
    if "stage" not in fields and (stage := stage_of_method(called) or stage_of_sub_error(attrs.get("sub_error"))):
        fields["stage"] = stage
    return fields
