"""`rca rules test DIR`: a folder of rules is checked with the file, line and key of what is wrong, and the rules' own tests are run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rca
from rca import cli

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "example-rules"
RULE = "acme/pool_full.toml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "rules"))


def edit(folder: Path, right: str, wrong: str, name: str = RULE) -> None:
    text = (folder / name).read_text()
    assert right in text
    (folder / name).write_text(text.replace(right, wrong, 1))


def test_the_page_shows_the_example_as_it_is() -> None:
    """A newcomer copies from the page; what it shows is what is tested."""
    page = (ROOT / "docs" / "rules-howto.md").read_text()
    for path in EXAMPLE.rglob("*.toml"):
        assert path.read_text() in page, path


def test_the_example_passes_and_is_used(folder: Path, capsys, tmp_path: Path) -> None:
    """Its phrase is unknown without it; with it the rule of the house names the cause and the remedy."""
    assert cli.main(["rules", "test", str(folder)]) == 0
    assert capsys.readouterr().out.endswith("1 rule(s), 2 test(s), 0 failed\n")
    (tmp_path / "log.txt").write_text((folder / RULE).read_text().split("'''")[1])
    assert rca.analyze(tmp_path / "log.txt").verdict != "failed"
    first = rca.analyze(tmp_path / "log.txt", rules=folder).document["hypotheses"][0]
    assert (first["cause"], first["rule"], first["entity"]["path"]) == ("fs.full", "acme/pool_full", "/data/run7")
    assert "#storage" in first["remedy"]["text"]


def test_a_test_that_fails_is_1_and_says_what_came_out(folder: Path, capsys) -> None:
    """What was expected stands behind what was told."""
    edit(folder, "min = 0.8\nrank = 0", "min = 0.999\nrank = 3")
    edit(folder, 'not_cause = "fs.full"', 'cause = "fs.hang"\nverdict = "failed"')
    assert cli.main(["rules", "test", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "FAIL  acme/pool_full: a save meets a full pool: failed: fs.full 0." in out and "expected at least 0.999, rank 3" in out
    assert "no cause; expected fs.hang first, verdict failed" in out and "2 failed" in out


def test_a_test_may_read_files_and_folders(folder: Path, capsys) -> None:
    """Several files in the rule, a folder or an archive beside it."""
    text = (folder / RULE).read_text()
    log = text.split("'''")[1].lstrip("\n")
    (folder / "tests" / "run7").mkdir(parents=True)
    (folder / "tests" / "run7" / "rank0.log").write_text(log)
    shutil.make_archive(str(folder / "tests" / "run7"), "gztar", folder / "tests" / "run7")
    more = f"[[test]]\nfiles = {{ \"a/rank0.log\" = '''{log}''', \"b.log\" = \"\" }}\n[[test]]\npath = \"tests/run7\"\n[[test]]\npath = \"tests/run7.tar.gz\"\n"
    (folder / RULE).write_text(text[: text.index("[[test]]")] + more)
    assert cli.main(["rules", "test", str(folder)]) == 0
    assert "3 test(s), 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ('"storage.no_space"', '"storage.nospace"', "unknown event kind: `storage.nospace` in "),
        ('kind = ["storage.no_space"]', 'kind = "storage.no_space"', "`kind` of link 1 is not a list of texts"),
        ("present = 5.0", 'present = "5"', "`present` of link 1 is not a number: `5`"),
        ("fooled_by = [", 'fooled_by = "x" #', "`fooled_by` is not a list of texts"),
        ("survivable = true", 'survivable = "no"', "`survivable` is not true or false"),
        ("where = {", "where = [] # {", "`where` of link 1 is not a table"),
        ('how = "acmefs pool top fast-3"', 'how = ["acmefs"]', "`how` of collect 1 is not a text"),
        ('what = "how full the pool is, and who fills it"\n', "", "collect 1 needs `what` and `how`"),
        ("[remedy]", "[[remedy]]", "`remedy` is not a table"),
        ("[[test]]", "[test]", "TOML"),
        ("log = '''", "lgo = '''", "unknown key: `lgo` of test 1"),
        ("min = 0.8", "min = true", "`min` of test 1 is not a number"),
        ("rank = 0", 'path = "x"', "test 1 needs one of `log`, `files` and `path`"),
        ("rank = 0", 'files = { "../x" = "" }', "test 1 needs one of"),
        ("log = '''", "files = { \"../x\" = '' }\nname = '''", "TOML"),
        ('cause = "fs.full"\nmin', 'cause = "fs.ful"\nmin', "unknown cause: `fs.ful` of test 1"),
        ('present = 0.7', 'present = 0.7\nrelation = { to = "pool", step_gap = 3 }', "`step_gap` of `relation` of link 2 is not two numbers"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_rule_is_2_with_file_and_key(folder: Path, capsys, right: str, wrong: str, says: str) -> None:
    """Before anything is analyzed; the message is one line and a hint."""
    edit(folder, right, wrong)
    assert cli.main(["rules", "test", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and f"{folder / RULE}" in err and "Traceback" not in err


def test_every_broken_file_is_named_at_once(folder: Path, capsys) -> None:
    """Rules and signatures, with the line where it can be told."""
    edit(folder, '"storage.no_space"', '"storage.nospace"')
    (folder / "acme" / "other.toml").write_text("title = [")
    edit(folder, 'severity = "error"', 'severity = "eror"', "signatures/acmefs.toml")
    assert cli.main(["rules", "test", str(folder)]) == 2
    err = capsys.readouterr().err
    number = next(i for i, line in enumerate((folder / RULE).read_text().splitlines(), 1) if "nospace" in line)
    assert f"{RULE}:{number}" in err and "did you mean `storage.no_space`?" in err and "other.toml" in err and "unknown severity: `eror`" in err
    log = folder.parent / "log.txt"
    log.write_text("step=1\n")
    assert cli.main(["analyze", str(log), "--rules", str(folder)]) == 2


def test_a_folder_that_is_none_and_one_without_tests(folder: Path, capsys) -> None:
    """2 for the first; the second is fine, with a word on what lacks."""
    assert cli.main(["rules", "test", "none"]) == 2
    (folder / RULE).write_text((folder / RULE).read_text().split("[[test]]")[0])
    (folder / "acme" / "dir.toml").mkdir()
    assert cli.main(["rules", "test", str(folder)]) == 2  # a folder is no rule
    (folder / "acme" / "dir.toml").rmdir()
    assert cli.main(["rules", "test", str(folder)]) == 0
    assert "without a test: acme/pool_full" in capsys.readouterr().err
