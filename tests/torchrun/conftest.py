"""Only the tests are collected here: the other modules run as scripts or need torch, and hold no doctests."""

collect_ignore = ["faults.py", "harness.py", "record.py", "trainer.py"]
