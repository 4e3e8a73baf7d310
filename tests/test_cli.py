"""The command line: exit codes, where data and messages go, and what it does when things go wrong."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import rca
from rca import cli, console
from rca.errors import RcaError
from rca.report import write
from rca.report.document import document
from rca.taxonomy import CAUSES
from tests.builders import event, hypothesis, run, verdict

ROOT = Path(__file__).parents[1]


def report(*hypotheses, incomplete=False, recognised=True, **changes):
    """What `rca.analyze` returns, as far as the command line looks at it."""
    judged = verdict(*hypotheses, **changes)
    doc = document(run(event()), judged, seconds=0, version="0.1.0")
    return SimpleNamespace(document=doc, verdict=judged.verdict, incomplete=incomplete, recognised=recognised)


FAILED, HEALTHY = report(hypothesis()), report()
UNSURE = report(hypothesis(confidence=0.3), verdict="inconclusive")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Every test stands in an empty folder that holds one log, outside of any CI."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.log").write_text("log\n")
    for name in ("NO_COLOR", "FORCE_COLOR", "RCA_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def analyzed(monkeypatch):
    """Let `rca.analyze` return or raise what a test wants; the calls are kept."""

    def use(result):
        calls = []

        def analyze(paths, **options):
            calls.append((paths, options))
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(rca, "analyze", analyze, raising=False)
        return calls

    return use


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (FAILED, 0),
        (HEALTHY, 0),
        (UNSURE, 0),
        (report(hypothesis(), incomplete=True), 3),
        (report(recognised=False), 5),
        (report(recognised=False, incomplete=True), 5),
    ],
)
def test_analyze_exit_codes(analyzed, capsys, result, code):
    """A report is written for 0, 3 and 5, whatever it says; what is wrong stands on standard error."""
    analyzed(result)
    assert cli.main(["analyze", "run.log"]) == code
    out, err = capsys.readouterr()
    assert out.startswith(result.verdict.upper())
    assert bool(err) == (code != 0)


@pytest.mark.parametrize(
    ("result", "args", "code"),
    [
        (FAILED, [], 1),
        (HEALTHY, [], 0),
        (UNSURE, [], 0),
        (FAILED, ["--ignore", "sw.*"], 0),
        (FAILED, ["--warn", "*", "--fail", "sw.rank_exception"], 1),
        (FAILED, ["--min-confidence", "0.95"], 0),
        (report(hypothesis(), incomplete=True), [], 1),
        (report(hypothesis(), incomplete=True), ["--ignore", "*"], 3),
        (report(hypothesis(), recognised=False, incomplete=True), [], 5),
        (FAILED, ["--fail", "gpus.*"], 2),
        (FAILED, ["--min-confidence", "2"], 2),
        (FAILED, ["--min-confidence", "high"], 2),
        (FAILED, ["--policy", "none.toml"], 2),
    ],
)
def test_gate_exit_codes(analyzed, capsys, result, args, code):
    """2 before 5 before 1 before 3."""
    analyzed(result)
    assert cli.main(["gate", "run.log", *args]) == code


def test_gate_reads_the_policy_of_this_folder(analyzed, tmp_path, capsys):
    """`rca.toml` is found where it lies; `--policy` reads another; a broken one is 2 before anything is analyzed."""
    calls = analyzed(FAILED)
    (tmp_path / "rca.toml").write_text('[[gate.policy]]\ncause = "sw.*"\naction = "warn"\n')
    assert cli.main(["gate", "run.log"]) == 0
    assert capsys.readouterr().err.startswith("warning: sw.rank_exception (0.90)")
    (tmp_path / "strict.toml").write_text("[gate]\n")
    assert cli.main(["gate", "run.log", "--policy", "strict.toml"]) == 1
    assert re.search(r"^gate: violated: .*fingerprint [0-9a-f]{16}$", capsys.readouterr().out, re.MULTILINE)
    (tmp_path / "rca.toml").write_text("[gat")
    assert len(calls) == 2
    assert cli.main(["gate", "run.log"]) == 2
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["analyze"], "missing argument"),
        (["analyze", "run.lgo"], "did you mean `run.log`?"),
        (["analyze", ""], "no such file or folder"),
        (["analyze", "none/at/all"], "no such file or folder: `none/at/all`"),
        (["analyze", "run.log", "none"], "no such file or folder: `none`"),
        (["analyze", "run.log", "--fromat", "json"], "--format"),
        (["analyze", "run.log", "--format", "jsno"], "did you mean `json`?"),
        (["analyze", "run.log", "--rules", "none"], "no such folder of rules"),
        (["analyze", "run.log", "--baseline", "run.lgo"], "did you mean `run.log`?"),
        (["gate", "run.log", "--topology", "none.toml"], "no such file or folder: `none.toml`"),
        (["analyze", "run.log", "--prometheus", "prometheus:9090"], "not a URL"),
        (["analyze", "run.log", "-o", "none/report.json"], "no such folder for the output"),
        (["analyze", "run.log", "-o", "."], "the output is a folder"),
        (["analyse", "run.log"], "analyze"),
        (["rules"], "missing command"),
        (["rules", "show", "gpu/eccc"], "did you mean `gpu/ecc`?"),
        (["--bogus"], "no such option"),
    ],
)
def test_wrong_usage_is_2_and_offers_the_right_word(analyzed, capsys, args, says):
    """The message is one `error:` line and a hint; nothing is analyzed and nothing stands on standard output."""
    calls = analyzed(FAILED)
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ")
    assert says in err
    assert "Traceback" not in err
    assert (out, calls) == ("", [])


def test_user_errors_of_the_analyzer_keep_their_place_and_hint(analyzed, capsys):
    """The house form: what happened, where, a blank line, what to do."""
    analyzed(RcaError("unknown key `kinds`", "rules/x.toml:3", "did you mean `kind`?"))
    assert cli.main(["analyze", "run.log"]) == 2
    assert capsys.readouterr().err == "error: unknown key `kinds` in rules/x.toml:3\n\nhint: did you mean `kind`?\n"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad\n::error::x\x1b[31m"),
        KeyError("x"),
        RecursionError(),
        MemoryError(),
        OSError(5, "I/O error"),
        BrokenPipeError(32, "Broken pipe"),
        EOFError(),
    ],
)
def test_internal_errors_are_4_in_one_line(analyzed, capsys, monkeypatch, error):
    """An uncaught exception is 4, never 1; the traceback is shown only on request."""
    analyzed(error)
    assert cli.main(["analyze", "run.log"]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    first, blank, hint = err.splitlines()
    assert first.startswith(f"error: internal error: {type(error).__name__}")
    assert (blank, "RCA_DEBUG=1" in hint, "\x1b" in err) == ("", True, False)
    monkeypatch.setenv("RCA_DEBUG", "1")
    assert cli.main(["analyze", "run.log"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_is_quiet(analyzed, capsys):
    """Ctrl-C needs no message."""
    analyzed(KeyboardInterrupt())
    assert cli.main(["analyze", "run.log"]) == 130
    assert capsys.readouterr() == ("", "")


def test_formats_are_the_files_of_the_folder(analyzed, capsys):
    """Every file of `report/` with a `render` is a format, and nothing else is."""
    analyzed(FAILED)
    assert cli.main(["analyze", "run.log", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == FAILED.document
    assert cli.main(["analyze", "run.log", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# FAILED: `sw.rank_exception`")
    assert cli.main(["analyze", "run.log", "--format", "safe"]) == 2


@pytest.mark.parametrize(
    ("name", "args", "start"), [("r.json", [], "{"), ("r.md", [], "# FAILED"), ("r.txt", [], "FAILED"), ("r.json", ["--format", "text"], "FAILED")]
)
def test_output_file_takes_its_format_from_its_name(analyzed, capsys, tmp_path, name, args, start):
    """`--format` decides where it is given; standard output stays empty and no other file is left."""
    analyzed(FAILED)
    assert cli.main(["analyze", "run.log", "-o", name, *args]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert capsys.readouterr() == ("", f"wrote {name} (verdict: failed)\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["run.log", name])


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_report(analyzed, capsys, tmp_path, monkeypatch, step):
    """A full disk at any step: exit 4, the old file whole, no temporary file."""
    analyzed(FAILED)
    old = tmp_path / "report.json"
    old.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, step, fail)
    assert cli.main(["analyze", "run.log", "-o", "report.json"]) == 4
    assert "No space left on device" in capsys.readouterr().err
    assert old.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.json", "run.log"]


def test_output_keeps_mode_and_link(analyzed, tmp_path):
    """The new file has the old one's permissions, and a link still points where it pointed."""
    analyzed(FAILED)
    old, link = tmp_path / "real.json", tmp_path / "link.json"
    old.write_text("old")
    old.chmod(0o640)
    link.symlink_to(old)
    assert cli.main(["analyze", "run.log", "-o", "link.json"]) == 0
    assert link.is_symlink()
    assert old.read_text().startswith("{")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_a_device_is_written_to_and_never_replaced(analyzed, tmp_path):
    """`-o /dev/null` leaves the device; a pipe gets the report."""
    analyzed(FAILED)
    assert cli.main(["analyze", "run.log", "-o", os.devnull]) == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    assert cli.main(["analyze", "run.log", "-o", "pipe"]) == 0
    assert reader.communicate(timeout=10)[0].startswith(b"FAILED")


class Output(io.TextIOWrapper):
    """A standard output whose writes fail in a chosen way."""

    def __init__(self, error=None, encoding="utf-8", terminal=False):
        self.error, self.terminal, self.raw_bytes = error, terminal, io.BytesIO()
        super().__init__(self.raw_bytes, encoding=encoding)

    @property
    def buffer(self):
        if self.error:
            raise self.error
        return self.raw_bytes

    def isatty(self):
        return self.terminal

    def fileno(self):
        raise io.UnsupportedOperation("fileno")


def test_full_disk_behind_standard_output_is_said(analyzed, capsys, monkeypatch):
    """`rca analyze > /full/disk` is 4 with a message, not silence."""
    analyzed(FAILED)
    monkeypatch.setattr(sys, "stdout", Output(OSError(28, "No space left on device")))
    assert cli.main(["analyze", "run.log"]) == 4
    assert capsys.readouterr().err.startswith("error: cannot write to standard output: No space left on device")


def test_closed_standard_output_is_said(analyzed, capsys, monkeypatch):
    """`rca analyze >&-`."""
    analyzed(FAILED)
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["analyze", "run.log"]) == 4
    assert "standard output is closed" in capsys.readouterr().err


def test_ascii_output_gets_ascii(analyzed, monkeypatch):
    """Where the locale cannot show a bar, a plain one is drawn and a letter it lacks is written as its code."""
    analyzed(report(hypothesis(summary="Über → 表")))
    monkeypatch.setattr(sys, "stdout", stream := Output(encoding="ascii"))
    assert cli.main(["analyze", "run.log"]) == 0
    text = stream.raw_bytes.getvalue().decode("ascii")
    assert "    | RuntimeError: boom" in text
    assert "\\xdcber > \\u8868" in text


@pytest.mark.parametrize(("env", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_only_on_a_terminal_that_wants_it(analyzed, monkeypatch, env, colored):
    """NO_COLOR and a dumb terminal are respected."""
    analyzed(FAILED)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream := Output(terminal=True))
    assert cli.main(["analyze", "run.log"]) == 0
    assert ("\x1b[" in stream.raw_bytes.getvalue().decode()) == colored


def test_progress_shows_on_a_terminal_and_only_for_long_work(monkeypatch):
    """Nothing within the first second; then one line that is wiped at the end; a hostile file name only shows."""
    now = [0.0]

    class Screen(io.StringIO):
        def isatty(self):
            return True

        def fileno(self):
            raise io.UnsupportedOperation("fileno")

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    with console.Progress() as progress:
        progress.now = lambda: now[0]
        progress.start = 0.0
        progress(10, 100)
        assert screen.getvalue() == ""
        now[0] = 2.0
        progress(50_000_000, 100_000_000, "a\x1b[2J.log")
        now[0] = 2.01
        progress(60_000_000, 100_000_000)
    assert screen.getvalue() == "\r 50 % of 100 MB  a\\x1b[2J.log\r" + " " * 29 + "\r"


def test_no_progress_without_a_terminal(analyzed, capsys):
    """The analyzer gets no callback, so it need not count."""
    calls = analyzed(FAILED)
    assert cli.main(["analyze", "run.log"]) == 0
    assert calls == [([Path("run.log")], {"rules": None, "progress": None})]


@pytest.mark.parametrize("command", ["analyze", "gate"])
def test_options_reach_the_analysis(analyzed, tmp_path, command):
    """Each as what `rca.analyze` takes, and only where it was given."""
    calls = analyzed(HEALTHY)
    (tmp_path / "rules").mkdir()
    line = "run.log --rules rules --baseline run.log --topology run.log --prometheus http://p:9090"
    assert cli.main([command, *line.split()]) == 0
    given = {"rules": Path("rules"), "baseline": Path("run.log"), "topology": Path("run.log"), "prometheus": "http://p:9090"}
    assert calls == [([Path("run.log")], {**given, "progress": None})]


def test_a_hostile_file_name_only_shows(analyzed, capsys):
    """A path in a message acts on nothing and stays on one line."""
    analyzed(FAILED)
    assert cli.main(["analyze", "x\n::error::\x1b[2J\u202e"]) == 2
    assert capsys.readouterr().err == "error: no such file or folder: `x\\x0a::error::\\x1b[2J\\u202e`\n"


def test_rules_are_listed_and_shown(capsys):
    """One line per rule; the page of a rule has its prose."""
    assert cli.main(["rules", "list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows == sorted(rows)
    assert any(re.match(r"gpu/ecc  +\S", row) for row in rows)
    assert cli.main(["rules", "show", "gpu/ecc"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("gpu/ecc\n")
    for heading in ("What it finds", "What fools it", "Chain", "Cause classes", "What to do", "File"):
        assert f"\n{heading}\n  " in page
    assert max(map(len, page.splitlines())) <= 80 + len(str(ROOT))
    assert any(cause in page for cause in CAUSES)


def test_a_pasted_fragment_is_read_from_standard_input(capsys, monkeypatch, tmp_path):
    """`-` is one source named `stdin`; its copy does not stay behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.06 GiB is free."
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line.encode())))
    assert cli.main(["analyze", "-", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["hypotheses"][0]["cause"] == "sw.cuda_oom" and told["hypotheses"][0]["evidence"][0]["file"] == "stdin"
    assert not list(tmp_path.glob("rca-*"))
    assert cli.main(["analyze", "-", str(tmp_path)]) == 2 and "`-` cannot be combined" in capsys.readouterr().err
