"""Several lines in one: behind carriage returns, and where another process's line begins."""

from __future__ import annotations

import pytest

from rca.ingest.line import parse, pieces

MARK = "[rank0]:[E1118 20:32:23.955028747 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one line", ["one line"]),
        ("windows\r", ["windows"]),
        ("\r\r", [""]),
        (" 5%|#  | 1/20\r 10%|## | 2/20", [" 10%|## | 2/20"]),
        (" 5%|#  | 1/20\rsaved\r 10%|## | 2/20", ["saved", " 10%|## | 2/20"]),
        (f" 10%|## | 2/20 [00:01<00:09, 19.11s/it]{MARK}", [" 10%|## | 2/20 [00:01<00:09, 19.11s/it]", MARK]),
        (f"[default0]: 10%|## | 2/20\r 15%|## | 3/20{MARK}", ["[default0]: 15%|## | 3/20", f"[default0]:{MARK}"]),
        (f"{MARK} failed {MARK}", [f"{MARK} failed ", MARK]),
        (f"0: {MARK}", [f"0: {MARK}"]),
        ("(W pid=3) [rank3]: Traceback (most recent call last):", ["(W pid=3) [rank3]: Traceback (most recent call last):"]),
        ("(W pid=3) ERROR 05-19 13:26:50 [x.py:9] Traceback (most recent call last): [repeated 14x across cluster]",) * 2,
        ("Dec 03 10:22:16 [rank0]: Traceback (most recent call last):",) * 2,
        ("[2025-12-08 18:37:35 TP0] Scheduler hit an exception: Traceback (most recent call last):",) * 2,
        ('{"level": "error", "message": "failed\\nTraceback (most recent call last):\\n  File"}',) * 2,
        (" 3/20 [00:01, 2it/s]Traceback (most recent call last):", [" 3/20 [00:01, 2it/s]", "Traceback (most recent call last):"]),
        (" 3/20 [00:01, 2it/s]h1:12:13 [0] misc/x.cc:50 NCCL WARN boom", [" 3/20 [00:01, 2it/s]", "h1:12:13 [0] misc/x.cc:50 NCCL WARN boom"]),
        (" 3/20 [00:01, 2it/s]slurmstepd: error: *** JOB 1", [" 3/20 [00:01, 2it/s]", "slurmstepd: error: *** JOB 1"]),
        ("run with NCCL_DEBUG=WARN for NCCL WARN lines",) * 2,
    ],
)  # fmt: skip
def test_pieces(text, expected):
    """Lines glued together by progress bars come apart where a strong marker begins, and keep their wrappers."""
    assert pieces(text) == ([expected] if isinstance(expected, str) else expected)


def test_last_piece_is_what_parse_reads():
    """A line with carriage returns is what stood on the screen at the end."""
    assert parse(" 5%|# | 1/20\r2026-11-20 11:32:06 ERROR boom\r").level == "error"
