"""Shares of a batch: nothing is lost, doubled or moved; what does not fit together is refused by name."""

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rca.replay_trainer import batch  # noqa: E402
from rca.replay_trainer.errors import FrameworkError  # noqa: E402


def rows(count):
    return {"answers": torch.arange(count * 3).reshape(count, 3), "rewards": torch.arange(count) / 10}


@given(st.integers(0, 40), st.integers(1, 9))
def test_split_and_merge_are_inverse(count, parts):
    """Also with fewer rows than parts, and none at all."""
    whole = rows(count)
    shares = batch.split(whole, parts)
    sizes = [len(share["rewards"]) for share in shares]
    assert len(shares) == parts and max(sizes) - min(sizes) <= 1
    merged = batch.merge(shares)
    assert all(torch.equal(merged[name], whole[name]) for name in whole)


def test_a_share_that_did_not_come_leaves_no_gap():
    shares = batch.split(rows(6), 3)
    assert torch.equal(batch.merge([shares[0], None, shares[2]])["rewards"], torch.tensor([0.0, 0.1, 0.4, 0.5]))
    assert batch.merge([None, None]) == {} == batch.merge([])


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"answers": torch.zeros(1, 3)}, "different tensors: answers rewards, answers"),
        ({"answers": torch.zeros(1, 4), "rewards": torch.zeros(1)}, "do not fit together"),
        ({"answers": "text", "rewards": torch.zeros(1)}, "do not fit together"),
    ],
)
def test_shares_that_do_not_fit_are_refused(other, says):
    with pytest.raises(FrameworkError, match="DistributedBatchMemoryError") as raised:
        batch.merge([rows(2), other])
    assert says.split(", ")[0].split(":")[0] in str(raised.value)


def test_attach_counts_samples():
    assert batch.attach(rows(4), prompt_of=torch.zeros(4)).keys() == {"answers", "rewards", "prompt_of"}
    with pytest.raises(FrameworkError, match="Batch size mismatch: answers 4, prompt_of 6, rewards 4"):
        batch.attach(rows(4), prompt_of=torch.zeros(6))
