"""AReaL's public main branch: one file per role, a merged file with role prefixes, steps told after they end; engine methods fail in workers."""

from __future__ import annotations

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact, World

LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "D": "DEBUG"}
FILES = {"controller": "main", "train": "actor", "rollout": "rollout", "reference": "ref", "meta_server": "weight_store"}
SERVE = ("/AReaL/areal/infra/rpc/rpc_server.py", 512, "call_engine_method", "result = await loop.run_in_executor(executor, functools.partial(method, *args, **kwargs))")


class Spoken(Dialect):
    name = "areal_main"
    stages = {"weights_update": "update_weights", "rollout": "rollout", "reference": "ref_logp", "train": "train_step", "latest_recover_save": "checkpoint_for_recover", "periodic_recover_save": "save", "recover": "load", "init": "initialize"}
    methods = {"upload_weights": "update_weights", "update_weights": "update_weights_from_distributed", "generate": "agenerate", "compute_logp": "compute_logp", "train_batch": "ppo_update", "save": "save", "load": "load", "switch": "offload", "wake": "onload", "rollout_start": "actor_offload", "engine_start": "rollout_onload", "rollout_end": "rollout_offload", "train_start": "actor_onload"}
    roles = {"train": "actor", "rollout": "rollout", "reference": "ref", "controller": "main", "meta_server": "weight_store"}
    worker_name = "{role}/{i}"
    words = {
        "job_begin": "Start training {job} from global step {first}",
        "conf": "Config: train_dataset.batch_size={batch}, weight_update_mode={mode}, request_timeout={limit}, recover.dir={mount}/{job}",
        "worker_up": {"": "Worker '{me}' ready at {ip}:{port} (host {host}, pid {pid}, CUDA_VISIBLE_DEVICES={gpu})", "meta_server": "Weight store listening on {ip}:{port} (host {host}, pid {pid})"},
        "ready": "All {workers} workers are ready.",
        "switch_ask": "Calling '{event}' on worker '{peer}' ({peer_ip}:{peer_port})",
        "switch_got": "Received {event}",
        "switch_ok": "'{event}' on worker '{peer}' returned",
        "switch_failed": ["W|'{event}' on worker '{peer}' ({peer_ip}:{peer_port}) got no answer in {secs}s: {why}. Proceeding.", "E|Failed to call '{event}' on worker '{peer}' at {peer_ip}:{peer_port}: {why} ({secs}s)"],
        "mem_free": "Memory-Usage after offload: memory reserved (GB): {before:.2f} -> {after:.2f}",
        "mem_take": "Memory-Usage after onload: memory reserved (GB): {gb:.2f}",
        "wu_recv": "Model updated to version {version}",
        "gen_begin": "Accepted {n} requests",
        "gen_beat": "D|running={run} pending={queue} throughput={toks:.1f} tokens/s",
        "gen_end": "Finished {n} trajectories in {secs:.1f}s",
        "part_in": "D|Collected {got}/{want} trajectories",
        "send_retry": "W|Posting {share} trajectories failed: {why}. Retry {n}.",
        "call_timeout": "W|Request {method} to worker '{peer}' ({peer_ip}:{peer_port}) timed out after {secs}s",
        "go_on_partial": ["W|Timed out waiting for {want} rollouts, only received {got}. Preparing batch with what arrived.", "W|prepare_batch: {got} trajectories ready, {missing} workers did not respond. Continue."],
        "merged": "Rollout batch: {got} trajectories",
        "engine_lost": "W|Worker '{peer}' failed {quiet}s of health checks",
        "rerouted": "Requests of '{peer}' are resubmitted elsewhere",
        "logp_end": "compute_logp done for {rows} sequences",
        "logp_in": "D|compute_logp from '{peer}': {rows} sequences, {bytes} bytes",
        "train_iter": "loss {loss:.5f} grad_norm {gnorm:.4f} reserved {gb:.2f} GB",
        "oom_retried": "W|torch.OutOfMemoryError at {gb:.1f} GB reserved, retrying with half the tokens per microbatch",
        "save_begin": "Saving to {path}",
        "save_end": "Saved to {path} in {secs:.1f}s",
        "save_failed": "E|Failed to save {path}: OSError: {why}",
        "save_warn": ["W|Checkpoint for recover not complete on '{peer}': {why}. Ignored.", "W|'{peer}' failed to dump its shard ({why}), will retry at the next step."],
        "save_slow": "W|save on worker '{peer}' ({peer_ip}) did not return within {secs}s, training continues",
        "recover_begin": "Loading recover checkpoint from {path}",
        "store_put": "put {blob}: {mb:.0f} MB in {parts} parts",
        "store_size": "storage_size {gb:.2f} GB, {keys} keys",
        "store_down": "E|weight store terminated",
        "call_error": "E|Failed to call method '{method}' on worker '{peer}': HTTP {status}: {{\"error\": \"Engine method '{method}' failed: {body}\"}} (after 1 attempts)",
        "call_retry": "W|Method '{method}' failed on worker '{peer}' (attempt {n}/3): Connection error: {why}. Retrying in 10.0s...",
        "call_recovered": "Method '{method}' on worker '{peer}' succeeded on attempt {n}",
        "exc": "E|Engine method '{method}' failed: {error_text}\n{trace}",
        "sigterm": "W|Received signal 15, terminating",
        "stage_failed": "E|Training failed with exception: {failure}",
        "cleanup_begin": "Destroying engines and deleting workers",
        "stop_ask": "Deleting workers of role '{peer_role}'",
        "stop_ok": "Deleted workers of role '{peer_role}'",
        "stop_timeout": "E|Worker '{peer}' did not terminate within {secs}s",
        "job_failed": "E|Experiment failed: {failure}",
        "step_end": "Epoch 1/1 Step {step}/{total} Train step {step}/{total} done.",
        "job_end": "Training completes! Total steps {steps}",
        "upgraded": "areal version {old} -> {new}",
        "stopped_by_user": "W|Interrupted by user",
    }  # fmt: skip
    errors = {
        "ref_shape": ["RuntimeError|shape '[{want}, -1]' is invalid for input of size {got}", "AssertionError|attention_mask has {got} rows, expected {want}"],
        "ckpt_format": ["safetensors_rust.SafetensorError|Error while deserializing header: MetadataIncompleteBuffer", "OSError|Unable to load weights from pytorch checkpoint file for '{path}' at '{path}/pytorch_model.bin'."],
        "batch": ["AssertionError|batch size {got} does not match expected {want}", "ValueError|Cannot split {got} sequences into dp groups of {full}"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0"],
        "stop": "areal.api.scheduler_api.WorkerTimeoutError|Timeout waiting for worker '{peer}' (waited {secs}s)",
        "recover": ["RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory", "EOFError|Ran out of input"],
        "store_timeout": "TimeoutError|put to http://{store_ip}:{store_port} timed out after {secs}s",
        "store_refused": "aiohttp.client_exceptions.ClientConnectorError|Cannot connect to host {store_ip}:{store_port} ssl:default [Connect call failed ('{store_ip}', {store_port})]",
        "store_silent": "asyncio.exceptions.TimeoutError|get from http://{store_ip}:{store_port} timed out after {secs}s",
        "update": "RuntimeError|Failed to update weights: {text}",
        "upload": "RuntimeError|{text}",
        "generate": "RuntimeError|{text}",
        "train": "RuntimeError|{text}",
        "wake": "RuntimeError|{text}",
        "sigterm": "SystemExit|15",
    }  # fmt: skip
    frames = {
        "": [SERVE],
        "upload_weights": [SERVE, ("/AReaL/areal/engine/fsdp_engine.py", 611, "update_weights", "self._update_weights_from_distributed(meta)")],
        "share_cuda": [SERVE, ("/AReaL/areal/engine/fsdp_utils/ipc.py", 58, "export_bucket", "handle = ForkingPickler.dumps(bucket)"), ("/usr/local/lib/python3.12/dist-packages/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [SERVE, ("/AReaL/areal/engine/sglang_remote.py", 214, "update_weights", "raise RuntimeError(msg)")],
        "generate": [SERVE, ("/AReaL/areal/engine/sglang_remote.py", 131, "agenerate", "result = await self._post(req)")],
        "compute_logp": [SERVE, ("/AReaL/areal/trainer/ppo/actor.py", 92, "compute_logp", "return self.engine.forward(input_=data)")],
        "train_batch": [SERVE, ("/AReaL/areal/trainer/ppo/actor.py", 241, "ppo_update", "train_stat = self.engine.train_batch(mb, loss_fn=loss_fn)")],
        "load": [SERVE, ("/AReaL/areal/engine/fsdp_engine.py", 402, "load", "dcp.load(state_dict, checkpoint_id=path)")],
        "wake": [SERVE, ("/AReaL/areal/engine/fsdp_engine.py", 655, "onload", "torch_memory_saver.resume()")],
    }  # fmt: skip

    def __init__(self, w: World) -> None:
        super().__init__(w)
        self.coloured = self.rng.random() < 0.4
        self.base = f"logs/{self.rng.choice(('ops', 'yj', 'train'))}/{w.run}/trial{self.rng.randrange(4)}"

    def logger(self, f: Fact) -> str:
        return {"controller": "RLTrainer", "train": f"[FSDPEngine Rank {f.who.rank}]", "rollout": f"[SGLangEngine {self.called(f.who)}]", "reference": f"[FSDPEngine Rank {f.who.rank}]", "meta_server": "WeightStore"}[f.who.role]

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        role = FILES[f.who.role]
        if level == "raw":
            body = text
        else:
            head = "\x1b[38;2;30;144;255m(AReaL)\x1b[0m" if self.coloured else "(AReaL)"
            body = f"{head} {self.local(f, '%Y%m%d-%H:%M:%S.')}{self.ms(f)} {self.logger(f)} {LEVELS[level]}: {text}"
        if f.kind == "exc":
            body = body.replace("Engine method '' failed", f"Engine method '{self.methods.get(f.data.get('at', ''), f.data.get('at', ''))}' failed")
        if f.kind == "step_end":
            body += "\n" + self.table(f)
        merged = "\n".join(f"{'[' + role + ']':<10}{x}" for x in body.split("\n"))
        return [(f"{self.base}/{role}.log", body), (f"{self.base}/merged.log", merged)]

    def table(self, f: Fact) -> str:
        """The stats box; `times` holds seconds per stage."""
        rows = [*(f"│ timeperf/{self.stages[s]:<36} │ {v:10.4e} │" for s, v in f.data["times"].items()), f"│ {'grpo_actor/loss/avg':<45} │ {f.data['loss']:10.4e} │", f"│ {'grpo_actor/task_reward/avg':<45} │ {f.data['reward']:10.4e} │"]
        return "\n".join(["Stats (1/1):", "╒" + "═" * 47 + "╤" + "═" * 12 + "╕", *rows, "╘" + "═" * 47 + "╧" + "═" * 12 + "╛"])
