"""Two results, bit by bit; two error texts, by what they say."""

import pytest

torch = pytest.importorskip("torch")

from rca.replay.compare import first_difference, same_error  # noqa: E402


def test_equal_bits_are_no_difference():
    one = {"a": torch.tensor([1.0, float("nan")]), "loss": 0.25, "stats": {"x": 1}}
    assert first_difference(one, {"a": torch.tensor([1.0, float("nan")]), "loss": 0.25, "stats": {"x": 1}}) is None


def test_the_first_element_that_differs_is_named_with_its_values():
    one = torch.zeros(2, 3, 4)
    other = one.clone()
    other[1, 2, 0] = 1e-7
    other[1, 2, 3] = 5.0
    found = first_difference({"logprobs": one}, {"logprobs": other})
    assert (found.name, found.element, found.expected, found.count) == ("logprobs", (1, 2, 0), 0.0, 2)
    assert "logprobs[1, 2, 0]" in str(found)


def test_zero_and_minus_zero_are_other_bits():
    assert first_difference({"a": torch.tensor([0.0])}, {"a": torch.tensor([-0.0])}).element == (0,)


def test_a_nan_of_other_bits_differs():
    bits = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert first_difference({"a": torch.tensor([float("nan")])}, {"a": bits}) is not None


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ({"a": torch.zeros(2)}, {"a": torch.zeros(3)}, "a"),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.float64)}, "a"),
        ({"a": torch.zeros(2)}, {}, "a"),
        ({}, {"b": 1}, "b"),
        ({"stats": {"loss": 0.1}}, {"stats": {"loss": 0.2}}, "stats.loss"),
        ({"a": 1}, {"a": 1.0}, "a"),
        ({"a": torch.zeros(1)}, {"a": 0.0}, "a"),
    ],
)
def test_shapes_types_names_and_values_count(one, other, name):
    assert first_difference(one, other).name == name


def test_empty_and_scalar_tensors():
    assert first_difference({"a": torch.zeros(0), "b": torch.tensor(2)}, {"a": torch.zeros(0), "b": torch.tensor(2)}) is None
    assert first_difference({"b": torch.tensor(2)}, {"b": torch.tensor(3)}).element == ()


def test_bfloat16_and_bool():
    assert first_difference({"a": torch.ones(3, dtype=torch.bfloat16), "m": torch.tensor([True])}, {"a": torch.ones(3, dtype=torch.bfloat16), "m": torch.tensor([True])}) is None
    assert first_difference({"m": torch.tensor([True, False])}, {"m": torch.tensor([True, True])}).element == (1,)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("CUDA out of memory. Tried to allocate 64.00 MiB. GPU 1 has 3.2 MiB", "CUDA out of memory. Tried to allocate 12.50 MiB. GPU 0 has 1 MiB", True),
        ("Corrupted file: [Errno 2] No such file: /mnt/ckpt/periodic/step-000003/state.json", "Corrupted file: [Errno 2] No such file: /tmp/rca/run/periodic/step-000003/state.json", True),
        ("CUDA out of memory", "connection refused", False),
        (None, "anything", False),
    ],
)
def test_errors_are_the_same_whatever_their_numbers_and_paths(one, other, same):
    assert same_error(one, other) is same
