"""Whom an event is about, and whether one event can have brought about another on a different machine.

An event about a callee is told by its caller: its place is the worker that it names (`attrs["about"]`, filled by identity), not the teller.
"""

from __future__ import annotations

import re

from rca.model import Event

SECOND_NS = 10**9
SAME_HOST_NS = 3 * SECOND_NS  # whole seconds, and lines that wait in buffers
APART_NS = 120 * SECOND_NS  # clocks of two hosts that nothing ties together
HALF_HOUR_NS = 1800 * SECOND_NS
ZONE_SLACK_NS = 150 * SECOND_NS
NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w.]\d)")


def host_of(event: Event) -> str | None:
    """The host that the event is about."""
    about = event.attrs.get("about") or {}
    return about.get("host") or (None if about else event.host)


def role_of(event: Event) -> str | None:
    """The role of the worker that the event is about."""
    return (event.attrs.get("about") or {}).get("role") or event.role


def about_host(event: Event, host: str | None) -> bool | None:
    """Whether an event concerns a host; None where it does not say whom it concerns.

    One event may stand for many that were folded: it concerns every host of the folded ones.
    """
    hosts = {host_of(event), *(event.attrs.get("hosts") or ())} - {None}
    return None if host is None or not hosts else host in hosts


def follows(cause: Event, effect: Event) -> bool:
    """Whether `effect` may come after `cause`: by place in one file, by step, by time as far as the clocks agree."""
    if cause.source is not None and cause.source == effect.source and not cause.also and not effect.also:
        return cause.offset < effect.offset
    if cause.attempt is not None and effect.attempt is not None and cause.attempt > effect.attempt:
        return False
    # A worker that has not yet printed anything of its step still counts the last one.
    if cause.step is not None and effect.step is not None and cause.step > effect.step + 1 and (cause.attempt or 0) >= (effect.attempt or 0):
        return effect.stage in ("recover", "load")  # a restart goes back to an earlier step
    if cause.time_ns is None or effect.time_ns is None:
        return True
    late = cause.time_ns - effect.time_ns - cause.time_error_ns - effect.time_error_ns
    if late <= (SAME_HOST_NS if cause.host is not None and cause.host == effect.host else APART_NS):
        return True
    if cause.attrs.get("inherited") and cause.source != effect.source and cause.step is not None and cause.step == effect.step and late > HALF_HOUR_NS:
        return True  # a time that is only that of a line above, hours off its own step: in a zone that nobody states
    # A kernel's local time whose zone nobody states: whole half hours tell nothing.
    rest = late % HALF_HOUR_NS
    return cause.time_assumed and cause.source != effect.source and late <= 14 * 2 * HALF_HOUR_NS and min(rest, HALF_HOUR_NS - rest) <= ZONE_SLACK_NS


def lasting(cause: Event) -> bool:
    """Whether a fault counts: neither another job's or boot's, nor over before anybody missed it."""
    return not (cause.attrs.get("outside") or cause.attrs.get("recovered") or cause.attrs.get("foreign"))


def numbers(text: str) -> set[int]:
    """The whole numbers of a message.

    >>> sorted(numbers("The size of tensor a (256) must match tensor b (198) at dimension 0"))
    [0, 198, 256]
    """
    return {int(n) for n in NUMBER.findall(text)}
