"""Bodies of calls: what goes in comes out, bit for bit; bytes of anybody's give a ValueError and nothing else."""

import contextlib
import json
import pickle
import struct

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rca.replay_trainer import wire  # noqa: E402

TYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16)
plain = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=5)


def tensor(shape, kind):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(kind)


tensors = st.builds(tensor, st.lists(st.integers(0, 4), max_size=3), st.sampled_from(TYPES))
values = st.dictionaries(st.text(max_size=6).filter(lambda name: name != "__metadata__"), tensors | plain, max_size=5)


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)
    return left == right


def head(text, data=b""):
    raw = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack("<Q", len(raw)) + raw + data


@settings(deadline=None)
@given(values)
def test_what_goes_in_comes_out(given_values):
    found = wire.unpack(wire.pack(given_values))
    assert found.keys() == given_values.keys()
    assert all(same(given_values[name], found[name]) for name in found)


def test_tensors_that_lie_oddly_in_memory_are_packed():
    """A transposed one, a slice, one with a gradient, two that share memory."""
    base = torch.arange(12.0).reshape(3, 4)
    given_values = {"turned": base.T, "part": base[:, 1:3], "learned": base.clone().requires_grad_(), "again": base, "same": base}
    found = wire.unpack(wire.pack(given_values))
    assert all(torch.equal(found[name], given_values[name]) for name in given_values)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_values(data):
    try:
        assert isinstance(wire.unpack(data), dict)
    except ValueError as error:
        assert "payload" in str(error)


GOOD = wire.pack({"answers": torch.arange(6).reshape(2, 3), "step": 3})


@settings(deadline=None, max_examples=200)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_one_changed_byte_never_raises_anything_else(at, byte):
    """It may change a number, which nothing can see here; it must not raise what the caller does not expect."""
    data = bytearray(GOOD)
    data[at] = byte
    with contextlib.suppress(ValueError):
        assert isinstance(wire.unpack(bytes(data)), dict)


@pytest.mark.parametrize("end", range(0, len(GOOD), 7))
def test_a_cut_payload_is_refused(end):
    with pytest.raises(ValueError, match=f"not a complete payload of {end} bytes"):
        wire.unpack(GOOD[:end])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 1 << 63),
        head(b"[" * 500_000),
        head(b'{"a":' * 100_000),
        head({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        head({"a": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 4]}}, b"1234"),
        head({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        head({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}}, b"1234"),
        head({"__metadata__": {"values": "[" * 100_000}}),
        head({"__metadata__": {"values": "[1]"}}),
        head({"__metadata__": {"values": "nonsense"}}),
        head({"__metadata__": []}),
        head(b"\xff\xfe"),
        head([]),
    ],
)
def test_made_up_headers_are_refused(data):
    with pytest.raises(ValueError, match="payload"):
        wire.unpack(data)


def test_nothing_that_arrives_is_executed(tmp_path):
    """Neither what pickle would run, nor what torch.load would."""
    mark = tmp_path / "ran"

    class Runs:
        def __reduce__(self):
            return (open, (str(mark), "w"))

    torch.save({"a": Runs()}, tmp_path / "file")
    for data in (pickle.dumps(Runs()), (tmp_path / "file").read_bytes(), head({"__metadata__": {"values": "x"}}, pickle.dumps(Runs()))):
        with pytest.raises(ValueError):
            wire.unpack(data)
    assert not mark.exists()


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=4), st.integers(1, 40))
def test_frames_come_whole_however_the_bytes_arrive(sizes, piece):
    parts = [{"rows": torch.arange(size), "number": i} for i, size in enumerate(sizes)]
    data, taken, found = b"".join(wire.frames(parts)), wire.Frames(), []
    for start in range(0, len(data), piece):
        found += taken.feed(data[start : start + piece])
    assert [part["number"] for part in found] == list(range(len(sizes)))
    assert all(torch.equal(part["rows"], whole["rows"]) for part, whole in zip(found, parts))
    assert taken.left == 0


def test_frames_byte_by_byte_and_cut():
    data, taken, found = b"".join(wire.frames([{"a": torch.ones(2)}, {"a": torch.zeros(3)}])), wire.Frames(), []
    for byte in data[:-1]:
        found += taken.feed(bytes([byte]))
    assert len(found) == 1 and taken.left > 0


@pytest.mark.parametrize("data", [struct.pack("<Q", 1 << 62), struct.pack("<Q", 4) + b"junk"])
def test_frames_refuse_damage(data):
    with pytest.raises(ValueError):
        list(wire.Frames().feed(data))
