"""A controller with two rollout workers and one trainer behind HTTP, with the evidence that explains its next failure.

python examples/http_workers/main.py --steps 3
"""

import argparse
import asyncio
import logging
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import requests

from rca import trace_inject as rt

log = logging.getLogger("controller")
ROWS = 16


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(role, rank, timeout):
    """A worker as a child process: its address, and the process."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("worker.py")), role, str(rank), str(port), str(timeout)]
    return f"http://127.0.0.1:{port}", subprocess.Popen(command, env=rt.environment())


def wait_until_up(url):
    for _ in range(300):
        try:
            return httpx.get(f"{url}/health", timeout=2)
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError(f"{url} does not come up")


async def rollout(workers, step, timeout):
    """The batches of all rollout workers, asked at once."""
    async with httpx.AsyncClient(timeout=timeout) as client:
        answers = await asyncio.gather(*(client.post(f"{url}/generate", params={"step": step}) for url in workers.values()))
    for rank, answer in enumerate(answers):
        answer.raise_for_status()
        rt.handoff("rollout_batch", answer.content, key=f"rollout-{rank}-{step}", received=True)
    return b"".join(answer.content for answer in answers)


def announce(session, workers, step, timeout):
    """Tell everybody that the rollout of a step is complete."""
    event = rt.emit_event("rollout_done", receivers=list(workers))
    rt.deliver(event, lambda name: session.post(f"{workers[name]}/event", json={"event": event, "step": step}, timeout=timeout).raise_for_status(), list(workers))


def train(session, url, batch, step, timeout):
    rt.handoff("train_batch", batch, key=f"train-0-{step}", to="train/0")
    answer = session.post(f"{url}/train", params={"step": step}, data=batch, timeout=timeout)
    answer.raise_for_status()
    return answer.json()["loss"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=10, help="of a request, in seconds")
    parser.add_argument("--workers", nargs=3, metavar="URL", help="two rollout workers and a trainer that run already")
    args = parser.parse_args()

    rt.install(role="controller")  # records to RCA_TRACE_DIR; the workers inherit it
    logging.basicConfig(level=logging.INFO)
    rt.stamp_logs()
    started = [] if args.workers else [start("rollout", 0, args.timeout), start("rollout", 1, args.timeout), start("train", 0, args.timeout)]
    try:
        workers = dict(zip(["rollout/0", "rollout/1", "train/0"], args.workers or [url for url, _ in started]))
        for url in workers.values():
            wait_until_up(url)
        rt.trace_httpx()  # from here on every request is a span, and carries its place
        session = requests.Session()
        rt.trace_requests(session)
        for step in range(args.steps):
            with rt.step(step):
                with rt.stage("rollout"), rt.request():
                    batch = asyncio.run(rollout({n: u for n, u in workers.items() if n.startswith("rollout")}, step, args.timeout))
                announce(session, workers, step, args.timeout)
                with rt.stage("train"), rt.request():
                    loss = train(session, workers["train/0"], batch, step, args.timeout + 2)
                log.info("step %d loss %.3f", step, loss)
        log.info("finished")
    finally:
        for _, process in started:
            process.terminate()


if __name__ == "__main__":
    main()
