"""The simulator itself: the same seed gives the same bytes, every truth can be found in the files, and the ablated copy lacks what names it."""

from __future__ import annotations

import json

import pytest
from coupling.simulate.build import _ablate, build, dialects, play, possible, scenarios, variants

CASES = [(s, v) for s in scenarios() for v in variants(s)]
NAMES = list(dialects())


def _able(scenario: str, i: int) -> str:
    able = [d for d in NAMES if possible(scenario, d)]
    return able[i % len(able)]


@pytest.mark.parametrize("scenario, variant", CASES, ids=[f"{s}-{v}" for s, v in CASES])
def test_truth_is_in_the_files(scenario: str, variant: str) -> None:
    """Every family that the scenario needs was written, every decisive kernel line stands in a file, and times are sane."""
    dialect = _able(scenario, CASES.index((scenario, variant)))
    files, truth = build(scenario, dialect, 3, variant=variant, decoys=0)
    text = "\n".join(line for lines in files.values() for line in lines)
    w = play(scenario, variant, 3, dialects()[dialect].modes)
    for _, _, _, line, key in w.kernel:
        # JSON escapes quotes; the words before the first one are enough.
        assert not key or line.split('"')[0].strip() in text, line
    assert truth["root_cause_class"] in truth["accept"]
    assert truth["verdict_expected"] != "failed" or truth["why"]
    assert all(files.values())
    host = truth["faulty_entity"].get("host")
    assert host is None or host.split(".")[0] in text or host.split(".")[0] in "\n".join(files)


@pytest.mark.parametrize("scenario", [s for s in scenarios() if s.startswith("s")])
def test_ablated_copy_lacks_the_decisive_lines(scenario: str) -> None:
    """The same run, without its decisive kernel lines and without the files of the sources it names."""
    dialect = _able(scenario, 0)
    plain, _ = build(scenario, dialect, 3, decoys=0)
    bare, truth = build(scenario, dialect, 3, without=True, decoys=0)
    w = play(scenario, scenarios()[scenario].VARIANTS[3 % len(variants(scenario))], 3, dialects()[dialect].modes)
    kept = "\n".join(line for lines in bare.values() for line in lines)
    assert not [line for *_, line, key in w.kernel if key and line.strip() in kept and len(line) > 40]
    assert sum(map(len, bare.values())) < sum(map(len, plain.values()))
    assert "inconclusive" in truth["verdict_accept"] and not truth["faulty_entity"]
    _ablate(w)
    assert not any(key for *_, key in w.kernel)


def test_same_seed_same_bytes() -> None:
    """Nothing but the seed decides."""
    for scenario, dialect in (("s03_partial_rollout", "slime"), ("s09_meta_server", "pods_mixed")):
        assert json.dumps(build(scenario, dialect, 5)) == json.dumps(build(scenario, dialect, 5))
        assert build(scenario, dialect, 5)[0] != build(scenario, dialect, 6)[0]
