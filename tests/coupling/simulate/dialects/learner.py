"""A home-grown English trainer: JSON lines, one file per process, a vocabulary of its own (learner, sampler, anchor, param push, snapshot)."""

from __future__ import annotations

import json

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact

LEVELS = {"I": "info", "W": "warning", "E": "error", "D": "debug"}


class Spoken(Dialect):
    name = "learner"
    per_host = True
    package = "helix"
    stages = {"weights_update": "param_push", "rollout": "sampling", "reference": "anchor_pass", "train": "learn", "latest_recover_save": "snapshot_rolling", "periodic_recover_save": "snapshot_keep", "recover": "restore", "init": "setup"}
    methods = {"upload_weights": "push_params", "update_weights": "pull_params", "generate": "sample", "compute_logp": "anchor_logp", "train_batch": "learn_step", "save": "snapshot", "load": "restore", "switch": "device_turn", "wake": "reclaim_device", "rollout_start": "sampler_turn", "rollout_end": "sampler_done", "train_start": "learner_turn"}
    roles = {"train": "learner", "rollout": "sampler", "reference": "anchor", "controller": "conductor", "meta_server": "param_depot"}
    words = {
        "job_begin": "experiment {job} begins, iteration {first}",
        "conf": "settings: push={mode} samples_per_iter={batch} request_deadline={limit}s snapshots={mount}/{job}",
        "worker_up": {"": "{me} up on {host} ({ip}:{port}) pid {pid} cuda:{gpu}", "meta_server": "depot listening on {ip}:{port}, pid {pid}"},
        "ready": "{workers} workers joined",
        "upgraded": "package helix {old} -> {new}",
        "stopped_by_user": "operator asked to stop, leaving after this iteration",
        "step_begin": "iteration {step}",
        "stage_begin": "{stage} >",
        "stage_end": "{stage} < {secs:.1f}s",
        "switch_ask": "{event} -> {peer}",
        "switch_got": "{event} received",
        "switch_ok": "{event} ack from {peer}",
        "switch_failed": ["E|{event} -> {peer}: no ack, gave up after {secs}s ({why})", "W|{event} unacknowledged by {peer} for {secs}s ({why}); assuming it went through"],
        "mem_free": "parked, device {before:.1f} -> {after:.1f} GiB",
        "mem_take": "device claimed, {gb:.1f} GiB",
        "wu_send": "pushed params v{version} in {secs:.1f}s",
        "wu_recv": "params v{version} live",
        "gen_begin": "sampling {n} prompts",
        "gen_beat": "D|in flight {run}, waiting {queue}, {toks:.0f} tok/s",
        "gen_end": "sampled {n}, {secs:.1f}s",
        "part_in": "{n} from {peer} ({got}/{want})",
        "send_retry": "W|cannot hand {share} samples to conductor ({why}), try {n}",
        "call_timeout": ["W|{method} on {peer} ({peer_ip}:{peer_port}): nothing back within {secs}s", "W|{peer} overdue: {method}, {secs}s, {peer_ip}", "W|deadline exceeded waiting for {method} from {peer} ({peer_ip})"],
        "go_on_partial": ["W|proceeding without {missing} sampler(s): {got} of {want}", "W|straggler cutoff hit, pool closed at {got} (asked {want})", "pool closed early, {got} in, {missing} sampler(s) late"],
        "merged": "pool holds {got} samples",
        "engine_lost": "W|{peer} quiet for {quiet}s, taken out of rotation",
        "rerouted": "prompts of {peer} go to the others",
        "logp_begin": "scoring {rows} rows",
        "logp_end": "scored {rows} rows in {secs:.1f}s",
        "logp_in": "{rows} rows from {peer} ({bytes} bytes)",
        "train_begin": "shard of {rows} rows",
        "train_iter": "loss {loss:.4f} gnorm {gnorm:.3f} device {gb:.1f} GiB",
        "oom_retried": "W|CUDA out of memory at {gb:.1f} GiB, splitting the micro batch and trying again",
        "save_begin": "writing {path}",
        "save_end": "wrote {path} ({gb:.1f} GB, {secs:.0f}s)",
        "save_failed": "E|could not write {path}: OSError: {why}",
        "save_warn": ["W|snapshot {path} not complete ({peer}), carrying on", "W|snapshot: {peer} says {why}; will be overwritten next iteration anyway", "W|{stage} had problems on {peer}: {why}"],
        "save_slow": ["W|snapshot {path}: {peer} has not finished after {secs}s, carrying on without it", "W|{stage}: waited {secs}s for {peer}, assume it finishes in background"],
        "recover_begin": "restoring from {path}",
        "store_put": "put {blob} from {parts} learners, {mb:.0f} MB",
        "store_size": "holding {gb:.1f} GB in {keys} blobs",
        "store_down": "E|depot is leaving",
        "call_error": "E|{method} on {peer} -> {status} {body}",
        "call_retry": "W|{method} on {peer}: {why}, retry {n}",
        "call_recovered": "{method} on {peer} fine on attempt {n}",
        "exc": "E|unhandled exception\n{trace}",
        "sigterm": "W|SIGTERM",
        "stage_failed": "E|{stage} of iteration {step} broke: {failure}",
        "cleanup_begin": "shutting the experiment down",
        "stop_ask": "stop -> {peer}",
        "stop_ok": "{peer} stopped",
        "stop_timeout": "E|stop -> {peer}: no reply in {secs}s",
        "job_failed": "E|experiment aborted: {failure}",
        "step_end": "iteration {step} took {secs:.1f}s reward {reward:.3f} loss {loss:.4f}",
        "job_end": "experiment finished after iteration {steps}, everything stored",
    }  # fmt: skip
    errors = {
        "ref_shape": ["ValueError|rows do not line up: ids {got}, mask {want}", "RuntimeError|shape '[{want}, -1]' is invalid for input of size {got}", "RuntimeError|Sizes of tensors must match except in dimension 1. Expected size {want} but got size {got} for tensor number 1 in the list."],
        "ckpt_format": ["SafetensorError|Error while deserializing header: MetadataIncompleteBuffer", "EOFError|unexpected end of blob in {path}", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "batch": ["AssertionError|expected {full} rows in shard, have {half}", "ValueError|pool of {got} cannot fill {want} slots"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0", "ValueError|anchor logp has {got} rows, policy has {want}"],
        "stop": "StopError|{peer} did not stop within {secs}s",
        "recover": ["UnpicklingError|pickle data was truncated", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory", "RestoreError|{path}: checksum of the index does not match"],
        "store_timeout": "DepotError|push to {url} not confirmed within {secs}s",
        "store_refused": "ConnectionRefusedError|[Errno 111] Connection refused: {url}",
        "store_silent": "TimeoutError|pull from {url} still waiting after {secs}s",
        "update": "ParamPullError|{text}",
        "upload": "ParamPushError|{text}",
        "generate": "SamplerError|{text}",
        "train": "LearnerError|{text}",
        "wake": "DeviceTurnError|{text}",
        "sigterm": "SystemExit|143",
    }  # fmt: skip
    frames = {
        "": [("/opt/helix/helix/proc.py", 88, "serve", "out = self.handle(msg)")],
        "upload_weights": [("/opt/helix/helix/proc.py", 88, "serve", "out = self.handle(msg)"), ("/opt/helix/helix/push.py", 141, "push_params", "self._send(bucket.flatten())")],
        "update_weights": [("/opt/helix/helix/proc.py", 88, "serve", "out = self.handle(msg)"), ("/opt/helix/helix/pull.py", 97, "pull_params", "blob = self.source.read(name)")],
        "share_cuda": [("/opt/helix/helix/push.py", 133, "push_params", "payload = ForkingPickler.dumps(bucket)"), ("/usr/lib/python3.11/multiprocessing/reduction.py", 51, "dumps", "cls(buf, protocol).dump(obj)"), ("/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()"), ("/opt/venv/lib/python3.11/site-packages/torch/storage.py", 1231, "_share_cuda_", "return self._untyped_storage._share_cuda_(*args, **kwargs)")],
        "generate": [("/opt/helix/helix/proc.py", 88, "serve", "out = self.handle(msg)"), ("/opt/helix/helix/sample.py", 212, "sample", "tokens = self.engine.run(prompts)")],
        "compute_logp": [("/opt/helix/helix/proc.py", 88, "serve", "out = self.handle(msg)"), ("/opt/helix/helix/anchor.py", 54, "anchor_logp", "lp = self.model(ids, mask)")],
        "train_batch": [("/opt/helix/helix/proc.py", 88, "serve", "out = self.handle(msg)"), ("/opt/helix/helix/learn.py", 176, "learn_step", "loss = self.loss_fn(batch)")],
        "load": [("/opt/helix/helix/restore.py", 61, "restore", "state = torch.load(f, map_location='cpu')")],
    }  # fmt: skip

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        path = f"procs/{self.called(f.who)}.jsonl"
        if level == "raw":
            return [(f"procs/{self.called(f.who)}.stderr", text)]
        row = {"ts": self.local(f, "%Y-%m-%dT%H:%M:%S.") + self.ms(f), "lvl": LEVELS[level], "proc": self.called(f.who), "node": f.who.host.name, "msg": text}
        if f.step is not None:
            row["iter"] = f.step
        return [(path, json.dumps(row))]
