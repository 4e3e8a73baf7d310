"""Numbers of training lines: which are taken, which are not, and that a stream of any length stays small."""

from __future__ import annotations

import math

import pytest

from rca.ingest.series import KEPT, LATE, Series, values


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[rank 3] step=120 loss=2.3145 lr=2.98e-04 grad_norm=0.931 step_time=1.5s tokens/s=411223", {"loss": 2.3145, "gradient": 0.931, "seconds": 1.5, "rate": 411223}),
        ("iteration 10/ 100 | elapsed time per iteration (ms): 18706.1 | lm loss: 6.4E+00 | loss scale: 2048.0 | grad norm: 98258.265 |", {"loss": 6.4, "gradient": 98258.265, "seconds": 18.7061}),
        ("{'loss': 0.1, 'grad_norm': 0.7, 'learning_rate': 1e-06, 'epoch': 0.01}", {"loss": 0.1, "gradient": 0.7}),
        ('{"step": 3, "train_loss": 2.0, "eval_loss": 9.0}', {"loss": 2.0}),
        ("step 10: train loss 2.31, val loss 9.41", {"loss": 2.31}),
        ("validation loss at iteration 7000 | lm loss value: 7.1", {}),
        ("step:118 - actor/pg_loss:0.02003 - critic/vf_loss:0.4 - actor/grad_norm:0.41", {"gradient": 0.41}),
        ("samples per second: 19.238 | TFLOPs: 147.29", {"rate": 19.238}),
        ("loss scale: 2048.0, lossless: 1, no loss here", {}),
    ],
)  # fmt: skip
def test_numbers_of_a_line(line: str, expected: dict[str, float]) -> None:
    """Losses of validation, auxiliary terms and policies are other quantities; names are joined in many ways."""
    assert values(line) == expected


@pytest.mark.parametrize(("line", "name"), [("loss: nan", "loss"), ("'loss': NaN,", "loss"), ("loss=-inf grad_norm=1.0", "loss"), ("loss tensor(nan, device='cuda:0')", "loss"), ("grad norm: inf |", "gradient")])  # fmt: skip
def test_non_finite_numbers(line: str, name: str) -> None:
    """They are numbers like others, in any spelling."""
    assert not math.isfinite(values(line)[name])


def test_a_long_stream_stays_small_and_keeps_its_end() -> None:
    """A hundred thousand lines leave a few hundred points, the newest all among them."""
    series = Series()
    for step in range(100_000):
        series.add((step, None, 0, step + 1, step * 20, f"step={step} loss={step}.5"))
    points = series.finish()
    assert len(points) <= KEPT + LATE
    assert [p[0] for p in points[-LATE:]] == list(range(100_000 - LATE, 100_000))
    assert [p[0] for p in points] == sorted(p[0] for p in points) and points[0][0] == 0


@pytest.mark.parametrize("line", ["loss " * 200, "loss=" + "1" * 590, "time_" * 120, "tok/s " * 100, "'" * 600, "loss " + " " * 590])
def test_hostile_lines_cost_little(line: str) -> None:
    """Nothing in them is searched for twice."""
    assert isinstance(values(line), dict)
