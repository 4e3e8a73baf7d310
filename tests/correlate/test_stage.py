"""Stages of events in runs that announce none: only the failing call can name one."""

from __future__ import annotations

from pathlib import Path

import pytest

import rca

FAILED = """\
Traceback (most recent call last):
  File "/srv/job/main.py", line 12, in <module>
    main()
  File "/srv/job/loop.py", line 88, in {outer}
    {outer}(batch)
  File "/srv/job/lib/core.py", line 31, in {inner}
    return table[key]
KeyError: 'layers.3'
"""

CALLS = {
    "a function that is listed": ("fit", "generate_sequences", "rollout"),
    "one that nobody listed, by its words": ("run", "_sync_policy_weights_to_engines", "weights_update"),
    "the innermost that names a stage": ("generate_sequences", "push_bucket_weights", "weights_update"),
    "a save": ("run", "write_sharded_checkpoint", "save"),
    "ordinary names": ("run", "lookup", None),
    "weights that nobody sends anywhere": ("run", "init_weights", None),
}


@pytest.mark.parametrize("outer, inner, stage", CALLS.values(), ids=CALLS)
def test_the_failing_call_names_the_stage(tmp_path: Path, outer: str, inner: str, stage: str | None) -> None:
    """One traceback is all there is."""
    (tmp_path / "log.txt").write_text(FAILED.format(outer=outer, inner=inner))
    stages = {event.stage for event in rca.analyze(tmp_path).run.events if event.attrs.get("traceback")}
    assert stages == {stage}
