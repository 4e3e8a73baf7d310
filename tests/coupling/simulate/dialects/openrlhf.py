"""OpenRLHF on Ray with vLLM: the driver's console only, month and day without a year, steps summed up after they end, actors by class name."""

from __future__ import annotations

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact

LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "D": "DEBUG"}
ACTORS = {"controller": "PPOTrainer", "train": "PolicyModelActor", "rollout": "LLMRayActor", "reference": "ReferenceModelActor", "meta_server": "WeightServer"}
SOURCES = {"controller": "ppo_trainer.py:{0}", "train": "ppo_actor.py:{0}", "rollout": "vllm_engine.py:{0}", "reference": "launcher.py:{0}", "meta_server": "weight_server.py:{0}"}
SITE = "/usr/local/lib/python3.12/dist-packages"


class Spoken(Dialect):
    name = "openrlhf"
    modes = ("nccl", "disk", "store")
    stages = {"weights_update": "broadcast", "rollout": "generation", "reference": "make_experience", "train": "ppo_train", "latest_recover_save": "save_checkpoint", "periodic_recover_save": "save_checkpoint", "recover": "load_checkpoint", "init": "init"}
    methods = {"upload_weights": "broadcast_to_vllm", "update_weights": "update_weight", "generate": "generate", "compute_logp": "forward", "train_batch": "fit", "save": "save_checkpoint", "load": "load_checkpoint", "switch": "sleep", "wake": "reload_states", "rollout_start": "offload_states", "engine_start": "wake_up", "rollout_end": "sleep", "train_start": "reload_states"}
    roles = {"train": "PolicyModelActor", "rollout": "LLMRayActor", "reference": "ReferenceModelActor", "controller": "PPOTrainer", "meta_server": "WeightServer"}
    words = {
        "job_begin": "Training {job}: starting at global step {first}, rollout_batch_size {batch}, ckpt_path {mount}/{job}",
        "worker_up": {"train": "rank {rank} world_size {world} node_ip {ip} hostname {host} pid {pid} CUDA_VISIBLE_DEVICES {gpu}", "reference": "rank {rank} node_ip {ip} hostname {host} pid {pid} CUDA_VISIBLE_DEVICES {gpu}",
                      "rollout": "vLLM engine {i} on {ip} (hostname {host}) pid {pid} bundle gpu {gpu} tp {tp}", "meta_server": "weight server {ip}:{port} on {host}"},
        "ready": "{workers} actors created",
        "switch_ask": "{event} -> {peer_role} {peer_i} ({peer_ip})",
        "switch_got": "{event} called",
        "switch_ok": "{event} done on {peer_role} {peer_i}",
        "switch_failed": ["W|{event} -> {peer_role} {peer_i} ({peer_ip}) not finished after {secs}s ({why}), ignored", "W|{peer_role} {peer_i} ({peer_ip}) did not confirm {event}: {why}"],
        "mem_free": "offload_states: cuda allocated {before:.2f}GB -> {after:.2f}GB",
        "mem_take": "reload: cuda allocated {gb:.2f}GB",
        "gen_beat": "Avg prompt throughput: {toks:.1f} tokens/s, Avg generation throughput: {toks:.1f} tokens/s, Running: {run} reqs, Waiting: {queue} reqs, GPU KV cache usage: 41.7%",
        "gen_end": "{n} requests finished, {secs:.1f}s",
        "send_retry": "W|returning {share} outputs failed: {why} (retry {n})",
        "call_timeout": ["W|ray.get on LLMRayActor {peer_i} ({peer_ip}) timed out after {secs}s", "W|LLMRayActor {peer_i} ({peer_ip}): no outputs after {secs}s"],
        "go_on_partial": ["W|generation: using {got} of {want} samples, {missing} engines missing", "W|only {got} samples came back, training on them"],
        "merged": "generated {got} samples",
        "engine_lost": "W|LLMRayActor {peer_i} ({peer_ip}) unresponsive for {quiet}s",
        "rerouted": "requests of LLMRayActor {peer_i} sent to other engines",
        "logp_end": "base_action_log_probs for {rows} samples, {secs:.1f}s",
        "logp_in": "base_action_log_probs: {rows} rows from ReferenceModelActor {peer_i} ({bytes} bytes)",
        "train_iter": "policy_loss {loss:.5f} grad_norm {gnorm:.4f} mem {gb:.1f}GB",
        "oom_retried": "W|CUDA OOM caught at {gb:.1f}GB, micro_train_batch_size halved, retry ok",
        "save_begin": "[Torch] Saving {path}",
        "save_end": "[Torch] Saved {path}",
        "save_failed": "E|save_checkpoint {path}: {why}",
        "save_warn": "W|save_checkpoint on PolicyModelActor {peer_i} failed ({why}), skipped",
        "save_slow": "W|save_checkpoint on PolicyModelActor {peer_i} ({peer_ip}) still running after {secs}s, not waiting any longer",
        "recover_begin": "Loading the checkpoint: {path}",
        "store_put": "PUT {blob} ({mb:.0f} MB)",
        "store_size": "{keys} keys, {gb:.1f} GB",
        "store_down": "E|server loop ended",
        "call_error": "E|ray::{peer_role}.{method}() (pid={peer_pid}, ip={peer_ip}) raised: {body}",
        "call_retry": "W|{method} on {peer_role} {peer_i}: {why}, retrying ({n})",
        "call_recovered": "{method} on {peer_role} {peer_i} ok after retry",
        "exc": "E|{trace}",
        "sigterm": "W|got SIGTERM",
        "stage_failed": "E|step {step} failed during {stage}: {failure}",
        "cleanup_begin": "shutdown: killing actors",
        "stop_ask": "ray.kill {peer_role} group",
        "stop_ok": "{peer_role} group killed",
        "stop_timeout": "E|{peer_role} {peer_i} ({peer_ip}) not dead after {secs}s",
        "job_failed": "E|Training aborted. {failure}",
        "step_end": "✨ Global step {step}: {metrics}",
        "job_end": "Training finished, final model saved to {mount}/{job}",
        "upgraded": "openrlhf {old} -> {new}",
        "stopped_by_user": "W|KeyboardInterrupt",
    }  # fmt: skip
    errors = {
        "ref_shape": ["RuntimeError|Sizes of tensors must match except in dimension 1. Expected size {want} but got size {got} for tensor number 1 in the list.", "AssertionError|len(samples) {got} != rollout_batch_size * n_samples {want}"],
        "ckpt_format": ["safetensors_rust.SafetensorError|Error while deserializing header: HeaderTooLarge", "EOFError|Ran out of input"],
        "batch": ["AssertionError|replay buffer has {got} items, train_batch_size needs {want}", "ValueError|number of samples {got} is not what the actors expect: {want}"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0"],
        "stop": "ray.exceptions.GetTimeoutError|Get timed out: some object(s) not ready.",
        "recover": ["RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory", "_pickle.UnpicklingError|pickle data was truncated"],
        "store_timeout": "TimeoutError|PUT to {store_ip}:{store_port} did not complete in {secs}s",
        "store_refused": "ConnectionRefusedError|[Errno 111] Connection refused",
        "store_silent": "TimeoutError|GET from {store_ip}:{store_port} timed out after {secs}s",
        "update": "RuntimeError|update_weight failed: {text}",
        "upload": "RuntimeError|{text}",
        "generate": "RuntimeError|{text}",
        "train": "RuntimeError|{text}",
        "wake": "RuntimeError|{text}",
        "sigterm": "SystemExit|143",
    }  # fmt: skip
    frames = {
        "upload_weights": [(f"{SITE}/openrlhf/trainer/ray/ppo_actor.py", 402, "_broadcast_to_vllm", "_broadcast_param(param, count, num_params)")],
        "share_cuda": [(f"{SITE}/openrlhf/trainer/ray/ppo_actor.py", 431, "_handle_cuda_ipc", "ipc_handle = reduce_tensor(weight)"), (f"{SITE}/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [(f"{SITE}/openrlhf/trainer/ray/vllm_worker_wrap.py", 71, "update_weight", "self._model_update_group.broadcast(weight, src=0, stream=torch.cuda.current_stream())")],
        "generate": [(f"{SITE}/openrlhf/trainer/ray/vllm_engine.py", 142, "generate", "responses = self.llm.generate(prompts=requests, sampling_params=sampling_params)")],
        "compute_logp": [(f"{SITE}/openrlhf/trainer/ray/launcher.py", 118, "forward", "log_probs = self.model(sequences.to(device), action_mask.to(device), attention_mask.to(device))")],
        "train_batch": [(f"{SITE}/openrlhf/trainer/ray/ppo_actor.py", 240, "training_step", "self.strategy.backward(loss, self.actor, self.actor_optim)")],
        "load": [(f"{SITE}/openrlhf/utils/deepspeed/deepspeed.py", 540, "load_ckpt", "load_path, states = model.load_checkpoint(load_dir, tag)")],
    }  # fmt: skip

    def fields(self, f: Fact):  # type: ignore[no-untyped-def]
        found = super().fields(f)
        if f.kind == "step_end":
            found["metrics"] = {"policy_loss": round(f.data["loss"], 5), "reward": round(f.data["reward"], 4), **{f"timing/{self.stages[s]}": round(v, 2) for s, v in f.data["times"].items()}, "timing/step_total": round(f.data["secs"], 2)}
        return found

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        who = f.who
        head = "" if level == "raw" else f"{LEVELS[level]} {self.local(f, '%m-%d %H:%M:%S')} {SOURCES[who.role].format(60 + len(f.kind) * 11)}] "
        ip = "" if who.host is self.w.controller.host else f", ip={who.host.ip}"
        name = ACTORS[who.role]
        return [("driver_console.log", "\n".join(f"({name} pid={f.data['pid']}{ip}) {head}{x}" for x in text.split("\n")))]
