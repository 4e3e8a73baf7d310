"""Forks children that write spans and events in four threads and acknowledge each over a pipe once the call has returned, and kills each at a random point.

    python killed.py FOLDER KILLS SEED [ring]

Child number i records into FOLDER/i; what it acknowledged stands in FOLDER/i/acks: `S id`, `E id` and `V number`, and `O id` for a span that it never ends. Every fourth
child has room for so little that it goes from segment to segment.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import threading
import time

from rca import trace_inject as rt

ALIVE = 8  # children at one time
LIVES_S = (0.02, 0.2)
SMALL_BYTES = 64 << 10
RING_BYTES = 2 << 20


def child(folder: str, small: bool, ring: bool, acks: int) -> None:
    """Record until somebody kills us."""
    rt.install(folder, role="train", rank=0, size_max=SMALL_BYTES if small else RING_BYTES if ring else None, ring=ring)

    def work(thread: int) -> None:
        chance = random.Random(thread + os.getpid())
        with rt.span(f"open-{thread}") as outer:
            os.write(acks, f"O {outer.key}\n".encode())
            number = 0
            while True:
                number += 1
                with rt.span("inner", number=number, text="x" * chance.choice((0, 10, 2000))) as span:
                    os.write(acks, f"S {span.key}\n".encode())
                    rt.event("passed", mark=f"{thread}.{number}")
                    os.write(acks, f"V {thread}.{number}\n".encode())
                os.write(acks, f"E {span.key}\n".encode())
                if chance.random() < 0.2:
                    time.sleep(chance.random() / 1000)

    for thread in range(4):
        threading.Thread(target=work, args=(thread,), daemon=True).start()
    time.sleep(60)
    os._exit(9)


def main(folder: str, kills: int, seed: int, ring: bool) -> None:
    """Fork and kill."""
    chance = random.Random(seed)
    alive: dict[int, tuple[int, float, int]] = {}  # end of the pipe -> (pid, when to kill, file of acknowledgements)
    begun = 0
    while begun < kills or alive:
        while begun < kills and len(alive) < ALIVE:
            here = os.path.join(folder, str(begun))
            os.makedirs(here)
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    child(here, begun % 4 == 3, ring, writer)
                finally:
                    os._exit(8)
            os.close(writer)
            alive[reader] = (pid, time.monotonic() + chance.uniform(*LIVES_S), os.open(os.path.join(here, "acks"), os.O_CREAT | os.O_WRONLY))
            begun += 1
        ready, _, _ = select.select(list(alive), [], [], 0.002)
        now = time.monotonic()
        for reader, (pid, until, _) in list(alive.items()):
            if now > until:
                os.kill(pid, signal.SIGKILL)
                alive[reader] = (pid, float("inf"), alive[reader][2])
        for reader in ready:
            data = os.read(reader, 1 << 16)
            pid, _, acks = alive[reader]
            if data:
                os.write(acks, data)
                continue
            del alive[reader]
            os.close(reader)
            os.close(acks)
            _, status = os.waitpid(pid, 0)
            if status != signal.SIGKILL:
                raise SystemExit(f"a child ended with {status} before it was killed")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["ring"])
