"""What the kernel says in several lines is one event."""

from __future__ import annotations

from pathlib import Path

import rca

HUNG = """\
[Fri Apr 17 15:58:27 2026] INFO: task python3:193448 blocked for more than 120 seconds.
[Fri Apr 17 15:58:27 2026] task:python3         state:D stack:    0 pid:193448 ppid:     1 flags:0x00004002
[Fri Apr 17 15:58:27 2026]  Call Trace:
[Fri Apr 17 15:58:27 2026]   io_schedule+0x46/0x80
{inside}
[Fri Apr 17 15:58:27 2026]   exc_page_fault+0x8a/0x190
"""
SWAP = "[Fri Apr 17 15:58:27 2026]   swap_readpage+0x1f0/0x280\n[Fri Apr 17 15:58:27 2026]   do_swap_page+0x5b1/0x9e0"
NFS = "[Fri Apr 17 15:58:27 2026]   rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]\n[Fri Apr 17 15:58:27 2026]   nfs_wait_on_request+0x2b/0x50 [nfs]"


def kinds(folder: Path, text: str) -> list[str]:
    """The kinds of events of one kernel log."""
    (folder / "dmesg-n1.log").write_text(text)
    return [str(e.kind) for e in rca.analyze(folder).run.events]


def test_a_task_that_waits_for_swap_waits_for_no_file(tmp_path: Path) -> None:
    """The stack below the report tells; its functions are no statements of their own."""
    assert kinds(tmp_path, HUNG.format(inside=SWAP)) == ["host.swaps"]
    assert kinds(tmp_path, HUNG.format(inside=NFS)) == ["host.hung_task"]
