"""A home-grown trainer in Kubernetes: container logs as the runtime keeps them, loguru lines inside, Chinese and English mixed, hosts only in the pod list."""

from __future__ import annotations

import json
import time

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact, Worker

LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "D": "DEBUG"}
MODULES = {"controller": "boss.loop:run", "train": "policy.worker:handle", "rollout": "gen.server:serve", "reference": "judge.worker:handle", "meta_server": "whub.server:main"}


class Spoken(Dialect):
    name = "pods_mixed"
    per_host = True
    stages = {"weights_update": "sync_weight", "rollout": "sample", "reference": "ref_score", "train": "optim", "latest_recover_save": "save_last", "periodic_recover_save": "save_every", "recover": "resume", "init": "bootstrap"}
    methods = {"upload_weights": "push", "update_weights": "pull", "generate": "sample", "compute_logp": "score", "train_batch": "optim", "save": "dump", "load": "resume", "switch": "swap", "wake": "swap_in", "rollout_start": "swap_out", "engine_start": "swap_in", "rollout_end": "swap_out", "train_start": "swap_in"}
    roles = {"train": "policy", "rollout": "gen", "reference": "judge", "controller": "boss", "meta_server": "whub"}
    words = {
        "job_begin": "实验 {job} start, step={first}",
        "conf": "cfg: sync={mode}, samples={batch}, rpc_deadline={limit}s, ckpt={mount}/{job}",
        "worker_up": {"": "{me} ready, pid={pid} gpu={gpu} endpoint={ip}:{port}", "train": "{me} ready, rank={rank} world={world} pid={pid} gpu={gpu}"},
        "ready": "所有 worker ready: {workers}",
        "step_begin": "---- step {step} ----",
        "stage_begin": "step {step} enter {stage}",
        "stage_end": "step {step} leave {stage}, {secs:.1f}s",
        "switch_ask": "{event} => {peer}",
        "switch_got": "{event} 收到",
        "switch_ok": "{event} <= {peer} ok",
        "switch_failed": ["W|{event} => {peer} 超时 {secs}s ({why})，忽略", "W|{peer} 未确认 {event}: {why}"],
        "mem_free": "swap out: {before:.1f} -> {after:.1f} GiB",
        "mem_take": "swap in: {gb:.1f} GiB",
        "wu_send": "push v{version} {secs:.1f}s",
        "wu_recv": "pull v{version} done",
        "gen_begin": "接单 {n}",
        "gen_beat": "D|running={run} waiting={queue} tps={toks:.0f}",
        "gen_end": "交付 {n}, {secs:.1f}s",
        "part_in": "{peer} +{n} ({got}/{want})",
        "send_retry": "W|回传 {share} 条失败: {why}, retry {n}",
        "call_timeout": ["W|{peer}.{method} deadline {secs}s 到，放弃等待", "W|{peer} 没回 {method}，已等 {secs}s"],
        "go_on_partial": ["W|样本不齐 {got}/{want}，继续", "W|{missing} 个 gen 掉队，用 {got} 条往下走"],
        "merged": "合并 batch: {got}",
        "engine_lost": "W|{peer} 心跳丢失 {quiet}s",
        "rerouted": "{peer} 的请求改派",
        "logp_begin": "score {rows}",
        "logp_end": "score {rows} done {secs:.1f}s",
        "logp_in": "{peer} 返回 logp {rows} 行 ({bytes} B)",
        "train_iter": "loss={loss:.4f} gn={gnorm:.3f} mem={gb:.1f}GiB",
        "oom_retried": "W|CUDA OOM ({gb:.1f} GiB)，micro batch 减半后成功",
        "save_begin": "dump -> {path}",
        "save_end": "dump ok {path} {gb:.1f}GB",
        "save_failed": "E|dump 失败 {path}: {why}",
        "save_warn": ["W|{peer} dump 未完成 ({why})，不影响训练，继续", "W|save_last 不完整: {peer} {why}"],
        "save_slow": ["W|{peer} dump 超过 {secs}s 未返回，先继续训练", "W|等 {peer} dump 等了 {secs}s，不等了"],
        "recover_begin": "resume from {path}",
        "store_put": "PUT {blob} {mb:.0f}MB",
        "store_size": "常驻 {gb:.1f} GiB / {keys} keys",
        "store_down": "E|whub exit",
        "call_error": "E|{peer}.{method} 返回 {status}: {body}",
        "call_retry": "W|{peer}.{method} {why}, retry {n}",
        "call_recovered": "{peer}.{method} retry 成功",
        "exc": "E|{error_text}\n{trace}",
        "sigterm": "W|SIGTERM received",
        "stage_failed": "E|step {step} {stage} 异常: {failure}",
        "cleanup_begin": "清场",
        "stop_ask": "stop {peer}",
        "stop_ok": "stop {peer} ok",
        "stop_timeout": "E|stop {peer} 无响应 {secs}s",
        "job_failed": "E|实验失败: {failure}",
        "step_end": "step {step} done in {secs:.1f}s reward={reward:.3f}",
        "job_end": "实验完成 last_step={steps}",
        "upgraded": "image {old} -> {new}",
        "stopped_by_user": "W|手动停止",
    }  # fmt: skip
    errors = {
        "ref_shape": ["ValueError|行数不一致: ids={got} mask={want}", "RuntimeError|shape '[{want}, -1]' is invalid for input of size {got}"],
        "ckpt_format": ["ValueError|{path}: header 损坏", "safetensors_rust.SafetensorError|Error while deserializing header: MetadataIncompleteBuffer"],
        "batch": ["AssertionError|样本数 {got} != {want}", "AssertionError|local rows {half}, expected {full}"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0", "ValueError|logp 行数 {want} / ref 行数 {got} 对不上"],
        "stop": "TimeoutError|stop {peer} 超时 {secs}s",
        "recover": ["RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory", "ValueError|{path} 不完整"],
        "store_timeout": "TimeoutError|push {url} 超时 {secs}s",
        "store_refused": "ConnectionRefusedError|[Errno 111] Connection refused",
        "store_silent": "TimeoutError|pull {url} 超时 {secs}s",
        "update": "PullError|{text}",
        "upload": "PushError|{text}",
        "generate": "SampleError|{text}",
        "train": "OptimError|{text}",
        "wake": "SwapError|{text}",
        "sigterm": "SystemExit|15",
    }  # fmt: skip
    frames = {
        "": [("/srv/rl/common/dispatch.py", 39, "call", "return getattr(self, op)(**kw)")],
        "upload_weights": [("/srv/rl/common/dispatch.py", 39, "call", "return getattr(self, op)(**kw)"), ("/srv/rl/policy/sync.py", 81, "push", "self.group.broadcast(flat)")],
        "share_cuda": [("/srv/rl/policy/sync.py", 64, "pack", "h = ForkingPickler.dumps(flat)"), ("/opt/conda/lib/python3.11/site-packages/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [("/srv/rl/common/dispatch.py", 39, "call", "return getattr(self, op)(**kw)"), ("/srv/rl/gen/sync.py", 52, "pull", "self.model.load_weights(items)")],
        "generate": [("/srv/rl/gen/server.py", 120, "sample", "outs = self.engine.run(reqs)")],
        "compute_logp": [("/srv/rl/judge/score.py", 33, "score", "logits = self.net(ids, mask)")],
        "train_batch": [("/srv/rl/policy/optim.py", 210, "optim", "loss = self.loss(batch)")],
        "load": [("/srv/rl/policy/ckpt.py", 77, "resume", "sd = torch.load(p)")],
    }  # fmt: skip

    def pod(self, who: Worker) -> str:
        return f"{self.w.run}-{self.roles[who.role]}-{who.index}"

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        who = f.who
        t = who.host.clock(f.t)
        path = f"pods/rl_{self.pod(who)}_{f.data['pid'] * 0x9E3779B97F4A7C15 % 16**12:012x}/main/{f.data['attempt']}.log"
        body = text if level == "raw" else f"{self.local(f, '%Y-%m-%d %H:%M:%S.')}{self.ms(f)} | {LEVELS[level]:<8} | {MODULES[who.role]}:{20 + len(f.kind) * 3} - {text}"
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(t)) + f"{int(t % 1 * 1e9):09d}Z"
        return [(path, "\n".join(f"{stamp} {'stderr' if level != 'raw' else 'stdout'} F {x}" for x in body.split("\n")))]

    def extras(self, files: dict[str, list[str]]) -> None:
        """The pod list of the whole job: the only place that says which pod ran where."""
        ended = "Failed" if self.w.truth["verdict_expected"] == "failed" else "Succeeded"
        items = [{"kind": "Pod", "metadata": {"name": self.pod(x), "namespace": "rl", "labels": {"job": self.w.run, "component": self.roles[x.role]}}, "spec": {"nodeName": x.host.name}, "status": {"podIP": x.host.ip, "hostIP": x.host.ip, "phase": ended if x.role == "controller" else "Running"}} for x in self.w.workers]
        files.setdefault("pods.json", []).append(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
