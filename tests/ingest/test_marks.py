"""Which lines announce, end or sum up a stage, in whatever words, and which only look so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rca.ingest import courses, marks
from rca.ingest.line import parse
from rca.ingest.read import ingest

W, R, F, T = "weights_update", "rollout", "reference", "train"
L, P = "latest_recover_save", "periodic_recover_save"

#: line -> (stage, step, phase); the first mark of the line.
TRUE = [
    # AReaL asystem and public
    ("(AReaL) 20260821-21:04:43.645 Trainer INFO: start to update weight, step: 1, epoch: 0", W, 1, "start"),
    ("(AReaL) 20260821-21:05:01.130 Trainer INFO: astate update weight succeeded, step: 1", W, 1, "end"),
    ("(AReaL) 20260821-21:05:01.800 Trainer INFO: start to notify_rollout_start_event, step: 1", R, 1, "start"),
    ("(AReaL) 20260821-21:05:05.100 Trainer INFO: start to rollout, step: 1, epoch: 0", R, 1, "start"),
    ("(AReaL) 20261017-03:24:52.046 Trainer INFO: start to compute_logprobs_with_distributed, step: 132, epoch: 0", F, 132, "start"),
    ("(AReaL) 20261017-03:21:32.952 Trainer INFO: [Trainer] start save latest_checkpoint recover info, epoch:0, epoch_step: 131, global_step:640", L, 640, "start"),
    ("(AReaL) 20261017-03:21:42.089 Trainer INFO: periodic_checkpoint recover save success, cost 9.14s", P, None, "end"),
    ("(AReaL) 20261017-03:25:44.295 Trainer INFO: An error occurred during training, scheduler begin cleanup resource.", "cleanup", None, "start"),
    ("(AReaL) 20260821-21:04:43.666 RPCClient INFO: Async calling method 'train_batch' on worker 'actor/4' (attempt 1), url: http://10.4.7.22:18000/call", T, None, "start"),
    ("│ timeperf/update_weights         │ 2.3898e+01 │", W, None, "after"),
    # verl
    ("(TaskRunner pid=3) step:7 - actor/loss:0.1 - timing_s/gen:12.3 - timing_s/ref:1.0 - training/global_step:7", R, 7, "after"),
    ("(TaskRunner pid=3) Resuming from /ckpt/global_step_200", "recover", 200, "start"),
    # slime, miles, SkyRL, NeMo-RL, OpenRLHF
    ("[2026-08-20 10:00:00.123 actor_cell0_rank3] timer.py:34 - Timer actor_train start", T, None, "start"),
    ("[2026-08-20 10:00:00 rollout_manager] timer.py:40 - Timer rollout end (elapsed: 12.3s)", R, None, "end"),
    ("[2026-08-20 10:00:00.123 main] ft.py:34 - ft op=update_weights phase=start rollout=12", W, 12, "start"),
    ("2025-08-20 10:00:00.123 | INFO     | skyrl_train.utils.utils:__enter__:412 - Started: 'sync_weights_to_inference_engines'", W, None, "start"),
    ("▶ Computing logprobs...", F, None, "start"),
    ("▶ Generating responses for batch of size 64...", R, None, "start"),
    ("  • policy_training: 13.21s (26.0%)", T, None, "after"),
    ("INFO 08-13 19:25:45 ppo_trainer.py:547] ✨ Global step 12: {'timing/broadcast': 5.1, 'timing/ppo_train': 40.5}", W, 12, "after"),
    # engines
    ('[2025-01-01 00:00:00] INFO:     10.0.0.1:1234 - "POST /update_weights_from_distributed HTTP/1.1" 200 OK', W, None, "end"),
    # home-grown
    ("2026-09-04 18:22:02,865 INFO [driver] [step 1] weight-sync: start", W, 1, "start"),
    ("ts=1789749454.773 level=info src=driver msg=\"[step 14] sync_weights: done in 24.2s\"", W, 14, "end"),
    ('{"time": "2026-08-04T15:02:10+0800", "level": "info", "logger": "driver", "message": "[step 351] ref_logp: done in 25.4s"}', F, 351, "end"),
    ("2026-09-24 05:17:52.443 | INFO     | driver:167 - [step 354] broadcast_params: start", W, 354, "start"),
    ("[step 34] policy_train: done in 66.8s", T, 34, "end"),
    ("[step 4] ckpt-periodic: trainer rank 0 timed out after 3600s, continuing", P, 4, "failed"),
    ("INFO 2026-09-24 05:17:52 step 12 | starting rollout", R, 12, "start"),
    ("12:00:01 main [iter 88] Begin generating rollouts", R, 88, "start"),
    ("step=9 phase=train begin", T, 9, "start"),
    ("=== Step 5: rollout phase ===", R, 5, "start"),
    (">>> [17] Syncing weights to 8 inference engines (step 17)", W, 17, "start"),
    ("Weights sync finished in 3.2s (step 17)", W, 17, "end"),
    ("[Step 3/500] Reference logprobs started", F, 3, "start"),
    ("[controller] experience collection completed, step 40, took 81.0s", R, 40, "end"),
    ("global_step 40: actor update started", T, 40, "start"),
    ("save checkpoint started at step 50 -> /ckpt/periodic/step_50", P, 50, "start"),
    ("Saving checkpoint to /ckpt/step_50", "save", None, "start"),
    ("evaluation: start (step 10)", "eval", 10, "start"),
    ("recovering from /ckpt/iter_0000120", "recover", 120, "start"),
    ("Cleaning up resources", "cleanup", None, "start"),
    ("shutting down all workers", "cleanup", None, "start"),
    ("2026-09-24 05:17:52 [WARN] push weights failed after 3 tries, step 12", W, 12, "failed"),
    # Chinese
    ("2026-09-24 05:17:52 INFO 第13步 采样完成", R, 13, "end"),
    ("第 4 步 开始同步权重", W, 4, "start"),
    ("[步骤 13] 权重同步: 开始", W, 13, "start"),
    ("【第 21 步】策略更新完成，耗时 33.2 秒", T, 21, "end"),
    ("第7步：开始计算参考对数概率", F, 7, "start"),
    ("第12步 保存周期检查点 失败", P, 12, "failed"),
    ("开始清理资源", "cleanup", None, "start"),
    ("从检查点恢复 /ckpt/step_300", "recover", 300, "start"),
    ("第8步 正在同步权重", W, 8, "start"),
]

#: Lines that speak of stages and are no marks.
MISS = [
    "Generating train split: 100%|##########| 1000/1000 [00:01<00:00, 999.00 examples/s]",
    "Loading checkpoint shards: 100%|#| 4/4 [00:03<00:00]",
    "Starting rollout worker 3",
    "rollout server started on port 30000",
    "train worker 2 pid=10727 host=gn0028 ip=10.29.150.28 port=18002 CUDA_VISIBLE_DEVICES=2 rank=2",
    "We start training with a small learning rate and finish with a large one",
    "The rollout is done by vLLM, and the weights are synced over NCCL when it has finished",
    "rollout_batch_size=64 train_batch_size=128 update_weights_interval=1",
    "step=12 loss=0.31 rollout/time_s: 33.1 train/step: 12",
    "    return self.update_weights(started=True)",
    '  File "/workspace/verl/trainer/ppo/ray_trainer.py", line 1041, in start_rollout',
    "Training failed with exception: InferenceEngineError: RolloutError: CUDA out of memory",
    "Sampling params: temperature=1.0 start",
    "INFO: starting training data loader",
    "evaluation config: start=0 end=10",
    "Token indices sequence length is longer than the specified maximum sequence length for this model (9120 > 8192)",
    "Some weights of the model checkpoint were not used when initializing",
    "start_token_id=1 end_token_id=2 policy=default",
    "actor/grad_norm:0.4 actor/entropy:0.3 policy started at 0.1 lr",
    "model weights take 14.52 GiB; available KV cache memory: 40.03 GiB",
    "Engine 000: Avg prompt throughput: 303.3 tokens/s, Avg generation throughput: 2384.6 tokens/s, Running: 63 reqs",
    "generation_config.json loaded, generation started with default config",
    "参数: 学习率 1e-6, 批大小 64, 开始",
    "PCI: policy start 0x1000 end 0x1fff",
    "save_dir=/ckpt save_interval=50 start=0",
]


def told(text: str) -> list[marks.Told]:
    line = parse(text)
    return marks.read(line.text, step=line.step)


@pytest.mark.parametrize(("text", "stage", "step", "phase"), TRUE)
def test_marks(text: str, stage: str, step: int | None, phase: str) -> None:
    """An announcement gives its stage, its step as printed and its phase."""
    found = told(text)
    assert found and (found[0].stage, found[0].step, found[0].phase) == (stage, step, phase)


@pytest.mark.parametrize("text", MISS)
def test_look_alikes(text: str) -> None:
    """Prose, settings, progress bars and names of things are no marks."""
    assert told(text) == []


def test_each_entry_takes_its_own_line() -> None:
    """The `true` line of every entry is a mark of its stage."""
    import tomllib

    for path in sorted(courses.HERE.glob("*.toml")):
        data = tomllib.loads(path.read_text("utf-8"))
        for entry in data.get("mark", []):
            found = told(entry["true"])
            assert found, entry["true"]
            assert entry.get("stage", found[0].stage) in (found[0].stage, "save")
        if timer := data.get("timer"):
            assert told(timer["true"]), timer["true"]
            assert timer.get("scan", "") in timer["true"].lower()


def test_announcements_in_the_midst_of_a_long_log_are_read(tmp_path: Path) -> None:
    """A controller's log is decoded where it announces a stage, however long it is, and nowhere else."""
    noise = "".join(f"2026-09-04 18:22:02,865 INFO [driver] request {i} of many was answered by a worker\n" for i in range(900))
    text = "".join(f"2026-09-04 18:{s:02}:00,000 INFO [driver] [step {s}] weight-sync: start\n{noise}" for s in range(1, 30))
    (tmp_path / "driver.log").write_text(text)
    (reading,), _ = ingest([tmp_path], workers=1)
    found = reading.facts["streams"][""]["marks"]
    assert [m[2] for m in found] == list(range(1, 30))
    assert {m[1] for m in found} == {W}


def test_frameworks_are_recognised(tmp_path: Path) -> None:
    """Who printed the lines is known by them."""
    (tmp_path / "ray-driver.log").write_text("========================= Step 3/100 =========================\n▶ Training policy...\n")
    (tmp_path / "console.log").write_text("(TaskRunner pid=3) step:7 - timing_s/gen:12.3 - timing_s/ref:1.0\n")
    readings, _ = ingest([tmp_path], workers=1)
    assert [r.facts["frameworks"] for r in readings] == [["verl"], ["nemo-rl"]]
