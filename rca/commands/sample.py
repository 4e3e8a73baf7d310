"""`rca sample`: record counters of this host and its devices beside a job."""

import os
from typing import Any

from rca.console import say
from rca.given import OK

HELP = """Record counters of this host and its devices beside a job: GPUs (needs nvidia-ml-py), RDMA ports, disks, NFS, memory, control groups, TCP.

They go to a journal of their own in FOLDER, else `RCA_TRACE_DIR`, else where `rca.trace_inject` writes by default; `rca analyze` reads them with the job's logs. Start one
on each host, with the folder of the trainer's journals: whose memory and control groups are watched is learned from those. It ends on SIGINT and SIGTERM.

\b
Examples:
  rca sample -o run/trace & torchrun ... ; kill %1
  rca sample --once -o run/trace

Exit codes: 0 ended, 2 wrong usage, 4 nothing could be written.
"""
#: Variables that say which rank a process is: this one is none.
RANKS = ("RCA_RANK", "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID")


def add(cli: Any) -> None:
    """Give the command to the app."""
    from typing import Annotated

    import typer

    Interval = Annotated[float, typer.Option("--interval", metavar="S", help="Seconds from one sample to the next.", min=0.05)]
    Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FOLDER", help="Where the journal goes.", show_default=False)]
    Once = Annotated[bool, typer.Option("--once", help="One sample, and end.")]

    @cli.command(help=HELP)
    def sample(interval: Interval = 1.0, output: Output = None, once: Once = False) -> int:
        return run(interval, output, once)


def run(interval: float, output: str | None, once: bool = False) -> int:
    """Sample until a signal says that it is enough; gives the exit code."""
    import signal
    import threading

    from rca.report.write import CannotWrite
    from rca.trace_inject import recorder, sampler

    for name in RANKS:
        os.environ.pop(name, None)
    os.environ.pop(recorder.OFF, None)
    journal = recorder.start(output, {"role": "sampler"}, ring=False)
    if journal is None:
        raise CannotWrite("recording is switched off")
    found = sampler.Sampler(folder=journal.folder)
    found.sample()
    if journal.fd < 0:
        raise CannotWrite(f"cannot write to `{journal.folder}`")
    say(f"sampling to {journal.folder}")
    if not once:
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        if not ended.wait(interval):
            sampler.run(found, interval, ended)
    recorder.stop()  # and no record that it ended in order, which would speak of the job
    return OK
