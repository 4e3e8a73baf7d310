"""The miniature: its numbers are the same whatever computes them, and a flipped bit is found and named."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.cli import main

torch = pytest.importorskip("torch")

from rca.bisect import miniature  # noqa: E402
from rca.bisect.miniature import MATMULS, NAMES, SIZES, STEPS, State, begin, digest, step, train  # noqa: E402
from rca.bisect.selftest import flip_of  # noqa: E402


@pytest.mark.parametrize(("size", "kind"), [(size, kind) for size in SIZES for kind in size.formats])
def test_every_format_gives_the_known_numbers(size, kind):
    """float32, float64, bfloat16 and float16, in every size that they can hold."""
    assert train(size, kind) is None


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(threads):
    """The order of additions is another one, the sums are not."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert train(SIZES[1], "float32") is None
    finally:
        torch.set_num_threads(before)


@given(st.integers(1, 64), st.permutations(range(64)))
@settings(max_examples=10, deadline=None)
def test_any_split_and_order_of_the_sums_gives_the_same(shards, order):
    """A batch over any number of shards; matmuls with their terms in any order."""
    assert train(SIZES[0], "float32", shards=[None] * shards) is None
    state = begin(SIZES[0], torch.bfloat16)
    found = step(state, SIZES[0], 0)
    first = begin(SIZES[0], torch.bfloat16)
    assert torch.equal(found["z"], first.x[:, order] @ first.w1[order])


@pytest.mark.parametrize("size", [*SIZES, *miniature.ON_GPUS], ids=lambda size: size.name)
def test_no_sum_can_leave_the_format(size):
    """The sum of absolute values of any product stays below the whole numbers that the format has without gaps."""
    bits = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
    largest = max(size.width * miniature.LARGEST, size.width)
    assert all(largest <= 2 ** bits[kind] for kind in size.formats)
    assert len(size.digests) == STEPS == len(set(size.digests))


@pytest.mark.parametrize("name", MATMULS)
@pytest.mark.parametrize("bit", [0, 12, 22, 23, 30, 31])
def test_a_flipped_bit_is_found_and_named(name, bit):
    """Any bit of the output of any matmul: step, tensor and element."""
    found = train(SIZES[0], "float32", shards=[flip_of(f"3:{name}:70:{bit}")])
    assert found is not None
    assert (found.step, found.name, found.element) == (3, name, (1, 6))
    assert found.got != found.expected or bit == 31
    assert name in found.text()


def test_whole_numbers_agree():
    """The first step in 64-bit integers, another unit of the processor, has the same digest."""
    state = begin(SIZES[0], torch.int64)
    assert isinstance(state, State)
    computed = step(state, SIZES[0], 0)
    assert digest(computed) == SIZES[0].digests[0] and list(computed) == list(NAMES)


def test_the_command_tests_each_core_and_gives_them_back(capsys):
    """One line for each core; what the process may use is as before."""
    allowed = os.sched_getaffinity(0)
    assert main(["bisect", "selftest", "--seconds", "0"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(allowed)
    assert os.sched_getaffinity(0) == allowed


def test_a_wrong_number_is_exit_code_1(capsys):
    """With the core, the step and the element."""
    core = min(os.sched_getaffinity(0))
    assert main(["bisect", "selftest", "--seconds", "0", "--cores", str(core), "--flip", "2:y:100:22", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["sound"] and found["tested"][0]["where"] == f"core {core}"
    assert found["tested"][0]["wrong"]["step"] == 2 and found["tested"][0]["wrong"]["element"] == [1, 36]


@pytest.mark.parametrize("args", [["--cores", "99999"], ["--cores", "x"], ["--device", "cuda:99"], ["--device", "tpu"], ["--flip", "1:q:2:3"], ["--flip", "99:y:2:3"], ["--cores", "0", "--device", "cuda"]])
def test_wrong_usage_is_exit_code_2(args, capsys):
    """With a word on what there is."""
    assert main(["bisect", "selftest", *args]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_the_known_numbers(capsys):
    """Also with TF32."""
    assert main(["bisect", "selftest", "--device", "cuda"]) == 0
