"""A small real DDP training job on gloo, meant to be broken.

It learns the class of short feature vectors that it reads from JSON-lines shards (one shard per rank), saves and resumes
checkpoints, evaluates, and speaks in one of five log styles. Nothing is simulated: with `--fault` one rank really raises,
really dereferences null, really eats memory. Faults that come from outside (signals, mounts, limits) need no flag.
The analyzer never sees the flags: they are hidden from `--help` and never logged.

Shapes: B = batch, H = history (`--history`, else no such axis), F = features (16), C = classes (4).
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import io
import json
import logging
import math
import os
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FEATURES = 16
CLASSES = 4
SAVE_CHUNK_BYTES = 64 * 1024
LOG = logging.getLogger("pretrain")


# --- speaking -----------------------------------------------------------------------------------------------------------


class Style(logging.Formatter):
    """Render a message, and the fields of a step, the way one of five kinds of trainers does."""

    def __init__(self, style: str, rank: int, world: int) -> None:
        super().__init__()
        self.style, self.rank, self.world = style, rank, world

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        text = record.getMessage()
        if record.exc_info and self.style != "json":
            text += "\n" + self.formatException(record.exc_info)
        if self.style != "json" and fields:
            text = getattr(self, f"_{self.style}_step")(fields)
        now = datetime.fromtimestamp(record.created)
        level = record.levelname
        if self.style == "asctime":
            return f"{now:%Y-%m-%d %H:%M:%S},{int(record.msecs):03d} {level:<7} worker {self.rank}/{self.world} ({record.funcName}) {text}"
        if self.style == "bracket":
            return f"[{now:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}][{level[0]}][pid={record.process}][rank={self.rank}] {text}"
        if self.style == "loguru":
            place = f"__main__:{record.funcName}:{record.lineno}"
            return f"{now:%Y-%m-%d %H:%M:%S}.{int(record.msecs):03d} | {level:<8} | {place} - R{self.rank} {text}"
        if self.style == "json":
            utc = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
            row = {"ts": utc, "level": level.lower(), "rank": self.rank, "pid": record.process, "event": record.getMessage(), **fields}
            if record.exc_info:
                row["exc"] = self.formatException(record.exc_info)
            return json.dumps(row)
        return f"[{self.rank}] {text}"

    def _asctime_step(self, f: dict) -> str:
        return f"it {f['step']:>4}/{f['total']} | loss {f['loss']:.4f} | gnorm {f['grad_norm']:.3f} | lr {f['lr']:.1e} | {f['seconds'] * 1000:.0f} ms"

    def _bracket_step(self, f: dict) -> str:
        return f"train: step={f['step']} total={f['total']} loss={f['loss']:.5g} grad_norm={f['grad_norm']:.4g} step_s={f['seconds']:.3f}"

    def _loguru_step(self, f: dict) -> str:
        return f"Step {f['step']}/{f['total']}: loss={f['loss']:.4f}, lr={f['lr']:.2e}, {1 / max(f['seconds'], 1e-6):.1f} it/s"

    def _print_step(self, f: dict) -> str:
        return f"step {f['step']} loss {f['loss']:.4f} ({f['seconds']:.2f}s)"


def start_logging(args: argparse.Namespace, rank: int, world: int) -> None:
    """Log to stderr (stdout for `print`), and to one file per rank where a log folder is given."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout if args.log_style == "print" else sys.stderr)]
    if args.log_dir:
        Path(args.log_dir).mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(Path(args.log_dir) / args.log_file.format(rank=rank)))
    for handler in handlers:
        handler.setFormatter(Style(args.log_style, rank, world))
        LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)


# --- data ---------------------------------------------------------------------------------------------------------------


class Shard(Dataset):
    """One JSON-lines shard; a line is parsed when it is asked for, in a loader worker if there are any."""

    def __init__(self, path: Path, history: int, pid_dir: Path | None) -> None:
        self.path, self.history, self.pid_dir = path, history, pid_dir
        self.lines = path.read_bytes().splitlines()

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            note(self.pid_dir, f"loader{worker.id}.of.{os.getppid()}", os.getpid())
        row = json.loads(self.lines[index])
        x = torch.tensor(row["x"], dtype=torch.float32)
        return (x.repeat(self.history, 1) if self.history else x), row["y"]


def batches(args: argparse.Namespace, rank: int, start: int):
    """Yield (step, x [B, F] or [B, H, F], y [B]) from step `start` on, over and over the shard."""
    path = Path(args.data_dir) / f"part-{rank:03d}.jsonl"
    shard = Shard(path, args.history, control(args))
    LOG.info("dataset part %s has %d examples", path, len(shard))
    loader = DataLoader(shard, batch_size=args.batch_size, num_workers=args.workers, drop_last=True, prefetch_factor=2 if args.workers else None)
    step = start
    while True:
        for x, y in loader:
            step += 1
            yield step, x, y


# --- signs of life for the one who breaks things --------------------------------------------------------------------------


def control(args: argparse.Namespace) -> Path | None:
    return Path(args.control_dir) if args.control_dir else None


def note(folder: Path | None, name: str, value: int) -> None:
    """Leave a number where the test harness looks for it (pids to signal, the step reached). Not part of the job's logs."""
    if folder:
        (folder / name).write_text(str(value))


# --- checkpoints ----------------------------------------------------------------------------------------------------------


def checkpoint_path(args: argparse.Namespace, step: int) -> Path:
    return Path(args.ckpt_dir) / f"iter_{step:06d}.ckpt"


def save_checkpoint(args: argparse.Namespace, step: int, model: torch.nn.Module, optimizer: Adam) -> None:
    """Write the state of rank 0; other ranks wait in the barrier that follows."""
    path = checkpoint_path(args, step)
    LOG.info("saving checkpoint at step %d to %s", step, path)
    began = time.monotonic()
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with open(path, "wb") as file:
        if args.save_mb_per_s is None:
            torch.save(state, file)
        else:
            trickle(state, file, args.save_mb_per_s)
        file.flush()
        os.fsync(file.fileno())
    LOG.info("saved checkpoint %s (%d bytes, %.2fs)", path, path.stat().st_size, time.monotonic() - began)


def trickle(state: dict, file, mb_per_s: float) -> None:
    """Write at a bounded rate, so that saving does not starve the data loader of the same disk."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    view = buffer.getbuffer()
    for at in range(0, len(view), SAVE_CHUNK_BYTES):
        file.write(view[at : at + SAVE_CHUNK_BYTES])
        file.flush()
        time.sleep(SAVE_CHUNK_BYTES / (mb_per_s * 1e6))


def resume(args: argparse.Namespace, model: torch.nn.Module, optimizer: Adam) -> int:
    """Load the newest checkpoint, and return its step; 0 where there is none."""
    found = sorted(Path(args.ckpt_dir).glob("iter_*.ckpt"))
    if not found:
        LOG.info("no checkpoint under %s, training from scratch", args.ckpt_dir)
        return 0
    LOG.info("resuming from checkpoint %s", found[-1])
    state = torch.load(found[-1], map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    LOG.info("resumed at step %d", state["step"])
    return state["step"]


# --- what can break from inside -------------------------------------------------------------------------------------------


class Pipeline:
    """The faults that one rank commits itself, at one step. The method names are those of innocent code: they show in tracebacks."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        once = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0
        self.name = args.fault if args.fault_rank == rank and once else None
        self.step = args.fault_step
        self.kept: list[torch.Tensor] = []

    def due(self, name: str, step: int) -> bool:
        return self.name == name and step == self.step

    def prepare(self, step: int, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x [B, F], y [B] -> the same, checked and copied."""
        if self.due("exception", step):
            y = y + CLASSES
        if self.due("segfault", step):
            return self.pack(x), y
        if self.due("nan", step):
            x = x * torch.finfo(torch.float32).max
        if self.due("slow", step):
            self.rebuild_index()
        if self.name == "leak" and step >= self.step:
            self.kept.append(torch.ones(40, 1024, 1024))  # 160 MiB per step: the replay buffer nobody empties
        check_labels(y)
        return x, y

    def pack(self, x: torch.Tensor) -> torch.Tensor:
        ctypes.memmove(None, x.data_ptr(), x.nbytes)
        return x

    def rebuild_index(self) -> None:
        LOG.info("sample index is stale, rebuilding it")
        time.sleep(60)

    def metrics(self, step: int, loss: torch.Tensor) -> None:
        if self.due("extra_collective", step):
            dist.all_reduce(loss.detach().clone())


def check_labels(y: torch.Tensor) -> None:
    """y [B]. Raises ValueError for a label outside the vocabulary."""
    worst = int(y.max())
    if worst >= CLASSES:
        raise ValueError(f"label {worst} is out of vocabulary (size {CLASSES})")


def chatter(step: int) -> None:
    """The frightening lines of a healthy run."""
    lines = {
        2: (logging.WARNING, "metrics push to http://10.0.0.9:9091 failed: Connection refused (attempt 1/3), retrying in 0.1s"),
        3: (logging.INFO, "metrics push succeeded after 2 attempts"),
        5: (logging.INFO, "memory guard armed: job will be warned before the OOM killer would act, oom_kills=0"),
        7: (logging.WARNING, "gradient overflow skipped 0 steps, nan_count=0, error_count=0"),
        9: (logging.INFO, "health: ecc_errors=0 link_errors=0 failed_ranks=[] timeouts=0 status=OK"),
        11: (logging.WARNING, "slow step: 0.31s is 3.0x the median; no action taken"),
        13: (logging.WARNING, "upload of events file failed with HTTP 503, will retry (1/5)"),
        14: (logging.INFO, "upload of events file recovered on retry 2/5"),
        17: (logging.INFO, "fault tolerance self-test: simulated exception caught as expected"),
    }
    if step in lines:
        LOG.log(*lines[step])


# --- training -------------------------------------------------------------------------------------------------------------


def build(args: argparse.Namespace) -> torch.nn.Module:
    torch.manual_seed(args.seed)
    width = args.width
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width), torch.nn.GELU(), torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, CLASSES)
    )


class Adam:
    """Adam without the torch._dynamo that `torch.optim` imports on first use: 1.5 s of start-up, for every rank of every test."""

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float) -> None:
        self.parameters, self.lr, self.step_count = parameters, lr, 0
        self.mean = [torch.zeros_like(p) for p in parameters]
        self.square = [torch.zeros_like(p) for p in parameters]

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self.step_count += 1
        for p, mean, square in zip(self.parameters, self.mean, self.square):
            mean.lerp_(p.grad, 0.1)
            square.lerp_(p.grad**2, 0.001)
            size = self.lr * math.sqrt(1 - 0.999**self.step_count) / (1 - 0.9**self.step_count)
            p.addcdiv_(mean, square.sqrt().add_(1e-8), value=-size)

    def state_dict(self) -> dict:
        return {"step": self.step_count, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: dict) -> None:
        self.step_count, self.mean, self.square = state["step"], state["mean"], state["square"]


def average_gradients(model: torch.nn.Module, world: int) -> None:
    """What DDP does, by hand and in order; used with `--no-ddp`."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def mean_over_ranks(value: torch.Tensor, world: int) -> float:
    total = value.detach().clone()
    dist.all_reduce(total)
    return float(total) / world


def evaluate(model: torch.nn.Module, world: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        x = torch.randn(64, FEATURES, generator=generator)  # [B, F]
        y = x[:, :CLASSES].argmax(dim=1)
        hits = (model(x).argmax(dim=1) == y).float().mean()
    LOG.info("eval accuracy %.4f on 64 held-out examples", mean_over_ranks(hits, world))


def fit(args: argparse.Namespace, rank: int, world: int) -> None:
    """Train for `args.steps` steps."""
    module = build(args)
    optimizer = Adam(list(module.parameters()), lr=args.lr)
    start = resume(args, module, optimizer)
    model = module if args.no_ddp else DistributedDataParallel(module)
    pipeline = Pipeline(args, rank)
    if args.dump_stacks_every_s:
        faulthandler.dump_traceback_later(args.dump_stacks_every_s, repeat=True)
    for step, x, y in batches(args, rank, start):
        began = time.monotonic()
        x, y = pipeline.prepare(step, x, y)
        loss = torch.nn.functional.cross_entropy(model(x.mean(dim=1) if args.history else x), y)
        optimizer.zero_grad()
        loss.backward()
        pipeline.metrics(step, loss)
        if args.no_ddp:
            average_gradients(module, world)
        norm = float(torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0))
        optimizer.step()
        time.sleep(args.step_s)
        fields = {"step": step, "total": args.steps, "loss": loss.item(), "grad_norm": norm, "lr": args.lr, "seconds": time.monotonic() - began}
        LOG.info("step", extra={"fields": fields})
        note(control(args), f"rank{rank}.step", step)
        if args.chatty:
            chatter(step)
        if args.stop_on_nan and not math.isfinite(mean_over_ranks(loss, world)):
            raise FloatingPointError(f"mean loss over {world} ranks is not finite at step {step}, stopping")
        if step % args.eval_every == 0:
            evaluate(module, world, args.seed)
        if step % args.save_every == 0:
            if rank == 0:
                save_checkpoint(args, step, module, optimizer)
            dist.barrier()
        if step >= args.steps:
            break
    faulthandler.cancel_dump_traceback_later()
    LOG.info("training finished after %d steps", args.steps)


def parse(argv: list[str]) -> argparse.Namespace:
    hidden = argparse.SUPPRESS
    parser = argparse.ArgumentParser(description="Pretrain a tiny classifier on JSON-lines shards.")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--ckpt-dir", required=True)
    parser.add_argument("--log-dir")
    parser.add_argument("--log-file", default="worker-{rank}.log")
    parser.add_argument("--log-style", choices=["asctime", "bracket", "loguru", "json", "print"], default="asctime")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--step-s", type=float, default=0.05, help="pause per step")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--history", type=int, default=0, help="frames per example")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=0, help="data loader workers per rank")
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--save-every", type=int, default=8)
    parser.add_argument("--save-mb-per-s", type=float, help="write checkpoints at this rate")
    parser.add_argument("--timeout-s", type=float, default=10, help="time-out of a collective")
    parser.add_argument("--no-ddp", action="store_true", help="average gradients by hand")
    parser.add_argument("--stop-on-nan", action="store_true")
    parser.add_argument("--faulthandler", action="store_true")
    parser.add_argument("--dump-stacks-every-s", type=float)
    parser.add_argument("--plugins", help="folder of node-local packages; {local_rank} is filled in")
    parser.add_argument("--chatty", action="store_true", help=hidden)
    parser.add_argument("--control-dir", help=hidden)
    parser.add_argument("--fault", help=hidden)
    parser.add_argument("--fault-rank", type=int, default=1, help=hidden)
    parser.add_argument("--fault-step", type=int, default=12, help=hidden)
    return parser.parse_args(argv)


@record
def main() -> None:
    args = parse(sys.argv[1:])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not args.faulthandler:
        faulthandler.disable()
    elif not faulthandler.is_enabled():
        faulthandler.enable()
    random.seed(args.seed + rank)
    torch.set_num_threads(1)
    start_logging(args, rank, world)
    note(control(args), f"rank{rank}.pid", os.getpid())
    LOG.info("worker up on %s, pid %d, torch %s", os.uname().nodename, os.getpid(), torch.__version__)
    if args.plugins:
        sys.path.insert(0, args.plugins.format(local_rank=os.environ["LOCAL_RANK"]))
        import tokenstats

        LOG.info("plugin tokenstats %s loaded", tokenstats.VERSION)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout_s))
    LOG.info("joined process group: backend gloo, world size %d, timeout %gs", world, args.timeout_s)
    fit(args, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
