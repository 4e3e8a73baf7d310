"""NeMo-RL: prints without any time, stages announced with a triangle, everything in ray-driver.log below a Slurm job's folder."""

from __future__ import annotations

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact, World

ACTORS = {"train": "DTensorPolicyWorker", "rollout": "VllmGenerationWorker", "reference": "ReferencePolicyWorker", "meta_server": "WeightStore"}


class Spoken(Dialect):
    name = "nemo_rl"
    modes = ("nccl", "disk", "store")
    stages = {"weights_update": "prepare_for_generation/transfer_and_update_weights", "rollout": "generation", "reference": "policy_and_reference_logprobs", "train": "policy_training", "latest_recover_save": "checkpointing", "periodic_recover_save": "checkpointing", "recover": "checkpoint load", "init": "setup"}
    methods = {"upload_weights": "stream_weights", "update_weights": "update_weights_from_collective", "generate": "generate", "compute_logp": "get_reference_policy_logprobs", "train_batch": "train", "save": "save_checkpoint", "load": "load_checkpoint", "switch": "offload", "wake": "prepare_for_training", "rollout_start": "offload_after_refit", "engine_start": "prepare_for_generation", "rollout_end": "finish_generation", "train_start": "prepare_for_training"}
    roles = {"train": "policy", "rollout": "generation", "reference": "reference", "controller": "driver", "meta_server": "weight store"}
    worker_name = "{role} worker {i}"
    announce = {"weights_update": "▶ Refitting generation weights ({mode})...", "rollout": "▶ Generating responses for batch of size {batch}...", "reference": "▶ Computing logprobs...", "train": "▶ Training policy...", "latest_recover_save": "▶ Saving checkpoint for step {step} to {path}...", "periodic_recover_save": "▶ Saving checkpoint for step {step} to {path}..."}
    words = {
        "job_begin": "📊 Config: {job}, checkpoint dir {mount}/{job}, prompts x generations = {batch}",
        "worker_up": {"": "[{me}] node={host} ip={ip} pid={pid} gpu={gpu} rank={rank}", "meta_server": "[{me}] node={host} serving at {ip}:{port}"},
        "ready": "✅ {workers} workers ready",
        "step_begin": "========================= Step {step}/{total} =========================",
        "stage_begin": "{announce}",
        "switch_got": "[{me}] {event}",
        "switch_ok": "  ✓ {event}: {peer}",
        "switch_failed": ["W|  ⚠️ {event}: {peer} on {peer_host} did not answer in {secs}s ({why}), moving on", "W|  ⚠️ {peer} on {peer_host}: {event} not confirmed ({why})"],
        "mem_free": "GPU Memory before offload: {before:.2f}GB, after: {after:.2f}GB",
        "mem_take": "GPU Memory after onload: {gb:.2f}GB",
        "gen_end": "[{me}] {n} responses",
        "send_retry": "W|[{me}] could not return {share} responses: {why} (attempt {n})",
        "call_timeout": "W|  ⚠️ {peer} on {peer_host} returned nothing within {secs}s",
        "go_on_partial": ["W|  ⚠️ continuing with {got}/{want} responses", "W|  ⚠️ {missing} generation workers late, batch truncated: {got} responses"],
        "merged": "  • responses: {got}",
        "engine_lost": "W|  ⚠️ {peer} on {peer_host} not healthy for {quiet}s",
        "rerouted": "  • prompts of {peer} redistributed",
        "logp_end": "[{me}] logprobs for {rows} rows",
        "logp_in": "  • reference logprobs from {peer}: {rows} rows",
        "train_iter": "[{me}] loss {loss:.4f}, memory {gb:.1f}GB",
        "oom_retried": "W|[{me}] OutOfMemoryError at {gb:.1f}GB, retried with smaller microbatch",
        "save_end": "[{me}] wrote {path}",
        "save_failed": "E|[{me}] {path}: OSError: {why}",
        "save_warn": ["W|  ⚠️ checkpoint incomplete ({peer}: {why})", "W|  ⚠️ {peer}: {why} while checkpointing, keep training"],
        "save_slow": "W|  ⚠️ checkpoint: {peer} on {peer_host} still writing after {secs}s, continuing",
        "recover_begin": "📂 Loading checkpoint from {path}",
        "store_size": "[{me}] {keys} buckets, {gb:.1f} GB",
        "store_down": "E|[{me}] stopped",
        "call_error": "E|ray.exceptions.RayTaskError: {method} on {peer} ({peer_host}, pid={peer_pid}, ip={peer_ip}): {body}",
        "call_retry": "W|  ⚠️ {method} on {peer}: {why}, trying again",
        "call_recovered": "  ✓ {method} on {peer}",
        "exc": "E|{trace}",
        "sigterm": "W|SIGTERM received",
        "stage_failed": "E|❌ {stage} failed in step {step}: {failure}",
        "cleanup_begin": "Shutting down worker groups...",
        "stop_ask": "  • shutting down {peer_role} worker group",
        "stop_ok": "  • {peer_role} worker group down",
        "stop_timeout": "E|  • {peer} on {peer_host} did not shut down within {secs}s",
        "job_failed": "Traceback (most recent call last):\n  File \"/opt/nemo-rl/examples/run_grpo.py\", line 230, in <module>\n    main()\n{failure}",
        "step_end": "⏱️  Timing:\n  • Total step time: {secs:.2f}s\n{timing}",
        "job_end": "Max number of steps has been reached, stopping training early\n✅ Training complete after step {steps}",
        "upgraded": "nemo-rl {old} -> {new}",
        "stopped_by_user": "KeyboardInterrupt",
    }  # fmt: skip
    errors = {
        "ref_shape": ["RuntimeError|shape '[{want}, -1]' is invalid for input of size {got}", "AssertionError|Batch size {got} is not the expected {want}"],
        "ckpt_format": ["safetensors_rust.SafetensorError|Error while deserializing header: MetadataIncompleteBuffer", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "batch": ["AssertionError|Total batch size ({got}) is not equal to train_global_batch_size ({want})"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0"],
        "stop": "ray.exceptions.GetTimeoutError|Get timed out: some object(s) not ready.",
        "recover": ["torch.distributed.checkpoint.api.CheckpointException|CheckpointException ranks:dict_keys({hit})", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "store_timeout": "TimeoutError|weight upload to {store_ip}:{store_port} exceeded {secs}s",
        "store_refused": "ConnectionRefusedError|[Errno 111] Connection refused",
        "store_silent": "TimeoutError|weight download from {store_ip}:{store_port} exceeded {secs}s",
        "update": "RuntimeError|refit failed: {text}",
        "upload": "RuntimeError|{text}",
        "generate": "RuntimeError|{text}",
        "train": "RuntimeError|{text}",
        "wake": "RuntimeError|{text}",
        "sigterm": "SystemExit|15",
    }  # fmt: skip
    frames = {
        "upload_weights": [("/opt/nemo-rl/nemo_rl/models/policy/dtensor_policy_worker.py", 1688, "stream_weights", "self.model_update_group.broadcast(tensor, src=0)")],
        "share_cuda": [("/opt/nemo-rl/nemo_rl/models/policy/utils.py", 201, "get_handle_from_tensor", "return reduce_tensor(tensor.detach())[1:]"), ("/opt/ray_venvs/lib/python3.12/site-packages/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [("/opt/nemo-rl/nemo_rl/models/generation/vllm/vllm_backend.py", 166, "update_weights_from_collective", "packed_broadcast_consumer(iterator, self.model_update_group)")],
        "generate": [("/opt/nemo-rl/nemo_rl/models/generation/vllm/vllm_worker.py", 521, "generate", "outputs = self.llm.generate(prompts, sampling_params)")],
        "compute_logp": [("/opt/nemo-rl/nemo_rl/algorithms/grpo.py", 801, "get_reference_policy_logprobs", "logits = self.model(input_ids=input_ids)")],
        "train_batch": [("/opt/nemo-rl/nemo_rl/models/policy/dtensor_policy_worker.py", 702, "train", "loss, loss_metrics = loss_fn(logits, mb)")],
        "load": [("/opt/nemo-rl/nemo_rl/utils/native_checkpoint.py", 232, "load_checkpoint", "dcp.load(state_dict=model_state_dict, checkpoint_id=weights_path)")],
    }  # fmt: skip

    def __init__(self, w: World) -> None:
        super().__init__(w)
        self.base = f"logs/{self.rng.randrange(100000, 999999)}-logs"

    def fields(self, f: Fact):  # type: ignore[no-untyped-def]
        found = super().fields(f)
        if f.kind == "stage_begin":
            found["announce"] = self.announce[f.stage or ""].format_map(found)
        if f.kind == "step_end":
            found["timing"] = "\n".join(f"  • {self.stages[s]}: {v:.2f}s ({v / f.data['secs'] * 100:.1f}%)" for s, v in f.data["times"].items())
        return found

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        if f.who.role == "controller":
            return [(f"{self.base}/ray-driver.log", text)]
        ip = "" if f.who.host is self.w.controller.host else f", ip={f.who.host.ip}"
        return [(f"{self.base}/ray-driver.log", "\n".join(f"({ACTORS[f.who.role]} pid={f.data['pid']}{ip}) {x}" for x in text.split("\n")))]
