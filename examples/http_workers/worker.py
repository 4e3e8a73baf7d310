"""One worker behind HTTP: `rollout` makes batches, `train` uses them. Started by main.py, or as `python worker.py rollout 0 8101`."""

import asyncio
import logging
import sys
from array import array

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response

from rca import trace_inject as rt

ROWS, TOKENS = 16, 8
role, rank, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
wait_s = float(sys.argv[4]) if len(sys.argv) > 4 else 10.0

rt.install(role=role, rank=rank)
logging.basicConfig(level=logging.INFO)
rt.stamp_logs()
log = logging.getLogger(f"{role}/{rank}")
app = FastAPI()
app.add_middleware(rt.TraceMiddleware)  # a span for every request, in the trace of the controller
arrived = {}  # step -> event that its rollout is complete


@app.get("/health")
async def health():
    return {"ok": True}


@app.post("/generate")
async def generate(step: int):
    """A batch of token ids, as bytes."""
    with rt.stage("rollout"):
        await asyncio.sleep(0.3)
        batch = array("i", [(rank * 1000 + step * 100 + i) % 32_000 for i in range(ROWS * TOKENS)])
        rt.handoff("rollout_batch", batch.tobytes(), key=f"rollout-{rank}-{step}", to="controller", rows=ROWS)
        return Response(batch.tobytes(), media_type="application/octet-stream")


@app.post("/event")
async def event(body: dict):
    """An event of the controller. Acted on, then acknowledged."""
    arrived.setdefault(body["step"], asyncio.Event()).set()
    rt.ack_event(body["event"])
    return {"ok": True}


@app.post("/train")
async def train(step: int, request: Request):
    """One step of training; begins when the event has come that the rollout is complete."""
    with rt.stage("train"):
        data = await request.body()
        rt.handoff("train_batch", data, key=f"train-{rank}-{step}", received=True)
        try:
            await asyncio.wait_for(arrived.setdefault(step, asyncio.Event()).wait(), wait_s)
        except TimeoutError:
            log.error("no rollout_done of step %d after %.0f s, cannot start", step, wait_s)
            raise HTTPException(504, f"no rollout_done of step {step}") from None
        tokens = array("i", data)
        await asyncio.sleep(0.2)
        log.info("step %d trained on %d rows", step, len(tokens) // TOKENS)
        return {"loss": 1.0 / (step + 1)}


if __name__ == "__main__":
    log.info("listening on 127.0.0.1:%d", port)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
