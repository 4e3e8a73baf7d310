"""Steps after an event: by place in its own file, by time in others."""

from __future__ import annotations

from pathlib import Path

from rca.taxonomy import Kind
from tests.builders import run_of

STEPS = [f"2026-11-20 12:00:{s:02d},000 INFO train: step={i} loss=2.0\n" for i, s in enumerate(range(0, 60, 10), 1)]
DOWN = "2026-11-20T12:00:15+00:00 node-1 kernel: nfs: server filer7 not responding, still trying\n"


def survived(folder: Path, files: dict[str, str], kind: Kind) -> bool:
    (event,) = [e for e in run_of(folder, files).events if e.kind == kind]
    return bool(event.attrs.get("lived_on"))


def test_a_hosts_event_is_survived_when_steps_follow(tmp_path: Path) -> None:
    """Four steps after it, or one: only the first shows that training went on."""
    assert survived(tmp_path / "a", {"train.log": "".join(STEPS), "kern.log": DOWN}, Kind.STORAGE_HANG)
    assert not survived(tmp_path / "b", {"train.log": "".join(STEPS[:3]), "kern.log": DOWN}, Kind.STORAGE_HANG)


def test_steps_of_an_unknown_program_count(tmp_path: Path) -> None:
    """Its words are its own; its numbers grow evenly."""
    pulse = [f"mole 3/8 | seq {n} | nll 2.9{n % 10} | 1.8s\n" for n in range(9000, 9012)]
    alarm = "mole 3/8 | nccl says: NET/IB : mlx5_2:1 Got async event : port error\n"
    run = run_of(tmp_path, {"mole.log": "".join(pulse[:5]) + alarm + "".join(pulse[5:])})
    assert run.outcome == "goes_on"
