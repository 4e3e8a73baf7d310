"""Times in every form that loggers, kernels and schedulers print."""

import datetime
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rca.ingest import times
from rca.ingest.times import boot, epoch, iso, klog, of, read

HALF_S, HALF_MS, HALF_US = 500_000_000, 500_000, 500

#: text, the time, half of the resolution, has a year, has a zone
FORMS = [
    ("2026-11-20 11:32:10,216", "2026-11-20T11:32:10.216000000", HALF_MS, True, False),
    ("2026-11-20 11:32:10.216", "2026-11-20T11:32:10.216000000", HALF_MS, True, False),
    ("2026-11-20 11:32:10", "2026-11-20T11:32:10.000000000", HALF_S, True, False),
    ("2026-11-20_11:32:10", "2026-11-20T11:32:10.000000000", HALF_S, True, False),
    ("2026/11/20 11:24:10.123", "2026-11-20T11:24:10.123000000", HALF_MS, True, False),
    ("2026-11-20T11:24:10,907925+00:00", "2026-11-20T11:24:10.907925000", HALF_US, True, True),
    ("2026-11-20T11:24:10.5Z", "2026-11-20T11:24:10.500000000", 50_000_000, True, True),
    ("2026-09-14T20:30:27-0400", "2026-09-15T00:30:27.000000000", HALF_S, True, True),
    ("2026-09-14T20:30:27+05:30", "2026-09-14T15:00:27.000000000", HALF_S, True, True),
    ("2026-09-14 20:30:27 UTC", "2026-09-14T20:30:27.000000000", HALF_S, True, True),
    ("2025-07-03T14:20:51.565839352Z", "2025-07-03T14:20:51.565839352", 0, True, True),
    ("2024-02-29 23:59:60", "2024-03-01T00:00:00.000000000", HALF_S, True, False),
    ("20261120-11:49:29.471", "2026-11-20T11:49:29.471000000", HALF_MS, True, False),
    ("20261120 11:49:29", "2026-11-20T11:49:29.000000000", HALF_S, True, False),
    ("11/20/2026 11:35:37", "2026-11-20T11:35:37.000000000", HALF_S, True, False),
    ("20/11/2026 11:35:37", "2026-11-20T11:35:37.000000000", HALF_S, True, False),
    ("11/20/26 11:35:37", "2026-11-20T11:35:37.000000000", HALF_S, True, False),
    ("26/11/20 11:35:37", "2026-11-20T11:35:37.000000000", HALF_S, True, False),
    ("11-20 11:48:58", "1972-11-20T11:48:58.000000000", HALF_S, False, False),
    ("02-29 00:00:00", "1972-02-29T00:00:00.000000000", HALF_S, False, False),
    ("Fri Nov 20 11:24:10 2026", "2026-11-20T11:24:10.000000000", HALF_S, True, False),
    ("Sun Aug  9 19:03:21 2026", "2026-08-09T19:03:21.000000000", HALF_S, True, False),
    ("Fri Nov 20 11:24:10 UTC 2026", "2026-11-20T11:24:10.000000000", HALF_S, True, True),
    ("Fri Nov 20 11:24:10 CST 2026", "2026-11-20T11:24:10.000000000", HALF_S, True, False),
    ("Tue, 06 Oct 2026 23:09:29 +0800", "2026-10-06T15:09:29.000000000", HALF_S, True, True),
    ("Jan 30 2026 11:58:43", "2026-01-30T11:58:43.000000000", HALF_S, True, False),
    ("Feb 14 05:03:41", "1972-02-14T05:03:41.000000000", HALF_S, False, False),
    ("Sep 14 20:30:27.123456", "1972-09-14T20:30:27.123456000", HALF_US, False, False),
    ("april 24 20:30:27", "1972-04-24T20:30:27.000000000", HALF_S, False, False),
    ("5月 27 20:30:27", "1972-05-27T20:30:27.000000000", HALF_S, False, False),
    ("1792197898.558", "2026-10-17T00:44:58.558000000", HALF_MS, True, True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected", "error_ns", "has_year", "has_zone"), FORMS, ids=[f[0] for f in FORMS])
def test_form(text, expected, error_ns, has_year, has_zone):
    """Every known form gives the stated wall clock, its resolution, and what it leaves open."""
    stamp = of(text)
    assert (iso(stamp), stamp.error_ns, stamp.has_year, stamp.has_zone, stamp.boot) == (expected, error_ns, has_year, has_zone, False)


@pytest.mark.parametrize("text", [f[0] for f in FORMS if "月" not in f[0] and "april" not in f[0]])
def test_forms_are_found_in_a_line(text):
    """The pattern that headers use takes each form from its first to its last character."""
    assert read(f"[{text}] x", 1) == (of(text), len(text) + 1)


@pytest.mark.parametrize(
    "text",
    ["", "step", "01:41:58", "2026-13-01 00:00:00", "2026-02-30 00:00:00", "2026-11-20 24:00:00", "2026-11-20", "0000-01-01 00:00:00",
     "2026-11-20 11:60:00", "1484973334", "3.14", "Now 20 11:24:10", "99/99/2026 11:00:00", "2026-11-20 11:32:10,", "２０２６-11-20 11:32:10"],
)  # fmt: skip
def test_no_time(text):
    """Text that is no time, or no time of a known day, gives none; nothing is guessed and nothing raised."""
    assert of(text) is None


@pytest.mark.parametrize(
    ("monthday", "clock", "expected", "error_ns"),
    [
        ("321", "20:32:23.955028747", "1972-03-21T20:32:23.955028747", 0),  # torch C++ does not pad
        ("0321", "20:57:27.620000", "1972-03-21T20:57:27.620000000", HALF_MS),  # torch Python pads and prints milliseconds
        ("1206", "20:57:27.620001", "1972-12-06T20:57:27.620001000", HALF_US),
        ("1015", "08:55:15", "1972-10-15T08:55:15.000000000", HALF_S),
    ],
)
def test_klog(monthday, clock, expected, error_ns):
    """Month and day may be padded or not."""
    stamp = klog(monthday, clock)
    assert (iso(stamp), stamp.error_ns, stamp.has_year) == (expected, error_ns, False)


def test_klog_of_no_date():
    """A number that is no month and day is no time."""
    assert klog("999", "11:00:00.000") is None
    assert klog("0000", "00:00:00.000000") is None


@pytest.mark.parametrize(
    ("value", "ns", "error_ns"),
    [
        (1792197898, 1792197898_000_000_000, HALF_S),
        (1792197898.5, 1792197898_500_000_000, 50_000_000),
        ("1792197898558", 1792197898_558_000_000, HALF_MS),
        ("1792197898558123", 1792197898_558_123_000, HALF_US),
        (1792197898558123456, 1792197898_558_123_456, 0),
    ],
)
def test_epoch(value, ns, error_ns):
    """The unit of a number since 1970 follows from its size."""
    assert epoch(value)[:2] == (ns, error_ns)


@pytest.mark.parametrize("value", [0, -1, 12, 999_999_999, 10**30, "x", "", "1e9", float("nan"), float("inf"), "-1792197898"])
def test_no_epoch(value):
    """Numbers outside of our century are no times."""
    assert epoch(value) is None


def test_boot():
    """Seconds since the start of the kernel are kept apart from wall clocks."""
    assert boot("12345.678901") == times.Stamp(12345_678_901_000, 500, False, False, True)
    assert boot("x") is None


def test_zone_of_the_machine_does_not_matter(monkeypatch):
    """Neither the zone nor the clock of the analyzing machine enters."""
    before = [of(f[0]) for f in FORMS]
    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    time.tzset()
    times._second.cache_clear()
    times._named.cache_clear()
    try:
        assert [of(f[0]) for f in FORMS] == before
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.datetimes(min_value=datetime.datetime(2001, 9, 10), max_value=datetime.datetime(2099, 12, 31)))
def test_agrees_with_datetime(moment):
    """Our arithmetic is that of the standard library."""
    moment = moment.replace(tzinfo=datetime.UTC)
    whole = int((moment.replace(microsecond=0) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds())
    ns = whole * 1_000_000_000 + moment.microsecond * 1000
    assert of(moment.strftime("%Y-%m-%d %H:%M:%S.%f")).ns == ns
    assert of(moment.strftime("%m/%d/%Y %H:%M:%S")).ns == whole * 1_000_000_000
    assert of(moment.isoformat(timespec="microseconds")).ns == ns


@given(st.one_of(st.text(), st.text(alphabet="0123456789-/:., TZ+JanMonUTC月")))
def test_never_raises(text):
    """Any text at all is either a time or none."""
    of(text)
    read(text)
    epoch(text)
    boot(text)
    klog(text, text)
