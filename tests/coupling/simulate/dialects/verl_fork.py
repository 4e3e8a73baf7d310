"""A fork of verl: one driver console through Ray, metrics after each step without time, remote errors as RayTaskError blocks, worker files per node."""

from __future__ import annotations

from coupling.simulate.dialects import Blank, Dialect
from coupling.simulate.world import Fact, World

SITE = "/usr/local/lib/python3.10/dist-packages"
LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "D": "DEBUG"}
REMOTE = {"upload_weights": "actor_rollout_update_weights", "share_cuda": "actor_rollout_update_weights", "update_weights": "rollout_update_weights", "generate": "rollout_generate_sequences", "compute_logp": "ref_compute_ref_log_prob", "train_batch": "actor_rollout_update_actor", "load": "actor_rollout_load_checkpoint", "wake": "actor_rollout_load_model_to_gpu", "store_put": "put"}
CLASSES = {"train": "WorkerDict", "rollout": "AsyncvLLMServer", "reference": "WorkerDict", "controller": "TaskRunner", "meta_server": "ParamServer"}


class Spoken(Dialect):
    name = "verl_fork"
    per_host = True
    stages = {"weights_update": "update_weights", "rollout": "gen", "reference": "ref", "train": "update_actor", "latest_recover_save": "save_checkpoint", "periodic_recover_save": "save_checkpoint", "recover": "load_checkpoint", "init": "init_model"}
    methods = {"upload_weights": "update_weights", "update_weights": "update_weights", "generate": "generate_sequences", "compute_logp": "compute_ref_log_prob", "train_batch": "update_actor", "save": "save_checkpoint", "load": "load_checkpoint", "switch": "sleep", "wake": "load_model_to_gpu", "rollout_start": "offload_to_cpu", "engine_start": "wake_up", "rollout_end": "sleep", "train_start": "load_model_to_gpu"}
    roles = {"train": "actor", "rollout": "vllm server", "reference": "ref", "controller": "TaskRunner", "meta_server": "ParamServer"}
    worker_name = "{role} {i}"
    words = {
        "job_begin": "Setting global step to {first}, default_local_dir={mount}/{job}, rollout n*bsz={batch}, weight sync={mode}",
        "worker_up": {"train": "[{me}] rank={rank}/{world} node={host} ({ip}) pid={pid} cuda={gpu}", "": "[{me}] node={host} ({ip}) port={port} pid={pid} cuda={gpu}", "meta_server": "[ParamServer] node={host} listening on {ip}:{port} pid={pid}"},
        "ready": "worker groups initialised ({workers} workers)",
        "switch_got": "[{me}] {event} called",
        "switch_failed": ["W|{event} not acknowledged by {peer} on {peer_ip} ({why}, {secs}s)", "W|ray.get({event}) for {peer} @ {peer_ip}: {why}"],
        "mem_free": "[{me}] After {stage} offload, memory allocated (GB): {after:.2f} (was {before:.2f})",
        "mem_take": "[{me}] memory allocated (GB): {gb:.2f}",
        "gen_end": "[{me}] finished {n} requests in {secs:.1f}s",
        "gen_beat": "INFO {mmdd} [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {toks:.1f} tokens/s, Running: {run} reqs, Waiting: {queue} reqs, GPU KV cache usage: 52.0%, Prefix cache hit rate: 12.4%",
        "send_retry": "W|[{me}] sending back {share} outputs failed: {why}; again ({n})",
        "call_timeout": ["W|agent loop: {peer} ({peer_ip}:{peer_port}) gave nothing for {secs}s", "W|timeout ({secs}s) on generate for {peer} @ {peer_ip}"],
        "go_on_partial": ["W|gen_batch_output has {got} of {want} rows, keep going", "W|drop unfinished requests, {got} samples left"],
        "merged": "gen batch size: {got}",
        "engine_lost": "W|{peer} ({peer_ip}) no heartbeat {quiet}s",
        "rerouted": "moved requests of {peer}",
        "logp_in": "ref_log_prob rows from {peer}: {rows}",
        "oom_retried": "W|[{me}] OOM with {gb:.1f} GB in use, ppo_max_token_len_per_gpu halved, ok now",
        "save_begin": "[{me}] Saving model to {path}/actor/model_world_size_{world}_rank_{rank}.pt",
        "save_end": "[{me}] Saved {path}/actor/model_world_size_{world}_rank_{rank}.pt",
        "save_failed": "E|[{me}] torch.save {path}: {why}",
        "save_warn": ["W|save_checkpoint: {peer} raised ({why}), global step not aborted", "W|save_checkpoint incomplete: {why}"],
        "save_slow": ["W|save_checkpoint: {peer} on {peer_ip} not done in {secs}s, skip waiting", "W|{peer} on {peer_ip} stuck in save_checkpoint > {secs}s; moving to next step"],
        "recover_begin": "Load from checkpoint folder: {path}",
        "store_size": "[ParamServer] {keys} keys, {gb:.1f} GB held",
        "store_down": "E|[ParamServer] exiting",
        "call_retry": "W|{method} on {peer} ({peer_ip}): {why} - retry {n}",
        "call_recovered": "{method} on {peer} ok",
        "exc": "E|{trace}",
        "sigterm": "W|SIGTERM",
        "stage_failed": "Error executing job with overrides: ['trainer.experiment_name={job}']\nTraceback (most recent call last):\n  File \"/workspace/verl/verl/trainer/ppo/ray_trainer.py\", line 1180, in fit\n    with marked_timer(\"{stage}\", timing_raw):\n{remote}",
        "cleanup_begin": "shutting down worker groups",
        "stop_timeout": "E|{peer} on {peer_ip} does not exit, waited {secs}s",
        "job_failed": "{failure}",
        "step_end": "{metrics}",
        "job_end": "Final validation metrics: None\nTraining Progress: 100%|██████████| {steps}/{steps} [1:42:11<00:00, 130.42s/it]",
        "upgraded": "verl {old} -> {new}",
        "stopped_by_user": "KeyboardInterrupt",
    }  # fmt: skip
    errors = {
        "ref_shape": ["AssertionError|key input_ids length {got} is not equal to batch size {want}", "RuntimeError|shape '[{want}, -1]' is invalid for input of size {got}"],
        "ckpt_format": ["RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory", "safetensors_rust.SafetensorError|Error while deserializing header: HeaderTooLarge"],
        "batch": ["AssertionError|only support equal chunk. Got size of DataProto {got} and chunk {full}.", "ValueError|Batch size {got} does not fit ppo_mini_batch_size, want {want}"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0"],
        "stop": "ray.exceptions.GetTimeoutError|Get timed out: some object(s) not ready.",
        "recover": ["RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory", "EOFError|Ran out of input"],
        "store_timeout": "TimeoutError|ParamServer put {url} > {secs}s",
        "store_refused": "ConnectionRefusedError|[Errno 111] Connection refused",
        "store_silent": "TimeoutError|ParamServer get {url} > {secs}s",
        "sigterm": "SystemExit|15",
    }  # fmt: skip
    frames = {
        "": [("/workspace/verl/verl/single_controller/base/decorator.py", 548, "inner", "return func(*args, **kwargs)")],
        "upload_weights": [("/workspace/verl/verl/workers/fsdp_workers.py", 655, "update_weights", "await self.rollout.update_weights(per_tensor_param)")],
        "share_cuda": [("/workspace/verl/verl/workers/fsdp_workers.py", 655, "update_weights", "await self.rollout.update_weights(per_tensor_param)"), (f"{SITE}/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [("/workspace/verl/verl/workers/rollout/vllm_rollout/vllm_async_server.py", 301, "update_weights", "self.engine.collective_rpc('load_weights', args=(bucket,))")],
        "generate": [("/workspace/verl/verl/workers/rollout/vllm_rollout/vllm_async_server.py", 220, "generate", "async for output in generator:")],
        "compute_logp": [("/workspace/verl/verl/workers/fsdp_workers.py", 811, "compute_ref_log_prob", "output, _ = self.ref_policy.compute_log_prob(data=data, calculate_entropy=False)")],
        "train_batch": [("/workspace/verl/verl/workers/fsdp_workers.py", 702, "update_actor", "metrics = self.actor.update_policy(data=data)"), ("/workspace/verl/verl/workers/actor/dp_actor.py", 431, "update_policy", "loss.backward()")],
        "load": [("/workspace/verl/verl/utils/checkpoint/fsdp_checkpoint_manager.py", 121, "load_checkpoint", "model_state_dict = torch.load(local_model_path, weights_only=False)")],
    }  # fmt: skip

    def __init__(self, w: World) -> None:
        super().__init__(w)
        self.last: Fact | None = None  # the worker's exception that the driver will reprint

    def remote(self, f: Fact) -> str:
        """The exception as Ray hands it on: header with the remote method, pid and ip, then the worker's traceback, indented."""
        if self.last is None:
            return ": ".join(x for x in self.error(f, super().fields(f)) if x)
        who, data = self.last.who, self.last.data
        kind, _ = self.error(self.last, super().fields(self.last))
        trace = self.traceback(self.last, super().fields(self.last)).split("\n")[1:]
        head = f"ray.exceptions.RayTaskError({kind.split('.')[-1]}): ray::{CLASSES[who.role]}.{REMOTE.get(data.get('at') or '', 'run')}() (pid={data['pid']}, ip={who.host.ip}, actor_id={data['pid'] * 0x9E3779B97F4A7C15 % 16**24:024x}01000000, repr=<verl.single_controller.ray.base.{CLASSES[who.role]} object at 0x7f{data['pid'] * 7919 % 16**10:010x}>)"
        return "\n".join([head, *("  " + x if i < len(trace) - 1 else x for i, x in enumerate(trace))])

    def fields(self, f: Fact) -> Blank:
        found = super().fields(f)
        found["mmdd"] = self.local(f, "%m-%d %H:%M:%S")
        if f.kind == "exc" and f.who.role != "meta_server":
            self.last = f
        if f.kind == "stage_failed":
            found["remote"] = self.remote(f)
        if f.kind == "step_end":
            times = {f"timing_s/{self.stages[s]}": v for s, v in f.data["times"].items()}
            row = {"critic/rewards/mean": f.data["reward"], "actor/pg_loss": f.data["loss"], "actor/grad_norm": f.data["gnorm"], **times, "timing_s/step": f.data["secs"], "training/global_step": float(f.step or 0)}
            found["metrics"] = f"step:{f.step} - " + " - ".join(f"{k}:{v:.4f}" for k, v in row.items())
        return found

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        who, pid = f.who, f.data["pid"]
        # The library's logger writes warnings and errors with a time; prints have none.
        if level in ("W", "E") and f.kind != "exc":
            text = f"{LEVELS[level]}:{self.local(f, '%Y-%m-%d %H:%M:%S,')}{self.ms(f)}:{text}"
        ip = "" if who.host is self.w.controller.host else f", ip={who.host.ip}"
        name = CLASSES[who.role]
        console = ("driver_console.log", "\n".join(f"({name} pid={pid}{ip}) {x}" for x in text.split("\n")))
        if who.role == "controller":
            return [console]
        own = f"ray/{who.host.ip}/session_latest/logs/worker-{pid * 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F8C % 16**56:056x}-01000000-{pid}.{'out' if level in ('I', 'D') else 'err'}"
        return [console, (own, text)]
