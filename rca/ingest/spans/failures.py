"""What a noted span says went wrong: the kind of event, its words, and who was called.

A caller's span tells how its call ended (refused, timed out, answered with an error); what broke stands in the callee's. The exception that a span
carries is read like any traceback, so that the same exception in a log is the same event.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest import generic
from rca.ingest.signatures import Signature, best
from rca.ingest.spans.table import CALLS, ERROR, SERVER, UNSET, failed_grpc, failed_http, failed_tag, grpc_number
from rca.taxonomy import Kind

TIMED_OUT = re.compile(r"time[d_ -]{0,2}out|deadline|超时|etimedout", re.I)
REFUSED = re.compile(r"refused|econnrefused|errno 111|all connection attempts failed|拒绝", re.I)
NO_ANSWER = re.compile(r"no (?:answer|response|reply)|reset|econnreset|broken pipe|disconnect|unavailable|unreachable|closed|eof", re.I)
#: Words of the caller itself: whatever status stands beside them, it had no answer.
GAVE_UP = re.compile(r"client[ -]time|no (?:answer|response|reply)|deadline exceeded|did not respond|not responding", re.I)
STOPS = re.compile(r"(?:^|[/._ -])(?:stop|shutdown|cleanup|terminate|kill|destroy)", re.I)
#: Calls by which one stage hands over to the next: an event, or the memory of a device.
HANDS_OVER = re.compile(
    r"notify|(?:^|[/._ -])events?(?:$|[/._ -])|hand_?(?:over|off)|(?:rollout|train|stage|step|generation)[._ -]?(?:start|end|begin|finish)(?:$|[/._ -])"
    r"|(?:release|resume)_memory|(?:^|[/._ -])(?:sleep|wake_?up|offload|onload)(?:$|[/._ -])",
    re.I,
)
SAVES = frozenset({"save", "latest_recover_save", "periodic_recover_save"})
BARE = re.compile(r"\s*(?:error|failed|internal(?: server error)?|\d{3}|unknown|exception|status_code_error)?\s*", re.I)
SERVICE_END = re.compile(r"[-_. ]?(?:workers?|servers?|service|process|group)$", re.I)


def failed(note: dict[str, Any]) -> bool:
    """Whether the span failed: by its status, or where that is not set by what else it says."""
    if note["status"] != UNSET:
        return note["status"] == ERROR
    own = note["fields"]
    if failed_http(own.get("http"), note["kind"]) or failed_grpc(own.get("grpc")) or failed_tag(own.get("error")):
        return True
    return bool(note["end"] is not None and exceptions(note))


def exceptions(note: dict[str, Any]) -> list[tuple[int | None, dict[str, Any]]]:
    """The exceptions that a span recorded, in order: its events, and its own fields in the form of tags."""
    found = [(ns, fields) for ns, _, fields in note["events"] if "exception_type" in fields or "exception_message" in fields or "stack" in fields]
    own = note["fields"]
    if not found and ("exception_type" in own or "exception_message" in own or "stack" in own):
        found.append((None, own))
    return found


def calls(note: dict[str, Any]) -> bool:
    """Whether the span is a caller's."""
    return note["kind"] in CALLS or (note["peer"] != 0 and note["kind"] != SERVER)


def said(note: dict[str, Any]) -> str:
    """All that a span says of its failure, in one text."""
    own = note["fields"]
    words = [note["message"], str(own.get("message", "")), str(own["error"]) if isinstance(own.get("error"), str) and own["error"].lower() not in ("true", "error") else ""]
    words += [str(fields.get(name, "")) for _, fields in exceptions(note) for name in ("exception_type", "exception_message")]
    return " ".join(dict.fromkeys(w for w in words if w))[:2000]


def of_call(note: dict[str, Any], stage: str | None) -> tuple[Kind, str]:
    """The kind of a caller's failure, and how the call ended in words."""
    own, words, name = note["fields"], said(note), note["name"]
    code, status = grpc_number(own.get("grpc")), own.get("http")
    late = bool(TIMED_OUT.search(words)) or code == 4 or status in (408, 504)
    refused = bool(REFUSED.search(words))
    answered = (type(status) is int and status >= 400 and status not in (408, 502, 503, 504)) or (code is not None and code not in (0, 4, 14))
    answered = answered and not GAVE_UP.search(words)
    if answered:
        how = f"answered with {status if type(status) is int and status >= 400 else f'status {code}'}"
    elif late:
        seconds = round((note["end"] - note["start"]) / 1e9, 1) if note["end"] and note["start"] else None
        how = f"timed out after {seconds} s" if seconds is not None else "timed out"
    elif refused:
        how = "connection refused"
    else:
        how = "was not answered" if NO_ANSWER.search(words) or status == 0 else "failed"
    if STOPS.search(name):
        return Kind.STOP_FAILED, how
    if HANDS_OVER.search(name) and not answered:
        return Kind.EVENT_LOST, how
    if stage in SAVES:
        return Kind.SAVE_FAILED, how
    if answered:
        return Kind.RPC_ERROR_REPLY, how
    return (Kind.RPC_TIMEOUT if late else Kind.RPC_REFUSED if refused else Kind.RPC_FAILED), how


def of_work(note: dict[str, Any], stage: str | None, signatures: list[Signature]) -> tuple[Kind, str, dict[str, Any]]:
    """The kind of a failure inside a process, its text, and what its words tell besides; see `of_call` for calls."""
    raised = exceptions(note)
    if raised:
        _, fields = raised[-1]
        kind_of_exception, message = str(fields.get("exception_type", "")), str(fields.get("exception_message", ""))
        text = f"{kind_of_exception}: {message}" if kind_of_exception and message else kind_of_exception or message or str(fields.get("stack", "")).strip().rsplit("\n", 1)[-1]
        return (*_meant(text, signatures, Kind.EXCEPTION), {"exception": kind_of_exception.rsplit(".", 1)[-1] or None})  # type: ignore[return-value]
    words = said(note)
    if BARE.fullmatch(words):
        if stage in SAVES:
            return Kind.SAVE_FAILED, f"{note['name']} failed", {}
        return (Kind.RPC_ERROR_REPLY if note["kind"] == SERVER else Kind.LOGGED_ERROR), f"{note['name']} failed", {"bare_status": True}
    kind, text = _meant(words, signatures, Kind.LOGGED_ERROR)
    if kind is Kind.LOGGED_ERROR and (TIMED_OUT.search(words) or GAVE_UP.search(words)):
        kind = Kind.RPC_TIMEOUT
    bare = note["kind"] == SERVER and kind in (Kind.LOGGED_ERROR, Kind.RPC_TIMEOUT, Kind.RPC_FAILED)  # what its caller says better
    return kind, f"{note['name']} failed: {text}", {"bare_status": True} if bare else {}


def _meant(text: str, signatures: list[Signature], otherwise: Kind) -> tuple[Kind, str]:
    """The kind that a signature or plain words give to a text."""
    if hit := best(text, signatures):
        return Kind(hit[0].kind), text
    sense = generic.meaning(text, "error")
    return (Kind(sense.kind) if sense else otherwise), text


def named(process: dict[str, Any]) -> str | None:
    """What a process is called: its role or service, with its index among those of its role.

    >>> named({"service": "rollout-worker", "worker": 3}), named({"worker": "rollout/9"}), named({"service": "unknown_service:python"}), named({"service": "trainer", "rank": 3})
    ('rollout/3', 'rollout/9', None, 'trainer')
    """
    index, base = process.get("worker"), process.get("role") or process.get("service")
    if isinstance(index, str) and not index.isdecimal():
        return index[:80]
    if not isinstance(base, str) or not base or base.lower().startswith("unknown_service"):
        return None
    base = SERVICE_END.sub("", base)[:80] or base[:80]
    return f"{base}/{index}" if index is not None else base
