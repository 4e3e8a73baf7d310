"""A small trainer whose surroundings are hostile: `python hostile.py FOLDER CASE [MORE]`. It prints how many records it asked for, and ends with 7.

Each case is a function of this file. None may raise, and the exit code is the program's own.
"""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

from rca import trace_inject as rt
from rca.trace_inject import guard, otel, recorder  # what `install` imports, while files can be opened

CODE = 7
asked = 0
RETRY_S = 1.05
NOBODY = 65534


def work(spans: int = 50) -> None:
    """Three records for each span."""
    global asked
    for number in range(spans):
        with rt.span("work", number=number, text="x" * 300):
            rt.event("passed")
        asked += 3


def recovered() -> None:
    """Wait until it is time to try again, then record."""
    time.sleep(RETRY_S)
    work()


def install(folder: str) -> None:
    """Recording on."""
    rt.install(folder, role="train", rank=0)


def full(folder: str, mount: str) -> None:
    """The disk is full for a while."""
    install(folder)
    work()
    filler = os.open(os.path.join(mount, "filler"), os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(filler, b"x" * 4096)
    except OSError:
        work(200)
    os.truncate(filler, 0)
    recovered()


def read_only(folder: str, mount: str) -> None:
    """The file system is mounted read-only until later."""
    install(folder)
    work()
    subprocess.run(["mount", "-o", "remount,rw", mount], check=True)
    recovered()


def not_allowed(folder: str, *_: str) -> None:
    """The folder is somebody else's; we are nobody."""
    os.makedirs(folder, 0o500)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    install(folder)
    work()


def error(folder: str, *_: str) -> None:
    """Somebody outside makes some writes fail."""
    install(folder)
    work(100)
    recovered()


def closed(folder: str, mine: str) -> None:
    """All descriptors are closed, and files of the program's own opened."""
    install(folder)
    work()
    os.closerange(3, 4096)
    files = [open(os.path.join(mine, str(number)), "w") for number in range(100)]  # noqa: SIM115
    for file in files:
        work(2)
        file.write("mine\n")
        file.flush()
    recovered()


def handed_on(folder: str, mine: str) -> None:
    """Our descriptor is closed, and its number is given to a file of the program's own: what the first record behind it may do is the limit of what can be known."""
    install(folder)
    work()
    journal = recorder.journal
    assert journal is not None
    time.sleep(0.1)
    ours = open(os.path.join(mine, "0"), "w")  # noqa: SIM115
    os.close(journal.fd)
    journal.fd = -1  # as after any write that failed
    os.dup2(ours.fileno(), journal._file)
    ours.write("mine\n")
    ours.flush()
    work()
    recovered()


def size_limit(folder: str, *_: str) -> None:
    """No file may grow beyond 64 KiB."""
    install(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
    work(1000)


def deleted(folder: str, *_: str) -> None:
    """Somebody cleans up."""
    install(folder)
    with rt.span("around"):
        work()
        shutil.rmtree(folder)
        recovered()
        work()


def no_descriptors(folder: str, *_: str) -> None:
    """Every descriptor is taken until later."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        install(folder)
    work()
    for fd in taken:
        os.close(fd)
    recovered()


def limit_lowered(folder: str, *_: str) -> None:
    """Our descriptor has a number that may not be given any more, and then the file is deleted."""
    install(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    shutil.rmtree(folder)
    recovered()
    shutil.rmtree(folder)
    recovered()


def in_the_way(folder: str, *_: str) -> None:
    """Where our folder should be there is a file."""
    with open(folder, "w") as file:
        file.write("not yours\n")
    install(folder)
    work()
    os.unlink(folder)
    recovered()


def pipe(folder: str, *_: str) -> None:
    """Where our file should be there is a pipe that nobody reads."""
    os.makedirs(folder, exist_ok=True)
    from rca.trace_inject import identity

    os.mkfifo(os.path.join(folder, identity.file_name(identity.describe("train", 0))))
    install(folder)
    work()


class Late:
    """Records when it is taken apart."""

    def __del__(self) -> None:
        with rt.span("del"):
            rt.event("passed")


def shutdown(folder: str, *_: str) -> None:
    """Spans at exit, in destructors, and in threads that nobody waits for."""
    install(folder)
    atexit.register(work)
    sys.modules["late"] = Late()  # type: ignore[assignment]
    sys.last_one = Late()  # type: ignore[attr-defined]
    for _ in range(4):
        threading.Thread(target=lambda: [work() for _ in range(10_000)], daemon=True).start()
    time.sleep(0.05)


def left(folder: str, *_: str) -> None:
    """`os._exit` in the midst of spans."""
    install(folder)
    with rt.step(1), rt.span("open"):
        work()
        print(asked)
        sys.stdout.flush()
        os._exit(CODE)


def replaced(folder: str, *_: str) -> None:
    """`exec` in the midst of spans, into a program that records as well, under the same pid."""
    install(folder)
    with rt.step(1), rt.span("open"):
        work()
        print(asked)
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-c", f"from rca import trace_inject as rt\nwith rt.span('after'): pass\nraise SystemExit({CODE})"])


def raised(folder: str, *_: str) -> None:
    """An exception of the program's own is what it would be without us."""
    install(folder)
    with rt.step(1), rt.span("open"):
        raise SystemExit(CODE)


def main(folder: str, case: str, *more: str) -> Any:
    """Run one case."""
    try:
        globals()[case](folder, *more)
    finally:
        assert guard.faults == [] and otel, guard.faults
    print(asked)
    sys.stdout.flush()
    sys.exit(CODE)


if __name__ == "__main__":
    main(*sys.argv[1:])
