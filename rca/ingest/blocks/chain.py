"""Which exception of a chain says what happened: the oldest that a signature knows and that is no victim's.

What a DataLoader worker raised comes before its wrapper. A signature of a very high priority knows what the whole chain means, wherever it
stands in it ("this is a pointer file" after "invalid load key").
"""

from __future__ import annotations

import re

from rca.ingest.blocks.traceback import Raised
from rca.ingest.signatures import Signature, best, framed
from rca.taxonomy import VICTIM_KINDS, Kind

FINAL = 5
#: What is raised because something else was, and exceptions that only say that somebody waited for another process.
WRAPPERS = frozenset({Kind.ACTOR_DIED, Kind.AGENT_REPORT, Kind.RPC_ERROR_REPLY})
STOPPING = re.compile(r"(?:^|_)(?:stop|kill|shutdown|terminate|clean_?up)(?:_|$)", re.I)  # names of functions that a request was sent from
TRANSPORT = frozenset({Kind.RPC_TIMEOUT, Kind.RPC_REFUSED, Kind.RPC_FAILED})
WAITED = re.compile(r"(?:^|\.)(?:Empty|Full|Again|\w*Timeout\w*|\w*Cancelled\w*|EOFError|\w*Connect\w*|\w*Disconnect\w*|BrokenPipeError|OSError|error|\w*Exit|StopAsyncIteration|StopIteration|\w*Rendezvous|\w*RpcError|HTTP\w*|\w*(?:Died|Dead)\w*)$", re.I)


def speaker(chain: list[Raised], lines: list[tuple]) -> tuple[Raised, tuple[Signature, re.Match[str]] | None]:
    """The exception that names the event, and its signature; the oldest one and None where no signature knows any.

    `lines` are the `(address, text, signatures)` of the block's lines.
    """
    found = [*{s.id: s for _, _, sigs in lines for s in sigs}.values(), *framed()]
    known = []
    for raised in sorted(chain, key=lambda r: not r.worker):
        low = raised.text.lower()
        stack = [f"{f.file} {f.function}" for f in raised.frames]
        match = best(raised.text, [s for s in found if any(w.lower() in low for w in s.literals)], stack)
        if match and match[0].severity != "info":
            known.append((match[0].priority < FINAL, match[0].kind in VICTIM_KINDS, len(known), raised, match))
    if not known:
        return chain[0], None
    *_, raised, match = min(known, key=lambda k: k[:3])
    if match[0].kind in TRANSPORT and any(STOPPING.search(frame.function) for frame in raised.frames):
        stops = [k[-2:] for k in known if k[-1][0].kind == Kind.STOP_FAILED]
        return stops[0] if stops else (raised, match)  # what was asked for when nobody answered: to stop
    if match[0].kind in WRAPPERS and (first := chain[0]) is not raised and not WAITED.search(first.type):
        return first, None  # "the engine died" is no more than a report of what was raised before
    return raised, match
