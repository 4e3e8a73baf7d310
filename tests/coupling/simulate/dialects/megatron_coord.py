"""Megatron-like trainer ranks with a controller of the house: iteration lines of the last rank, terse texts, one file per node and role."""

from __future__ import annotations

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact

LEVELS = {"I": "INF", "W": "WRN", "E": "ERR", "D": "DBG"}


class Spoken(Dialect):
    name = "megatron_coord"
    per_host = True
    stages = {"weights_update": "sync", "rollout": "gen", "reference": "ref", "train": "update", "latest_recover_save": "ckpt-latest", "periodic_recover_save": "ckpt-keep", "recover": "load", "init": "init"}
    methods = {"upload_weights": "export", "update_weights": "import", "generate": "gen", "compute_logp": "ref_fwd", "train_batch": "update", "save": "ckpt", "load": "load", "switch": "yield", "wake": "reclaim", "rollout_start": "YIELD_TO_GEN", "rollout_end": "GEN_DONE", "train_start": "YIELD_TO_TRAIN"}
    roles = {"train": "mcore", "rollout": "gen", "reference": "ref", "controller": "coord", "meta_server": "blobd"}
    worker_name = "{role}{i}"
    words = {
        "job_begin": "job {job} start, it={first}, gbs={batch}",
        "conf": "sync={mode} call_timeout={limit} ckpt={mount}/{job}",
        "worker_up": {"": "hello {me} node={host} addr={ip}:{port} pid={pid} dev={gpu}", "train": "hello {me} rank={rank}/{world} node={host} addr={ip}:{port} pid={pid} dev={gpu}"},
        "ready": "{workers} procs in",
        "step_begin": "it={step}",
        "stage_begin": "it={step} {stage} ...",
        "stage_end": "it={step} {stage} ok {secs:.1f}",
        "switch_ask": "{event} > {peer}",
        "switch_got": "got {event}",
        "switch_ok": "{event} < {peer} ok",
        "switch_failed": ["W|{event} > {peer} ({peer_host}) no reply {secs}s: {why}", "W|{event} > {peer} ({peer_host}): {why}. go"],
        "mem_free": "yield: mem {before:.1f}G -> {after:.1f}G",
        "mem_take": "claim: mem {gb:.1f}G",
        "wu_recv": "weights @{version}",
        "gen_begin": "{n} prompts in",
        "gen_beat": "run={run} wait={queue} tps={toks:.0f}",
        "gen_end": "{n} done {secs:.1f}",
        "part_in": "{peer}: {n} ({got}/{want})",
        "send_retry": "W|reply of {share} not delivered: {why} (#{n})",
        "call_timeout": "W|{peer}.{method} ({peer_host}): deadline {secs}s",
        "go_on_partial": ["W|short gen {got}/{want}, -{missing} procs, going on", "W|gen cut at deadline n={got}"],
        "merged": "batch n={got}",
        "engine_lost": "W|{peer} ({peer_host}) heartbeat lost {quiet}s",
        "rerouted": "requeue {peer}",
        "logp_end": "ref {rows} rows {secs:.1f}",
        "logp_in": "{peer}: ref {rows} rows {bytes}B",
        "oom_retried": "W|oom at {gb:.1f}G, mbs/2, ok",
        "save_begin": "saving checkpoint at iteration {step:>7} to {path} in torch_dist format",
        "save_end": "  successfully saved checkpoint from iteration {step:>7} to {path}",
        "save_failed": "E|write {path}: {why}",
        "save_warn": ["W|ckpt {peer}: {why}; ignored", "W|ckpt partial ({peer} {why})"],
        "save_slow": ["W|ckpt {peer} ({peer_host}): not back in {secs}s; going on", "W|ckpt: {peer}@{peer_host} slow (> {secs}s), async from here"],
        "recover_begin": "load {path}",
        "store_put": "+{blob} {mb:.0f}M",
        "store_size": "mem {gb:.1f}G keys {keys}",
        "store_down": "E|bye",
        "call_error": "E|{peer}.{method} ({peer_host}): {status} {body}",
        "call_retry": "W|{peer}.{method}: {why}, again ({n})",
        "call_recovered": "{peer}.{method}: ok ({n})",
        "exc": "E|{trace}",
        "sigterm": "W|sig 15",
        "stage_failed": "E|it={step} {stage} failed: {failure}",
        "cleanup_begin": "teardown",
        "stop_ask": "kill {peer_role}*",
        "stop_ok": "{peer_role}* gone",
        "stop_timeout": "E|{peer} ({peer_host}) does not go, {secs}s",
        "job_failed": "E|FAILED {failure}",
        "step_end": "it={step} total {secs:.1f} rew {reward:.3f}",
        "job_end": "DONE it={steps}",
        "upgraded": "build {old} -> {new}",
        "stopped_by_user": "W|stop on request",
    }  # fmt: skip
    errors = {
        "ref_shape": ["AssertionError|n={got} want {want}", "RuntimeError|shape '[{want}, -1]' is invalid for input of size {got}"],
        "ckpt_format": ["CkptError|bad magic in {path}", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "batch": ["AssertionError|gbs {got} != {want}", "AssertionError|dp shard {half} != {full}"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0"],
        "stop": "TeardownError|{peer} alive after {secs}s",
        "recover": ["CheckpointingException|{path}: truncated", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "store_timeout": "BlobError|PUT {url}: deadline {secs}s",
        "store_refused": "ConnectionRefusedError|[Errno 111] Connection refused",
        "store_silent": "BlobError|GET {url}: deadline {secs}s",
        "update": "ImportError_|{text}",
        "upload": "ExportError|{text}",
        "generate": "GenError|{text}",
        "train": "UpdateError|{text}",
        "wake": "ReclaimError|{text}",
        "sigterm": "SystemExit|143",
    }  # fmt: skip
    frames = {
        "": [("/w/coord/rpc.py", 51, "dispatch", "r = h(**kw)")],
        "upload_weights": [("/w/coord/rpc.py", 51, "dispatch", "r = h(**kw)"), ("/w/mcore/export.py", 90, "export", "dist.broadcast(t, 0, group=g)")],
        "share_cuda": [("/w/mcore/export.py", 71, "export_ipc", "h = reduce_tensor(flat)"), ("/usr/lib/python3/dist-packages/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [("/w/coord/rpc.py", 51, "dispatch", "r = h(**kw)"), ("/w/gen/importer.py", 44, "import_", "self.load(it)")],
        "generate": [("/w/coord/rpc.py", 51, "dispatch", "r = h(**kw)"), ("/w/gen/run.py", 133, "gen", "o = self.eng.step()")],
        "compute_logp": [("/w/ref/fwd.py", 29, "ref_fwd", "x = x.view(n, -1)")],
        "train_batch": [("/w/mcore/update.py", 156, "update", "loss = loss_func(mask, out)")],
        "load": [("/w/mcore/ckpt.py", 208, "load", "sd = dist_checkpointing.load(tpl, path)")],
    }  # fmt: skip

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        who = f.who
        stamp = self.local(f, "%Y-%m-%d %H:%M:%S") + f".{int(who.host.clock(f.t) % 1 * 1e6):06d}"
        path = "coord.log" if who.role == "controller" else f"{self.roles[who.role]}/{who.host.name.split('.')[0]}/{who.index}.log"
        if level == "raw":
            return [(path, text)]
        if f.kind == "step_end":
            last = self.w.role("train")[-1]
            body = f" [{stamp}] iteration {f.step:>8}/{self.w.steps:>8} | consumed samples: {(f.step or 0) * self.w.batch:>12} | elapsed time per iteration (ms): {f.data['secs'] * 1000:.1f} | learning rate: 1.000000E-06 | global batch size: {self.w.batch:>5} | lm loss: {f.data['loss']:.6E} | loss scale: 1.0 | grad norm: {f.data['gnorm']:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
            own = [] if ("files", last.host) in self.w.lost else [(f"mcore/{last.host.name.split('.')[0]}/{last.index}.log", body)]
            return [*own, (path, f"{stamp} {LEVELS[level]} coord {text}")]
        if f.kind in ("save_begin", "save_end"):
            return [(path, f"{'[' if f.kind == 'save_begin' else '  ['}{stamp}] {text.strip()}")]
        return [(path, f"{stamp} {LEVELS[level]} {self.called(who)} {text}")]
