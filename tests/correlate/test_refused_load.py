"""A parameter's name that a loader has no place for: the layout's fault where several workers say so, perhaps the code's where one does."""

from __future__ import annotations

from pathlib import Path

import pytest

import rca
from rca.correlate.refused_load import look
from rca.taxonomy import Kind
from tests.builders import event, run_of

KEY = "KeyError: 'model.layers.0.self_attn.qkv_proj.weight'"
FRAMES = {"frames": [("/w/engine/serve.py", 9, "handle"), ("/w/engine/pull.py", 40, "pull_params")], "traceback": True, "exception": "KeyError"}


def refused(number: int, text: str = KEY, **changes):
    """What engine `number` raised; engines have no rank of the job."""
    given = {"rank": None, "actor": f"sampler-{number}", "role": "rollout", "stage": "rollout", "source": f"sampler-{number}.log", "event_id": number, "attrs": FRAMES}
    return event(text=text, **(given | changes))


def test_several_engines_refuse_one_name() -> None:
    """Two engines without the same parameter: a checkpoint or an update of another layout."""
    assert [(e.kind, e.attrs.get("by_name")) for e in look([refused(0), refused(1)])] == [(Kind.CHECKPOINT_MISMATCH, True)] * 2


def test_one_worker_may_have_a_bug_of_its_own() -> None:
    """One worker alone, however often it is printed, stays an exception, marked as one of loading."""
    (only,) = look([refused(0)])
    assert only.kind == Kind.EXCEPTION and only.attrs["loading"]
    copy = refused(1, actor="driver", role="controller", source="driver.log")
    assert {e.kind for e in look([refused(0), copy])} == {Kind.EXCEPTION}


@pytest.mark.parametrize("text", ["KeyError: 'advantages'", "KeyError: 'batch.mask'", "ValueError: model.layers.0.mlp.weight is odd"])
def test_other_keys_are_no_parameters(text: str) -> None:
    """A key of a batch or of a configuration says nothing of weights."""
    given = [refused(0, text), refused(1, text)]
    assert look(given) == given


def test_outside_of_loading_it_is_the_codes_own() -> None:
    """A look-up by a parameter's name in a step of training is no load."""
    attrs = {**FRAMES, "frames": [("/w/optim.py", 7, "clip")]}
    given = [refused(0, attrs=attrs, stage="train"), refused(1, attrs=attrs, stage="train")]
    assert look(given) == given


def test_engines_of_one_console_are_told_apart(tmp_path: Path) -> None:
    """Two processes of one Ray console raise the same error at once: two workers, and the layout is named without being sure of it."""
    said = "\n".join(
        f"(Engine pid={pid}) {line}"
        for pid in (178840, 101050)
        for line in ("Traceback (most recent call last):", '  File "/w/engine/backend.py", line 166, in update_weights', "    model.load_weights(it)", KEY)
    )
    given = {"console.log": "2026-11-20 12:00:01,000 INFO driver: step=1 loss=2.0\n" + said + "\n"}
    assert [e.pid for e in run_of(tmp_path, given).events if e.kind == Kind.CHECKPOINT_MISMATCH] == [178840, 101050]
    first = rca.analyze(str(tmp_path), workers=1).judged.hypotheses[0]
    assert first.cause == "sw.ckpt_format" and 0.5 <= first.confidence < 0.85
