"""The search run to its end, on commands and on computations that are real."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rca.bisect.plan import Plan
from rca.bisect.units import Layout
from rca.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(tmp_path):
    """A command that fails where `n05` is, and writes down what it was given."""
    path = tmp_path / "test.py"
    path.write_text(f"import sys\nopen({str(tmp_path / 'seen')!r}, 'a').write(sys.argv[1] + '\\n')\nsys.exit('n05' in sys.argv[1].split(','))\n")
    return f"{sys.executable} {path} {{hosts}}"


def test_a_command_is_run_for_each_group(command, tmp_path, capsys):
    """Rows, columns, answer; the plan that is kept is complete."""
    plan = tmp_path / "plan.json"
    assert main(["bisect", "run", "--hosts", "n[01-16]", "--command", command, "--jobs", "4", "-o", str(plan), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cordon"] == ["n05"] and found["round"] == 2
    assert len((tmp_path / "seen").read_text().splitlines()) == 8
    assert all(group.result for groups in Plan.read(plan).rounds for group in groups)


def test_a_run_that_was_ended_goes_on(command, tmp_path, capsys):
    """What has a result is not run again."""
    plan = tmp_path / "plan.json"
    main(["bisect", "plan", "--hosts", "n[01-16]", "-o", str(plan)])
    main(["bisect", "plan", "--result", str(plan), "2=fail", "1=pass"])
    assert main(["bisect", "run", "--command", command, "-o", str(plan)]) == 0
    assert "n05" in capsys.readouterr().out
    assert len((tmp_path / "seen").read_text().splitlines()) == 6


def test_a_command_that_cannot_run_is_no_result(tmp_path, capsys):
    """Not found, not executable, no place for the hosts."""
    plan = tmp_path / "plan.json"
    assert main(["bisect", "run", "--hosts", "n[1-4]", "--command", "/no/such/thing {hosts}", "-o", str(plan)]) == 2
    assert "no result" in capsys.readouterr().err
    assert all(group.result is None for groups in Plan.read(plan).rounds for group in groups)
    assert main(["bisect", "run", "--hosts", "n[1-4]", "--command", "true"]) == 2
    assert "{hosts}" in capsys.readouterr().err


def test_a_command_that_hangs_fails_and_is_ended_with_its_children(tmp_path, capsys):
    """--time-limit; nothing is left of it."""
    began = time.monotonic()
    line = "case {hosts} in *n3*) sleep 600 & wait;; esac"
    assert main(["bisect", "run", "--hosts", "n[1-4]", "--command", line, "--time-limit", "1"]) == 0
    assert "n3" in capsys.readouterr().out
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_search_that_is_interrupted_ends_what_it_started(tmp_path, number):
    """At once, with exit code 130, and what has a result is in the plan."""
    plan = tmp_path / "plan.json"
    line = f": {{hosts}}; case {{group}} in 1) exit 0;; esac; echo $$ >> {tmp_path / 'pids'}; sleep 600"
    args = ["bisect", "run", "--hosts", "n[1-9]", "--command", line, "-o", str(plan)]
    process = subprocess.Popen([sys.executable, "-m", "rca", *args], cwd=ROOT, stderr=subprocess.DEVNULL)
    ends = time.monotonic() + 60
    while time.monotonic() < ends and not (plan.exists() and '"pass"' in plan.read_text() and (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2):
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) == 130
    assert [group.result for group in Plan.read(plan).rounds[0]] == ["pass", None, None]
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_hosts_cannot_be_commands(tmp_path, capsys):
    """A name is one word for the shell, whatever it is."""
    (tmp_path / "hosts").write_text("a;touch${IFS}x\n$(false)\n")
    assert main(["bisect", "run", "--hosts-file", str(tmp_path / "hosts"), "--command", f"printf '%s\\n' {{hosts}} >> {tmp_path / 'seen'}", "--parallel", "1"]) == 0
    assert "a;touch${IFS}x" in (tmp_path / "seen").read_text()


def test_at_most_so_many_groups_run_at_once():
    """--jobs."""
    from rca.bisect.drive import drive

    now, most, lock = 0, 0, threading.Lock()

    def ask(group):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return 7 in group.units, ""

    plan = Plan.new([f"n{i}" for i in range(64)], Layout())
    answer = drive(plan, ask, 3, lambda text: None)
    assert answer.bad == [7] and len(plan.rounds) == 2 and most <= 3


def test_one_wrong_slot_is_found_by_real_computations(capsys):
    """Fresh processes, a real flipped bit; the miniature over the group."""
    pytest.importorskip("torch")
    assert main(["bisect", "run", "--machines", "9", "--wrong", "5", "--json"]) == 0
    heard = capsys.readouterr()
    assert json.loads(heard.out)["cordon"] == ["slot5"] and json.loads(heard.out)["round"] == 2
    assert "forward, y" in heard.err and "right" in heard.err


@pytest.mark.real
def test_one_of_64_in_two_rounds_by_real_computations(capsys):
    """The bar: 16 group tests, each a process that computes."""
    pytest.importorskip("torch")
    assert main(["bisect", "run", "--machines", "64", "--wrong", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cordon"], found["round"], found["tests"]) == (["slot20"], 2, 16)


@pytest.mark.real
def test_one_of_64_in_two_rounds_by_replays_of_a_recorded_step(tmp_path, capsys):
    """The bar, with the trainer's own step: what the two ranks were given, and the weights that came of it."""
    pytest.importorskip("torch")
    run = tmp_path / "run"
    assert main(["train", str(run), "--steps", "2"]) == 0
    assert main(["bisect", "run", str(run), "--machines", "64", "--wrong", "41", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cordon"], found["round"], found["tests"]) == (["slot41"], 2, 16)


def test_a_fault_shows_as_often_as_it_is_said():
    """And in the same tests each time."""
    pytest.importorskip("torch")
    from rca.bisect.slots import Task

    tasks = [Task(range(8), [3], 0.5, test) for test in range(400)]
    shown = sum(bool(task.showing()) for task in tasks)
    assert 160 < shown < 240
    assert [task.showing() for task in tasks] == [dataclasses.replace(task).showing() for task in tasks]


@pytest.mark.parametrize(
    "args", [["run", "/no/such/run"], ["run", "--wrong", "99"], ["run", "--machines", "0"], ["run", "--hosts", "n[1-4]"], ["run", "x", "--command", "true {hosts}", "--hosts", "2"], ["run", "--command", "x {hosts}"]]
)
def test_wrong_usage(args, capsys):
    """Each with a word on what is wrong."""
    assert main(["bisect", *args]) == 2
    assert capsys.readouterr().err.startswith("error: ")
