"""What Ray prints of one failure: the worker's own traceback, the driver's reprints of it, the block of a dead actor, folded lines."""

from __future__ import annotations

from pathlib import Path

from rca.correlate.correlate import correlate
from rca.ingest.read import ingest
from rca.model import Event
from rca.taxonomy import QUIET_KINDS, Kind

DRIVER = """\
Error executing job with overrides: ['trainer.nnodes=2']
Traceback (most recent call last):
  File "/opt/verl/verl/trainer/main_ppo.py", line 99, in run_ppo
    ray.get(runner.run.remote(config))
  File "/usr/lib/python3/dist-packages/ray/_private/worker.py", line 930, in get_objects
    raise value.as_instanceof_cause()
ray.exceptions.RayTaskError({error}): ray::TaskRunner.run() (pid=17655, ip=10.128.0.8, actor_id=8752, repr=<main_ppo.TaskRunner object at 0x7ed>)
  File "/opt/verl/verl/trainer/ppo/ray_trainer.py", line 1003, in fit
    output = self.actor_rollout_wg.update_actor(batch)
ray.exceptions.RayTaskError({error}): ray::WorkerDict.{method}() (pid=18211, ip=10.128.0.9, actor_id=9752, repr=<verl.WorkerDict object at 0x7ee>)
  File "/opt/verl/verl/single_controller/ray/base.py", line 399, in func
    return getattr(self.worker_dict[key], name)(*args, **kwargs)
  File "/opt/verl/verl/workers/fsdp_workers.py", line 333, in f
    boom()
{message}
"""
REMOTE = """\
Traceback (most recent call last):
  File "/opt/verl/verl/workers/fsdp_workers.py", line 333, in f
    boom()
{message}
"""
DIED = """\
ray.exceptions.{error}: The actor died unexpectedly before finishing this task.
\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict
\tactor_id: d9cc467228965f31cb6dbc9301000000
\tpid: 20174
\tname: Zap04XWorkerDict_0:1
\tnamespace: de88eeeb
\tip: 10.164.37.106
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error \
code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. \
(3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.
"""
LENGTH = "ValueError: the sequence has 3011 tokens, more than the 2048 that a micro batch may hold"


def run_of(folder: Path, **files: str) -> list[Event]:
    """The events of a run folder, loud ones only."""
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text, "utf-8")
    readings, _ = ingest([folder], workers=1)
    return [e for e in correlate(readings).events if e.kind not in QUIET_KINDS]


def test_nested_reprint_is_the_innermost_call(tmp_path: Path) -> None:
    """One event, at the worker that raised it, in the stage that its method belongs to."""
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.24 GiB."
    (event,) = run_of(tmp_path, driver=DRIVER.format(error="OutOfMemoryError", method="actor_rollout_update_actor", message=message))
    assert (event.kind, event.pid, event.host, event.stage) == (Kind.DEVICE_OOM, 18211, "10.128.0.9", "train")
    assert event.attrs["method"] == "actor_rollout_update_actor"


def test_reprint_without_its_head(tmp_path: Path) -> None:
    """A fragment that begins with the heading of the reprint."""
    whole = DRIVER.format(error="ValueError", method="ref_compute_ref_log_prob", message=LENGTH)
    (event,) = run_of(tmp_path, driver=whole[whole.index("ray.exceptions.RayTaskError(ValueError): ray::WorkerDict") :])
    assert (event.kind, event.pid, event.stage) == (Kind.EXCEPTION, 18211, "reference")


def test_reprint_and_original_are_one(tmp_path: Path) -> None:
    """The worker's words on the console, an unhandled error minutes later, and the driver's end: one event with three addresses."""
    console = "".join(f"(WorkerDict pid=18211, ip=10.128.0.9) {line}\n" for line in REMOTE.format(message=LENGTH).splitlines())
    late = "2025-06-26 16:38:16,464\tERROR worker.py:409 -- Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): "
    late += "ray::WorkerDict.actor_rollout_compute_log_prob() (pid=18211, ip=10.128.0.9, actor_id=97, repr=<x>)\n" + "\n".join(REMOTE.format(message=LENGTH).splitlines()[1:]) + "\n"
    (event,) = run_of(tmp_path, driver=console + late + DRIVER.format(error="ValueError", method="actor_rollout_compute_log_prob", message=LENGTH))
    assert (event.pid, event.actor, len(event.records), event.line) == (18211, "WorkerDict", 3, 4)


def test_reprints_of_two_workers_are_two(tmp_path: Path) -> None:
    """The same words of two pids are two happenings of one kind."""
    one = DRIVER.format(error="ValueError", method="actor_rollout_update_actor", message=LENGTH)
    events = run_of(tmp_path, a=one, b=one.replace("18211", "18300"))
    assert sorted(e.pid or 0 for e in events) == [18211, 18300]


def test_worker_file_names_its_process(tmp_path: Path) -> None:
    """The file of a worker has its pid in the name and its class in the first lines; the driver only repeats what stands there."""
    name = f"worker-{'6c' * 28}-01000000-18211"
    (tmp_path / f"{name}.err").write_text(":job_id:01000000\n:actor_name:WorkerDict\n" + REMOTE.format(message=LENGTH))
    (event,) = run_of(tmp_path, driver=DRIVER.format(error="ValueError", method="actor_rollout_update_actor", message=LENGTH))
    assert (event.source, event.pid, event.actor, len(event.records)) == (f"{name}.err", 18211, "WorkerDict", 2)


def test_dead_actor(tmp_path: Path) -> None:
    """The keys below the exception say who died; the list of potential causes says nothing."""
    for error in ("ActorDiedError", "RayActorError"):
        (event,) = run_of(tmp_path, driver=DIED.format(error=error))
        assert (event.kind, event.pid, event.host, event.actor, event.local_rank) == (Kind.ACTOR_DIED, 20174, "10.164.37.106", "WorkerDict", 1)
        assert event.attrs["exit_type"] == "SYSTEM_ERROR"


def test_lines_folded_over_workers(tmp_path: Path) -> None:
    """Ray folds each line of several workers' tracebacks by itself: what is left of them is no crowd of events."""
    pids = (18214, 18215, 18214, 18217, 18216)
    lines = REMOTE.format(message="KeyError: 'qwen9_moe'").splitlines()
    lines[2:2] = lines[1:2]
    text = "".join(f"(WorkerDict pid={p}, ip=10.1.2.4) {line} [repeated 7x across cluster]\n" for p, line in zip(pids, lines, strict=True))
    (event,) = run_of(tmp_path, driver=text)
    assert (event.kind, event.text) == (Kind.EXCEPTION, "KeyError: 'qwen9_moe'")


def test_events_of_the_control_plane(tmp_path: Path) -> None:
    """A structured event names the node that was removed, not the head that says so."""
    text = (
        '{"custom_fields":{"ip":"10.0.0.3","node_id":"ab12"},"event_id":"99","host_name":"head-1","label":"RAY_NODE_REMOVED","message":"Node ab12 removed",'
        '"pid":"65","severity":"ERROR","source_type":"GCS","timestamp":1750669108}\n'
    )
    (event,) = run_of(tmp_path, event_GCS=text)
    assert (event.kind, event.host) == (Kind.HOST_DOWN, "10.0.0.3")


def test_error_of_an_engine_in_three_lines(tmp_path: Path) -> None:
    """The lines below the announcement lack its prefix and are its writer's all the same."""
    text = (
        "[Tinker] (RayWorker pid=114090) 20260413-15:07:21.776 SyncRPCServer ERROR: Engine method 'save' failed: \n"
        "error_type: TrainEngineError, sub_error: SaveError, \n"
        "reason: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))\n"
    )
    event = next(e for e in run_of(tmp_path, worker=text) if e.kind != Kind.LOGGED_ERROR)
    assert (event.kind, event.pid, event.stage) == (Kind.RPC_FAILED, 114090, "save")
    assert event.text.startswith("TrainEngineError: SaveError: ('Connection aborted.'")


def test_reply_that_quotes_the_callee(tmp_path: Path) -> None:
    """A reply with an escaped traceback repeats what the callee raised: its event, at the callee."""
    text = (
        "(AReaL) 20260301-16:31:01.425 TrainController ERROR: Failed to call method 'compute_logp' on worker 'ref/3': HTTP 500: "
        '{"error": "Engine method \'compute_logp\' failed: CUDA error: an illegal memory access was encountered\\nTraceback (most recent call last):\\n'
        '  File \\"/app/engine.py\\", line 733, in forward\\n    x\\nRuntimeError: CUDA error: an illegal memory access was encountered\\n"} (after 1 attempts)\n'
    )
    (event,) = run_of(tmp_path, main=text)
    assert (event.kind, event.actor, event.stage) == (Kind.DEVICE_ILLEGAL_ACCESS, "ref/3", "reference")
    assert event.text == "RuntimeError: CUDA error: an illegal memory access was encountered"


def test_traceback_without_its_last_line(tmp_path: Path) -> None:
    """Something was raised and the line that says what is missing: an event of low worth, at the last frame; frames alone are none."""
    head = "\n".join(REMOTE.format(message="").splitlines()[:3]) + '\n  File "/opt/verl/verl/workers/actor.py", line 9, in step\n'
    console = "".join(f"(vLLMHttpServer pid=331) (Worker_TP1 pid=756) ERROR 05-19 13:26:50 [executor.py:968] {line}\n" for line in head.splitlines())
    (event,) = run_of(tmp_path, driver=console)
    assert (event.kind, event.pid, event.attrs["cut"], event.line) == (Kind.EXCEPTION, 756, True, 4)
    (tmp_path / "driver.log").unlink()
    assert run_of(tmp_path, other="step 3 loss=0.1\n" + head.partition("\n")[2] + "step 4 loss=0.1\nstep 5 loss=0.1\n") == []


def test_what_means_nothing_is_no_failure(tmp_path: Path) -> None:
    """Ray without its metrics agent is healthy, and so is a worker that is torn down at the end of a program that succeeded."""
    from rca import analyze

    agent = "[2026-02-03 11:03:19,206 E 881 990] core_worker_process.cc:847: Failed to establish connection to the metrics exporter agent. Metrics will not be exported.\n"
    (tmp_path / "a.log").write_text(f"(raylet) {agent}(train_fn pid=881) {agent}")
    (tmp_path / "b.log").write_text("2026-02-03 11:02:19,402\tWARNING worker.py:1078 -- A worker died or was killed while executing task 949fbae08b71.\nsuccess!\n")
    assert [analyze(tmp_path / name, workers=1).verdict for name in ("a.log", "b.log")] == ["healthy", "healthy"]


def test_memory_that_cannot_be_taken_back(tmp_path: Path) -> None:
    """An engine that finds no room when it resumes is the reason why nobody answers the trainer, not a message that was lost."""
    from rca import analyze

    (tmp_path / "a.log").write_text(
        "(SGLangHttpServer pid=6115) [torch_memory_saver.cpp] CUresult error: 2 (out of memory)  file=csrc/utils.h func=cu_mem_create line=194\n"
        "(WorkerDict pid=1088) WARNING:2026-07-24 16:00:45,396:Async request to resume_memory_occupation timed out (attempt 1)\n"
    )
    assert analyze(tmp_path / "a.log", workers=1).judged.hypotheses[0].cause == "sw.cuda_oom"
