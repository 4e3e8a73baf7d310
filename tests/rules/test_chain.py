"""A broken rule file is an error with an address and a hint, never a rule that silently does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rca.errors import RcaError
from rca.rules.chain import load_rules, read_rule
from rca.taxonomy import CAUSES

GOOD = """\
id = "lab/full"
title = "A disk is full"
cause = "fs.full"
fooled_by = ["a scratch disk that nobody uses"]

[[link]]
name = "cause"
role = "cause"
kind = ["storage.no_space"]
stage = ["save"]
present = 3.0

[[link]]
name = "others"
role = "symptom"
kind = ["peer.lost"]
relation = { to = "cause", edge = "collective" }
present = 0.7

[remedy]
action = "free-resource"
text = "free some space"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "lab" / "full.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def _error(folder: Path, text: str) -> RcaError:
    path = _write(folder, text)
    with pytest.raises(RcaError) as caught:
        load_rules(folder)
    assert caught.value.where and caught.value.where.startswith(str(path))
    return caught.value


def test_a_good_rule_is_read(tmp_path: Path) -> None:
    """The rule that the other tests break is itself valid, and joins the built-in ones."""
    _write(tmp_path, GOOD)
    rule = next(r for r in load_rules(tmp_path) if r.id == "lab/full")
    assert rule.causes == ("fs.full",) and rule.cause_link.present == 3.0 and [link.name for link in rule.links] == ["cause", "others"]
    assert {r.id for r in load_rules()} < {r.id for r in load_rules(tmp_path)}


@pytest.mark.parametrize(
    ("right", "wrong", "message", "hint"),
    [
        ('"storage.no_space"', '"storage.no_spce"', "unknown event kind: `storage.no_spce`", "storage.no_space"),
        ('"save"', '"saev"', "unknown stage: `saev`", "save"),
        ('"fs.full"', '"fs.ful"', "unknown cause class: `fs.ful`", "fs.full"),
        ("title =", "titel =", "unknown key: `titel`", "title"),
        ("stage =", "stages =", "unknown link key: `stages`", "stage"),
        ('"symptom"', '"sympton"', "unknown link role: `sympton`", "symptom"),
        ("present = 0.7", 'present = 0.7\nseen_by = "kernal"', "unknown seen_by: `kernal`", "kernel"),
        ('to = "cause"', 'to = "cuase"', "unknown link name in relation.to: `cuase`", "cause"),
        ('edge = "collective"', 'egde = "collective"', "unknown relation key: `egde`", "edge"),
        ('"free-resource"', '"free-resources"', "unknown remedy action: `free-resources`", "free-resource"),
        ("present = 3.0", 'present = 3.0\ncause_class = { "storage.no_space" = "fs.fulll" }', "unknown cause class: `fs.fulll`", "fs.full"),
    ],
)  # fmt: skip
def test_a_mistyped_word_is_an_error_with_the_nearest_right_one(tmp_path: Path, right: str, wrong: str, message: str, hint: str) -> None:
    """The error names the word and the file, and offers what was probably meant."""
    error = _error(tmp_path, GOOD.replace(right, wrong, 1))
    assert error.message == message and f"`{hint}`" in (error.hint or "")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('fooled_by = ["a scratch disk that nobody uses"]\n', "", "rule without `fooled_by`"),
        ("fooled_by = [", "fooled_by = [] # [", "rule without `fooled_by`"),
        ('cause = "fs.full"\n', "", "rule without `cause`"),
        ('title = "A disk is full"\n', "", "rule without `title`"),
        ('role = "symptom"', 'role = "cause"', "a rule has exactly one link with role `cause`"),
        ('role = "cause"', 'role = "mechanism"', "a rule has exactly one link with role `cause`"),
        ('name = "others"\n', "", "link without `name`"),
        ('kind = ["peer.lost"]\n', "", "link without `kind`"),
        ('"lab/full"', '"lab/empty"', "rule id `lab/empty` differs from its path `lab/full`"),
        ("[remedy]", "[remedy", "not a TOML file"),
    ],
)  # fmt: skip
def test_an_incomplete_rule_is_an_error(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    """What a rule cannot do without is asked for by name, with the file."""
    assert _error(tmp_path, GOOD.replace(right, wrong, 1)).message.startswith(message)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("present = 3.0", 'present = "three"'),
        ("present = 3.0", "present = 3.0\nmore = [ { wher = { path = true }, worth = 1.0 } ]"),
        ("present = 3.0", 'present = 3.0\ncause_class = { "storage.no_spce" = "fs.full" }'),
        ('edge = "collective"', 'edge = "colective"'),
        ('fooled_by = ["a scratch disk that nobody uses"]', 'fooled_by = "a scratch disk that nobody uses"'),
        ("[remedy]\naction", "remedy = 3\n[other]\naction"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_sort_is_an_error_too(tmp_path: Path, right: str, wrong: str) -> None:
    """A number in words, an unknown key below a key, a kind or an edge that nothing ever has: all are told when the file is read."""
    _error(tmp_path, GOOD.replace(right, wrong, 1))


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are told like any other mistake."""
    path = _write(tmp_path, "")
    path.write_bytes(b'title = "\xff"\n')
    with pytest.raises(RcaError, match="not a TOML file"):
        read_rule(path, "lab/full")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """`--rules` of a folder that does not exist is a user's error with a hint."""
    with pytest.raises(RcaError) as caught:
        load_rules(tmp_path / "nowhere")
    assert caught.value.hint


def test_a_rule_of_the_same_id_replaces_the_built_in_one(tmp_path: Path) -> None:
    """An operator can overrule a rule by its path, and every other rule stays."""
    _write(tmp_path, GOOD)
    (tmp_path / "fs").mkdir()
    (tmp_path / "lab" / "full.toml").rename(tmp_path / "fs" / "full.toml")
    (tmp_path / "fs" / "full.toml").write_text(GOOD.replace("lab/full", "fs/full"), "utf-8")
    rules = {r.id: r for r in load_rules(tmp_path)}
    assert rules["fs/full"].title == "A disk is full" and rules.keys() == {r.id for r in load_rules()}


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_no_class_is_named_twice_at_one_place(cause: str) -> None:
    """Two rules that may name one class look for different cause events, or tell them apart by their attributes."""
    seen: set[tuple] = set()
    for rule in load_rules():
        if cause in rule.causes:
            link = rule.cause_link
            key = (link.kinds, link.stages, repr(sorted(link.where.items())))
            assert key not in seen, rule.id
            seen.add(key)
