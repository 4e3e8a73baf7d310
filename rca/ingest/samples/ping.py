"""`ping -D`: one line per answer; what is missing in the sequence was lost. The subject is the host that was asked.

Source: iputils ping(8).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> table = Table(SAMPLE.splitlines()[0], (1, 0, ""), found)
>>> [table.feed(line.split("] ", 1)[-1], (2, 0, line)) for line in SAMPLE.splitlines()[1:]]
[True, True, True]
>>> [(r[1], r[3], r[4]) for r in found.rows()]
[('gn0089', 'net.rtt_ms', 0.157), ('gn0089', 'net.rtt_ms', 612.0), ('gn0089', 'net.ping_lost', 0.0), ('gn0089', 'net.ping_lost', 2.0), ('gn0089', 'net.loss_percent', 12.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

SAMPLE = """\
PING gn0089 (10.29.150.89) 56(84) bytes of data.
[1794572383.722687] 64 bytes from 10.29.150.89: icmp_seq=1 ttl=63 time=0.157 ms
[1794572412.468223] 64 bytes from 10.29.150.89: icmp_seq=4 ttl=63 time=612 ms
100 packets transmitted, 88 received, 12% packet loss, time 9907ms"""

START = re.compile(r"PING (?P<host>[\w.:-]{1,100}) ?\((?P<address>[\d.a-fA-F:]{3,50})\)|\d{1,6} bytes from [\w.: ()-]{3,160}: icmp_seq=")
ANSWER = re.compile(r"\d{1,6} bytes from (?:(?P<host>[A-Za-z][\w.-]{0,100}) \()?(?P<address>[\d.a-fA-F:]{3,50}?)\)?: icmp_seq=(?P<seq>\d{1,9}).{0,40}?time=(?P<ms>[\d.]{1,12}) ?ms")
SUMMARY = re.compile(r"(?P<sent>\d{1,9}) packets transmitted, (?P<got>\d{1,9}) (?:packets )?received,(?: \+\d+ \w+,)? (?P<loss>[\d.]{1,6})% packet loss")
UNANSWERED = re.compile(r"no answer yet for icmp_seq=(\d{1,9})")
SEQ_TURN = 30_000  # the number has 16 bits and begins anew
NOISE = ("no answer yet", "From ", "Request timeout", "---", "rtt ", "round-trip", "ping: ", "64 bytes", "^C")


class Table:
    """The answers of one host."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.host, self.address = found, None, None
        self.lost, self.seq = 0, 0 if text.startswith("PING ") else 1 << 40
        if match := START.match(text):
            self.host, self.address = match["host"], match["address"]
            if self.host and self.address and self.host != self.address:
                found.addresses[self.address] = self.host
        self.feed(text, at)

    def feed(self, text: str, at: At) -> bool:
        """Take an answer, a notice or the summary."""
        if match := ANSWER.match(text):
            host = self.host if self.host and match["address"] in (self.address, None) else match["host"] or self.host or match["address"]
            self.found.add("rtt_ms", match["ms"], at, host=host)
            seq = int(match["seq"])
            self.lost += max(0, seq - self.seq - 1) if 0 < seq - self.seq < SEQ_TURN else 0
            self.seq = seq
            self.found.add("ping_lost", float(self.lost), at, host=host)
            return True
        if match := SUMMARY.match(text):
            self.found.add("loss_percent", match["loss"], at, host=self.host or self.address)
            return True
        if match := UNANSWERED.match(text):
            self.found.add("ping_lost", float(self.lost + max(0, int(match[1]) - self.seq) if int(match[1]) - self.seq < SEQ_TURN else self.lost), at, host=self.host or self.address)
            return True
        return not text or text.startswith(NOISE) or text.startswith("PING ")
