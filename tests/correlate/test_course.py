"""One series of phases of the run, from whoever tells most, and the stage and step of events in it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import rca
from rca.correlate import clock as clocks
from rca.correlate import course, identity, settings
from rca.correlate.course import Course
from rca.ingest.read import ingest
from rca.taxonomy import Kind


def course_of(folder: Path, **files: str) -> Course:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    readings, _ = ingest([folder], workers=1)
    who = identity.resolve(readings)
    return course.build(who, clocks.estimate(who, [e for r in readings for e in r.events]))


def at(text: str) -> int:
    return int(datetime.fromisoformat(f"2026-09-04T{text}").replace(tzinfo=UTC).timestamp()) * 10**9


def shown(found: Course) -> list[tuple]:
    def clock(ns: int | None) -> str | None:
        return None if ns is None else datetime.fromtimestamp(ns // 10**9, UTC).strftime("%H:%M:%S")

    return [(p.stage, p.step, clock(p.start_ns), clock(p.end_ns)) for p in found.phases if p.stage != "init"]


HOME = """\
2026-09-04 18:00:00,000 INFO [driver] [step 1] weight-sync: start
2026-09-04 18:00:20,000 INFO [driver] [step 1] weight-sync: done in 20.0s
2026-09-04 18:00:21,000 INFO [driver] [step 1] gen: start
2026-09-04 18:03:00,000 INFO [driver] [step 1] gen: done in 159.0s
2026-09-04 18:03:01,000 INFO [driver] [step 1] ref-logprobs: start
2026-09-04 18:03:30,000 INFO [driver] [step 1] ref-logprobs: done in 29.0s
2026-09-04 18:03:31,000 INFO [driver] [step 1] actor-update: start
2026-09-04 18:06:00,000 INFO [driver] [step 1] actor-update: done in 149.0s
2026-09-04 18:06:01,000 INFO [driver] [step 1] ckpt-periodic: start
2026-09-04 19:06:01,000 WARNING [driver] [step 1] ckpt-periodic: trainer rank 0 timed out after 3600s, continuing
2026-09-04 19:06:02,000 INFO [driver] [step 2] weight-sync: start
2026-09-04 19:06:30,000 ERROR [driver] run aborted: weight sync failed on trainer rank 3
2026-09-04 19:06:31,000 INFO [driver] cleanup: start
2026-09-04 19:10:00,000 INFO [driver] resuming from /ckpt/periodic/step_1
"""


def test_a_controller_that_announces_is_believed(tmp_path: Path) -> None:
    """Its phases are the course, with the failed one, the one that never ended, the clean-up and the restart."""
    found = course_of(tmp_path, driver__log=HOME)
    assert shown(found) == [
        ("weights_update", 1, "18:00:00", "18:00:20"), ("rollout", 1, "18:00:21", "18:03:00"), ("reference", 1, "18:03:01", "18:03:30"),
        ("train", 1, "18:03:31", "18:06:00"), ("periodic_recover_save", 1, "18:06:01", "19:06:01"), ("weights_update", 2, "19:06:02", "19:06:31"),
        ("cleanup", 2, "19:06:31", "19:10:00"), ("recover", 1, "19:10:00", None),
    ]  # fmt: skip
    assert [p.stage for p in found.phases if p.failed] == ["periodic_recover_save"]
    assert found.staged and found.phases[-1].open


def test_the_phase_at_a_moment(tmp_path: Path) -> None:
    """A moment falls into a phase; before the first one nothing is known, and the gap between two belongs to the one that ended."""
    found = course_of(tmp_path, driver__log=HOME)
    for moment, stage, step in (("18:01:00", "rollout", 1), ("18:30:00", "periodic_recover_save", 1), ("19:06:05", "weights_update", 2), ("23:00:00", "recover", 1)):
        phase = found.at(at(moment))
        assert phase is not None
        assert (phase.stage, phase.step) == (stage, step)
    assert found.at(at("12:00:00")) is None
    assert found.at(None) is None


VERL = """\
(TaskRunner pid=9) INFO:2026-09-04 18:00:00,000:switching to rollout mode, step 7
(TaskRunner pid=9) step:7 - actor/loss:0.1 - timing_s/update_weights:20.0 - timing_s/gen:100.0 - timing_s/ref:30.0 - timing_s/update_actor:50.0 - timing_s/save_checkpoint:10.0
(TaskRunner pid=9) INFO:2026-09-04 18:03:40,000:switching to rollout mode, step 8
"""


def test_sums_after_the_step_are_laid_from_an_announced_phase(tmp_path: Path) -> None:
    """Metrics hold no time; their durations begin where the rollout of that step was announced."""
    found = course_of(tmp_path, console__log=VERL)
    assert shown(found)[:4] == [
        ("weights_update", 7, "17:59:40", "18:00:00"), ("rollout", 7, "18:00:00", "18:01:40"), ("reference", 7, "18:01:40", "18:02:10"), ("train", 7, "18:02:10", "18:03:00"),
    ]  # fmt: skip
    for moment, stage, step in (("18:02:30", "train", 7), ("18:03:30", "weights_update", 8), ("18:04:00", "rollout", 8)):
        phase = found.at(at(moment))
        assert phase is not None
        assert (phase.stage, phase.step) == (stage, step)


def test_a_run_without_stages_has_no_course_of_them(tmp_path: Path) -> None:
    """Pretraining saves and evaluates; that is no reason to give its events the stages of another kind of run."""
    text = "2026-09-04 18:00:00,000 INFO train: step=1 loss=2.0\n2026-09-04 18:00:05,000 INFO train: Saving checkpoint to /ckpt/step_1\n"
    assert not course_of(tmp_path, rank0__log=text).staged
    (empty := tmp_path / "empty").mkdir()
    assert course_of(empty).phases == ()


def test_last_words_without_a_time_have_a_stage_only_where_one_is_possible(tmp_path: Path) -> None:
    """A worker may have died in an earlier stage than the one in which the run broke off; nobody can tell from a line without a time."""
    (tmp_path / "driver.log").write_text(HOME)
    for name, moment in (("train-1", "2026-09-04 18:01:00,000"), ("train-2", "2026-09-04 19:06:05,000")):
        (tmp_path / f"{name}.log").write_text(f"{moment} INFO train: ready\nox-2:7002:7090 [0] NCCL WARN NET/IB: Got completion from peer 10.8.0.11<41723> with status=12 opcode=0 len=0 vendor err 129 (Send)\n")
    found = {e.source: (e.stage, e.step) for e in rca.analyze(tmp_path, workers=1).run.events if e.kind == Kind.NIC_FAULT}
    assert found == {"train-1.log": (None, None), "train-2.log": ("weights_update", 2)}


def test_announcements_without_a_step_are_counted_by_the_lines_of_training(tmp_path: Path) -> None:
    """A timer names no step; the training line after it does, and what follows the last one belongs to the next step."""
    minute = "[2026-09-04 18:{:02}:00] train.py:163 - "
    text = ""
    for step, first in ((12, 0), (13, 10)):
        text += minute.format(first) + "Timer update_weights start\n" + minute.format(first + 1) + "Timer update_weights end (elapsed: 60.0s)\n"
        text += minute.format(first + 2) + "Timer rollout start\n" + minute.format(first + 4) + "Timer rollout end (elapsed: 120.0s)\n"
        text += minute.format(first + 5) + "Timer actor_train start\n" + minute.format(first + 6) + f"step {step}: {{'train/loss': 0.05}}\n"
        text += minute.format(first + 7) + "Timer actor_train end (elapsed: 120.0s)\n" + minute.format(first + 8) + "Timer save_model start\n" + minute.format(first + 9) + "Timer save_model end\n"
    found = course_of(tmp_path, console__log=text + minute.format(20) + "Timer update_weights start\n")
    assert [(p.stage, p.step) for p in found.phases if p.stage != "init"] == [
        *((stage, step) for step in (12, 13) for stage in ("weights_update", "rollout", "train", "save")), ("weights_update", 14),
    ]  # fmt: skip


def test_settings_and_framework_of_the_run(tmp_path: Path) -> None:
    """The configuration that a controller prints is known to all, and the framework is the trainer and not what it is built of."""
    config = '{"weight_update": "nccl", "colocate": false, "world_size": 8, "batch_size": 256, "rpc_timeout": 7200}'
    (tmp_path / "driver.log").write_text(f"2026-09-04 18:00:00,000 INFO [driver] config: {config}\n2026-09-04 18:00:01,000 INFO [driver] done\n")
    (tmp_path / "worker.log").write_text("(TaskRunner pid=9) step:7 - timing_s/gen:100.0 - timing_s/ref:3.0\nusing megatron/core and vllm/v1\n")
    readings, _ = ingest([tmp_path], workers=1)
    assert settings.merged(identity.resolve(readings)) == {
        "weight_sync": "nccl", "colocated": False, "world_size": 8, "batch_size": 256, "timeouts": {"rpc_timeout": 7200},
    }  # fmt: skip
    assert {r.facts.get("framework") for r in settings.named(readings)} == {"verl", None}
