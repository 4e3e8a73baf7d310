"""TRL's trainer under accelerate with a vLLM server beside it: rank 0's metrics as dicts without time, the server's access log, little else."""

from __future__ import annotations

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact

SITE = "/usr/local/lib/python3.11/site-packages"


class Spoken(Dialect):
    name = "trl_vllm"
    per_host = True
    supports = ("02", "03", "05", "06", "08")
    modes = ("nccl",)
    stages = {"weights_update": "move_model_to_vllm", "rollout": "generate", "reference": "ref_per_token_logps", "train": "training_step", "latest_recover_save": "save", "periodic_recover_save": "save", "recover": "resume", "init": "init"}
    methods = {"upload_weights": "update_named_param", "update_weights": "update_named_param", "generate": "generate", "compute_logp": "get_per_token_logps", "train_batch": "training_step", "save": "save_checkpoint", "load": "resume", "switch": "sleep", "wake": "wake_up"}
    roles = {"train": "trainer", "rollout": "vllm-serve", "reference": "ref-serve", "controller": "launcher", "meta_server": "store"}
    worker_name = "{role}[{i}]"
    words = {
        "job_begin": "I|[{now}] ***** Running training ***** {job}, resume step {first}, generation batch {batch}, output_dir {mount}/{job}",
        "worker_up": {"train": "I|[{now}] process index {rank}/{world} on {host} ({ip}) pid {pid} device cuda:{gpu}", "rollout": "INFO {mmdd} [api_server.py:1428] Starting vLLM server {i} on http://{ip}:{port} host {host} gpu {gpu} pid {pid}", "reference": "I|[{now}] ref server {i} on http://{ip}:{port} host {host} gpu {gpu} pid {pid}"},
        "stage_begin": {"controller": "D|[{now}] -> {stage} (global_step {step})"},
        "gen_begin": "INFO:     {ctl_ip}:51{step:0>3} - \"POST /generate/ HTTP/1.1\" accepted ({n} prompts)",
        "gen_beat": "INFO {mmdd} [loggers.py:127] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {toks:.1f} tokens/s, Running: {run} reqs, Waiting: {queue} reqs, GPU KV cache usage: 38.2%, Prefix cache hit rate: 51.0%",
        "gen_end": "INFO:     {ctl_ip}:51{step:0>3} - \"POST /generate/ HTTP/1.1\" 200 OK",
        "wu_recv": "INFO:     {ctl_ip}:52{step:0>3} - \"POST /update_named_param/ HTTP/1.1\" 200 OK",
        "send_retry": "WARNING {mmdd} [serving.py:88] client gone while sending {share} completions ({why}), retry {n}",
        "call_timeout": "W|[{now}] {peer} http://{peer_ip}:{peer_port}/generate/ : requests.exceptions.ReadTimeout after {secs}s",
        "go_on_partial": ["W|[{now}] {missing} vLLM server(s) without answer, gathered {got}/{want} completions", "W|[{now}] gather: {got} completions (some servers late), continue"],
        "merged": "D|[{now}] completions gathered: {got}",
        "engine_lost": "W|[{now}] {peer} http://{peer_ip}:{peer_port}/health/ down for {quiet}s",
        "call_error": "W|[{now}] {method} via {peer} ({peer_ip}): {status} {body}",
        "call_retry": "W|[{now}] http://{peer_ip}:{peer_port} : {why}, retrying",
        "call_recovered": "I|[{now}] http://{peer_ip}:{peer_port} : ok",
        "train_iter": {"train": "step_loss"},
        "oom_retried": "W|[{now}] rank {rank}: CUDA OOM at {gb:.1f} GB, found executable batch size by halving",
        "save_begin": "I|[{now}] rank {rank} saving shard to {path}",
        "save_end": "I|[{now}] rank {rank} shard saved",
        "save_failed": "W|[{now}] rank {rank} {path}: {why}",
        "save_warn": "W|[{now}] checkpoint not complete, rank {peer_i}: {why}",
        "save_slow": ["W|[{now}] save: rank {peer_i} ({peer_host}) has not returned in {secs}s, go on training", "W|[{now}] rank {peer_i} ({peer_host}) still in save_checkpoint after {secs}s; barrier skipped"],
        "recover_begin": "I|[{now}] Loading model from {path}.",
        "exc": "E|{trace}",
        "sigterm": "W|[{now}] Received SIGTERM",
        "stage_failed": "E|[{now}] {stage} at global_step {step}: {failure}",
        "cleanup_begin": "I|[{now}] stopping everything",
        "stop_ask": "I|[{now}] stop {peer_role}",
        "stop_ok": "I|[{now}] {peer_role} stopped",
        "stop_timeout": "E|[{now}] {peer} on {peer_host} ignores the stop request for {secs}s",
        "job_failed": "E|[{now}] launch failed: {failure}",
        "step_end": "{{'loss': {loss:.4f}, 'grad_norm': {gnorm:.4f}, 'learning_rate': 9.8e-07, 'reward': {reward:.4f}, 'step_time': {secs:.2f}, 'epoch': 0.{step:0>3}}}",
        "job_end": "I|[{now}] Training completed. Do not forget to share your model on huggingface.co/models =)",
        "upgraded": "I|[{now}] trl {old} -> {new}",
        "stopped_by_user": "W|[{now}] KeyboardInterrupt",
    }  # fmt: skip
    errors = {
        "ref_shape": ["RuntimeError|Sizes of tensors must match except in dimension 1. Expected size {want} but got size {got} for tensor number 1 in the list."],
        "batch": ["ValueError|completions ({got}) do not match prompts ({want})", "AssertionError|len(completion_ids) == {got}, expected {want}"],
        "stop": "subprocess.TimeoutExpired|Command '['accelerate', 'launch']' timed out after {secs} seconds",
        "recover": ["RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory", "safetensors_rust.SafetensorError|Error while deserializing header: MetadataIncompleteBuffer"],
        "update": "RuntimeError|Request failed: 500, {text}",
        "upload": "Exception|Request failed: 500, {text}",
        "generate": "Exception|Request failed: 500, {text}",
        "train": "torch.distributed.elastic.multiprocessing.errors.ChildFailedError|train_grpo.py FAILED ({text})",
        "sigterm": "torch.distributed.elastic.multiprocessing.api.SignalException|Process 1 got signal: 15",
    }  # fmt: skip
    frames = {
        "upload_weights": [(f"{SITE}/trl/trainer/grpo_trainer.py", 1031, "_move_model_to_vllm", "self.vllm_client.update_named_param(name, param.data)")],
        "update_weights": [(f"{SITE}/trl/scripts/vllm_serve.py", 141, "update_named_param", "self.pynccl_comm.broadcast(weight, src=self.client_rank)")],
        "generate": [(f"{SITE}/trl/trainer/grpo_trainer.py", 1302, "_generate_and_score_completions", "completion_ids = self.vllm_client.generate(prompts=ordered_set_of_prompts)")],
        "compute_logp": [(f"{SITE}/trl/trainer/grpo_trainer.py", 1404, "_generate_and_score_completions", "ref_per_token_logps = self._get_per_token_logps(self.ref_model, prompt_completion_ids)")],
        "train_batch": [(f"{SITE}/transformers/trainer.py", 3782, "training_step", "loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)"), (f"{SITE}/trl/trainer/grpo_trainer.py", 1560, "_compute_loss", "per_token_loss = per_token_loss * completion_mask")],
        "load": [(f"{SITE}/transformers/trainer.py", 2900, "_load_from_checkpoint", "state_dict = torch.load(weights_file, map_location='cpu', weights_only=True)")],
    }  # fmt: skip

    def fields(self, f: Fact):  # type: ignore[no-untyped-def]
        found = super().fields(f)
        found["now"] = self.local(f, "%Y-%m-%d %H:%M:%S,") + self.ms(f)
        found["mmdd"] = self.local(f, "%m-%d %H:%M:%S")
        return found

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        role = f.who.role
        if f.kind == "train_iter":
            return []
        if role == "controller":
            return [("trainer/console.log", text)]
        if role == "train":
            # accelerate's console: tracebacks of a rank bear its number, everything of all ranks runs together.
            body = "\n".join(f"[rank{f.who.rank}]: {x}" for x in text.split("\n")) if f.kind == "exc" else text
            return [("trainer/console.log", body)]
        return [(f"{'vllm' if role == 'rollout' else 'ref'}/{f.who.host.name.split('.')[0]}_server{f.who.index}.log", text)]
