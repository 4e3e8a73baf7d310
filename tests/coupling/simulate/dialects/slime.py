"""slime or miles on Ray with SGLang engines: stages announced as timers, SGLang's own lines, everything forwarded to the driver's console."""

from __future__ import annotations

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact

ACTORS = {"controller": "", "train": "MegatronTrainRayActor", "rollout": "SGLangEngine", "reference": "MegatronTrainRayActor", "meta_server": "ParamStoreActor"}
SOURCES = {"controller": "train.py:{0}", "train": "actor.py:{0}", "rollout": "sglang_engine.py:{0}", "reference": "actor.py:{0}", "meta_server": "param_store.py:{0}"}


class Spoken(Dialect):
    name = "slime"
    package = "slime"
    stages = {"weights_update": "update_weights", "rollout": "rollout", "reference": "ref_log_probs", "train": "actor_train", "latest_recover_save": "save_model", "periodic_recover_save": "save_model", "recover": "load_checkpoint", "init": "init"}
    methods = {"upload_weights": "update_weights", "update_weights": "update_weights_from_distributed", "generate": "generate", "compute_logp": "compute_log_prob", "train_batch": "train", "save": "save_model", "load": "load_checkpoint", "switch": "resume_memory_occupation", "wake": "wake_up", "rollout_start": "offload", "engine_start": "resume_memory_occupation", "rollout_end": "release_memory_occupation", "train_start": "wake_up"}
    roles = {"train": "actor", "rollout": "sglang engine", "reference": "ref", "controller": "driver", "meta_server": "param store"}
    worker_name = "{role} {i}"
    words = {
        "job_begin": "args: --rollout-batch-size {batch} --load {mount}/{job} --save {mount}/{job} --start-rollout-id {first} --rollout-timeout {limit}",
        "worker_up": {"train": "rank {rank} of {world} on {ip} (node {host}), pid {pid}, local gpu {gpu}", "reference": "ref rank {rank} on {ip} (node {host}), pid {pid}, local gpu {gpu}", "meta_server": "serving weights at {ip}:{port} on {host}",
                      "rollout": "server_args=ServerArgs(model_path='/models/{model}', host='{ip}', port={port}, tp_size={tp}, base_gpu_id={gpu}, mem_fraction_static=0.82, node='{host}')"},
        "stage_begin": "Timer {stage} start",
        "stage_end": "Timer {stage} end (elapsed: {secs:.1f}s)",
        "switch_ask": "{event} rank {peer_i} @ {peer_ip}",
        "switch_got": {"train": "{event} begin", "rollout": "[http] POST /{event}"},
        "switch_ok": "{event} rank {peer_i} ok",
        "switch_failed": ["{event} rank {peer_i} @ {peer_ip}: ray.get timed out or failed after {secs}s: {why}; continue with rollout", "WARNING: no reply to {event} from rank {peer_i} @ {peer_ip} in {secs}s ({why})"],
        "mem_free": "[memory] before offload {before:.2f} GB, after offload {after:.2f} GB",
        "mem_take": "[memory] onload done, used {gb:.2f} GB",
        "wu_recv": "weight version {version} loaded",
        "gen_beat": "Decode batch. #running-req: {run}, #token: {toks:.0f}, token usage: 0.41, cuda graph: True, gen throughput (token/s): {toks:.2f}, #queue-req: {queue}",
        "gen_end": "finished {n} samples in {secs:.1f}s",
        "part_in": "rollout {step}: {got}/{want} samples",
        "send_retry": "post of {share} samples to rollout manager failed ({why}), attempt {n}",
        "call_timeout": ["rollout {step}: engine {peer_ip}:{peer_port} did not return within {secs}s", "asyncio.TimeoutError waiting for http://{peer_ip}:{peer_port}/generate ({secs}s), drop it"],
        "go_on_partial": ["rollout {step}: timeout, use {got}/{want} samples collected so far", "rollout {step}: not all engines returned, truncating to {got} samples", "dynamic filter off, batch closed with {got} samples (target {want})"],
        "merged": "rollout {step}: {{'rollout/num_samples': {got}}}",
        "engine_lost": "health check failed for engine {peer_ip}:{peer_port} ({quiet}s)",
        "rerouted": "abort requests of engine {peer_ip}:{peer_port} and retry on other engines",
        "logp_end": "ref log probs: {rows} samples",
        "logp_in": "ref log probs gathered from {peer_ip}: {rows} samples, {bytes} bytes",
        "train_iter": "step {step}: {{'train/loss': {loss:.6f}, 'train/grad_norm': {gnorm:.4f}, 'mem': {gb:.2f}}}",
        "oom_retried": "OutOfMemoryError at {gb:.1f} GB, retry with half max_tokens_per_gpu",
        "save_begin": "saving checkpoint at iteration {step} to {path} in torch_dist format",
        "save_end": "  successfully saved checkpoint from iteration {step} to {path}",
        "save_failed": "save of {path} failed: OSError: {why}",
        "save_warn": ["save_model on rank {peer_i} ({peer_ip}) raised, ignored: {why}", "WARNING: checkpoint incomplete, rank {peer_i} got {why}"],
        "save_slow": "save_model on rank {peer_i} ({peer_ip}) not finished after {secs}s, go on",
        "recover_begin": "loading checkpoint from {path}",
        "store_put": "put {blob} {mb:.0f} MB",
        "store_size": "resident {gb:.1f} GB, {keys} tensors buckets",
        "store_down": "param store exits",
        "call_error": "{method} on {peer_ip}:{peer_port} failed: HTTP {status} {body}",
        "call_retry": "{method} on {peer_ip}:{peer_port} failed: {why}, retry {n}/60",
        "call_recovered": "{method} on {peer_ip}:{peer_port} ok",
        "exc": {"rollout": "Scheduler hit an exception: {trace}", "": "{trace}"},
        "sigterm": "received SIGTERM, exit",
        "stage_failed": "error in {stage}, rollout id {step}: {failure}",
        "cleanup_begin": "shutting down actors and engines",
        "stop_ask": "kill {peer_role} @ {peer_ip}",
        "stop_ok": "{peer_role} @ {peer_ip} gone",
        "stop_timeout": "{peer_role} rank {peer_i} @ {peer_ip} still alive after {secs}s",
        "job_failed": "Traceback (most recent call last):\n  File \"/root/slime/train.py\", line 97, in <module>\n    train(args)\n{failure}",
        "step_end": "perf {step}: {{'perf/step_time': {secs:.2f}, 'rollout/raw_reward': {reward:.4f}}}",
        "job_end": "training done, {steps} rollouts",
        "upgraded": "sglang {old} -> {new}",
        "stopped_by_user": "KeyboardInterrupt, leaving",
    }  # fmt: skip
    errors = {
        "ref_shape": ["RuntimeError|split_with_sizes expects split_sizes to sum exactly to {got} (input tensor's size at dimension 0), but got split_sizes=[{want}]", "AssertionError|len(tokens) = {got}, expected {want}"],
        "ckpt_format": ["safetensors_rust.SafetensorError|Error while deserializing header: HeaderTooLarge", "RuntimeError|Failed to load the model from disk: Invalid safetensors file {path}/model-00003-of-00008.safetensors"],
        "batch": ["AssertionError|num samples {got} != global_batch_size {want}", "ValueError|rollout data: expected {full} per dp rank, got {half}"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0", "AssertionError|len(ref_log_probs) {got} vs len(log_probs) {want}"],
        "stop": "ray.exceptions.GetTimeoutError|Get timed out: some object(s) not ready. {peer_role} {peer_i} did not exit.",
        "recover": ["torch.distributed.checkpoint.api.CheckpointException|CheckpointException ranks:dict_keys({hit})\nEOFError: Ran out of input", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "store_timeout": "requests.exceptions.ReadTimeout|HTTPConnectionPool(host='{store_ip}', port={store_port}): Read timed out. (read timeout={secs})",
        "store_refused": "requests.exceptions.ConnectionError|HTTPConnectionPool(host='{store_ip}', port={store_port}): Max retries exceeded with url: /get (Caused by NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7f1c2ad0a3d0>: Failed to establish a new connection: [Errno 111] Connection refused'))",
        "store_silent": "requests.exceptions.ConnectTimeout|HTTPConnectionPool(host='{store_ip}', port={store_port}): Max retries exceeded with url: /get (Caused by ConnectTimeoutError(<urllib3.connection.HTTPConnection object at 0x7f1c2ad0a3d0>, 'Connection to {store_ip} timed out. (connect timeout={secs})'))",
        "update": "RuntimeError|Failed to update parameter online: {text}",
        "upload": "ray.exceptions.RayTaskError(RuntimeError)|{text}",
        "generate": "RuntimeError|{text}",
        "train": "ray.exceptions.RayTaskError(RuntimeError)|{text}",
        "wake": "ray.exceptions.RayTaskError(RuntimeError)|{text}",
        "sigterm": "SystemExit|15",
    }  # fmt: skip
    frames = {
        "upload_weights": [("/root/slime/slime/backends/megatron_utils/actor.py", 431, "update_weights", "self.weight_updater.update_weights()"), ("/root/slime/slime/backends/megatron_utils/update_weight_utils.py", 512, "update_weights", "self._update_bucket_weights_from_distributed(converted_named_tensors, pbar=pbar)")],
        "share_cuda": [("/root/slime/slime/backends/megatron_utils/update_weight_utils.py", 402, "_send_to_colocated_engine", "MultiprocessingSerializer.serialize(flattened_tensor_data, output_str=True)"), ("/usr/local/lib/python3.12/dist-packages/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", 2890, "run_scheduler_process", "scheduler.event_loop_overlap()"), ("/sgl-workspace/sglang/python/sglang/srt/model_executor/model_runner.py", 903, "update_weights_from_distributed", "handle.wait()")],
        "generate": [("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", 2890, "run_scheduler_process", "scheduler.event_loop_overlap()"), ("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", 1001, "event_loop_overlap", "result = self.run_batch(batch)")],
        "compute_logp": [("/root/slime/slime/backends/megatron_utils/actor.py", 288, "compute_log_prob", "return forward_only(get_log_probs_and_entropy, self.args, self.model, data_iterator)")],
        "train_batch": [("/root/slime/slime/backends/megatron_utils/actor.py", 372, "train_actor", "train(rollout_id, self.model, self.optimizer, self.opt_param_scheduler, data_iterator, num_microbatches)")],
        "wake": [("/root/slime/slime/backends/megatron_utils/actor.py", 190, "wake_up", "torch_memory_saver.resume()")],
        "load": [("/root/slime/slime/backends/megatron_utils/checkpoint.py", 61, "load_checkpoint", "state_dict = dist_checkpointing.load(sharded_state_dict, checkpoint_name)")],
    }  # fmt: skip

    def __init__(self, w: object) -> None:
        super().__init__(w)  # type: ignore[arg-type]
        self.millis = self.rng.random() < 0.5  # miles writes them, slime does not
        self.session = self.rng.randrange(100000, 999999)

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        who = f.who
        stamp = self.local(f, "%Y-%m-%d %H:%M:%S") + (f".{self.ms(f)}" if self.millis else "")
        if level == "raw":
            body = text
        elif who.role == "rollout":
            body = f"[{self.local(f, '%Y-%m-%d %H:%M:%S')}{' TP0' if who.tp > 1 else ''}] {text}"
        else:
            identity = "main" if who.role == "controller" else f"{self.roles[who.role]}_cell0_rank{who.rank}"
            body = f"[{stamp}{' ' + identity if self.millis else ''}] {SOURCES[who.role].format(100 + len(f.kind) * 7)} - {text}"
        if who.role == "controller":
            return [("driver.log", body)]
        ip = "" if who.host is self.w.controller.host else f", ip={who.host.ip}"
        prefix = f"({ACTORS[who.role]} pid={f.data['pid']}{ip}) "
        worker = f"ray/{who.host.ip}/session_latest/logs/worker-{f.data['pid'] * 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F8C % 16**56:056x}-01000000-{f.data['pid']}.err"
        return [("driver.log", "\n".join(prefix + x for x in body.split("\n"))), (worker, body)]
