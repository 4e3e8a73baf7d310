"""The planner: its file, its results, its words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rca.bisect.names import compact, expand
from rca.bisect.units import Layout
from rca.cli import main
from rca.errors import RcaError


@pytest.fixture
def plan(tmp_path, capsys):
    """Run `rca bisect plan` on one file; gives exit code, stdout and stderr."""
    path = tmp_path / "plan.json"

    def call(*args):
        code = main(["bisect", "plan", *args])
        return code, *capsys.readouterr()

    call.path = str(path)
    return call


def search(plan, bad, fails=lambda members, bad: bool(members & bad)):
    """Give results until the search is over; the last document."""
    for _ in range(200):
        document = json.loads(plan("--result", plan.path, "--json")[1])
        if document["state"] != "run":
            return document
        results = [f"{g['group']}={'fail' if fails(set(g['hosts']), bad) else 'pass'}" for g in document["groups"]]
        assert plan("--result", plan.path, *results)[0] == 0
    raise AssertionError("no end")


@pytest.mark.parametrize("text", ["node[08-10,12],login1", "a[1-12]", "gpu-[001-003]-ib0,x", "10.0.0.[1-3]", "x", "a[0-12]", "n0,n00,n1"])
def test_lists_of_hosts_come_back(text):
    """A compact list names the same hosts."""
    assert sorted(expand(compact(expand(text)))) == sorted(expand(text))


@pytest.mark.parametrize("text", ["a[3-1]", "a[1-", "a]", "a,a", "a[1-999999999]", "a[x]", "[1-9][1-9"])
def test_lists_that_cannot_be_read_say_so(text):
    """No traceback, no endless list."""
    with pytest.raises(RcaError):
        expand(text)


def test_one_bad_of_64_in_two_rounds(plan):
    """Rows, columns, answer."""
    code, out, _ = plan("--hosts", "node[01-64]", "-o", plan.path)
    assert code == 0 and "node[01-08]" in out
    found = search(plan, {"node20"})
    assert found["state"] == "found" and found["cordon"] == ["node20"] and found["round"] == 2
    assert "cordon node20" in plan("--result", plan.path)[1]


@pytest.mark.parametrize("parallel", [[], ["--parallel", "1"], ["--parallel", "5"]])
@pytest.mark.parametrize("bad", [set(), {"n07"}, {"n03", "n04", "n30"}])
def test_any_number_is_found_when_none_is_given(plan, parallel, bad):
    """None, one, several: also where rows and columns are ambiguous."""
    plan("--hosts", "n[01-36]", "-o", plan.path, *parallel)
    found = search(plan, bad)
    assert found["state"] == ("found" if bad else "none") and set(found["cordon"]) == bad


def test_groups_are_whole_replicas(plan):
    """tp 8 x pp 4 on hosts of 8 takes 4 hosts; what is left over is named."""
    document = json.loads(plan("--hosts", "h[01-26]", "--tp", "8", "--pp", "4", "--json", "-o", plan.path)[1])
    assert all(len(group["hosts"]) % 4 == 0 for group in document["groups"]) and document["left_over"] == ["h25", "h26"]
    assert set(search(plan, {"h07"})["cordon"]) == {"h05", "h06", "h07", "h08"}
    assert "selftest" in plan("--result", plan.path)[1]
    assert Layout(tp=3, gpus_per_host=8).hosts_per_unit() == 3
    with pytest.raises(RcaError, match="no whole replica"):
        Layout(tp=8, pp=4).units(["a"])


def test_the_same_results_twice_change_nothing(plan):
    """Also not the bytes of the file."""
    plan("--hosts", "16", "-o", plan.path)
    plan("--result", plan.path, "2=fail", "rest=pass")
    before = Path(plan.path).read_bytes()
    assert plan("--result", plan.path, "2=fail", "1=pass")[0] == 0
    assert plan("--result", plan.path)[0] == 0
    assert Path(plan.path).read_bytes() == before


def test_results_may_come_one_by_one(plan):
    """What is missing is asked for again, and `--groups` is for a shell."""
    plan("--hosts", "n[1-9]", "-o", plan.path)
    code, out, _ = plan("--result", plan.path, "1=pass")
    assert code == 0 and "1 of 3" in out
    assert plan("--result", plan.path, "--groups")[1] == "2\tn4,n5,n6\n3\tn7,n8,n9\n"


@pytest.mark.parametrize(
    ("results", "says"),
    [
        (["99=fail"], "no group 99"), (["1=maybe"], "no result"), (["fail"], "no result"), (["x=fail"], "no result"), (["1=fail", "1=pass"], "both"), (["2-1=pass"], "no result"),
    ],
)  # fmt: skip
def test_results_that_cannot_be_are_refused_whole(plan, results, says):
    """Nothing of a wrong call is taken."""
    plan("--hosts", "9", "-o", plan.path)
    before = Path(plan.path).read_text()
    code, _, err = plan("--result", plan.path, "2=pass", *results)
    assert code == 2 and says in err and "Traceback" not in err
    assert Path(plan.path).read_text() == before


def test_a_result_is_changed_only_on_purpose(plan):
    """--correct takes it back, and what was chosen by it is chosen anew."""
    plan("--hosts", "16", "-o", plan.path)
    plan("--result", plan.path, "1=fail", "rest=pass")
    code, _, err = plan("--result", plan.path, "1=pass")
    assert code == 2 and "--correct" in err
    code, out, _ = plan("--result", plan.path, "1=pass", "--correct")
    assert code == 0 and "NOT FOUND" in out


def test_results_that_contradict_each_other_are_said_and_can_be_judged_anew(plan):
    """A row fails, no column does: impossible if the fault always shows, a matter of more tests if it does not."""
    plan("--hosts", "16", "-o", plan.path)
    plan("--result", plan.path, "1=fail", "rest=pass")
    code, _, err = plan("--result", plan.path, "rest=pass")
    assert code == 2 and "contradict" in err and "--shows" in err
    code, out, _ = plan("--result", plan.path, "rest=pass", "--shows", "0.5")
    assert code == 0 and "Round 3" in out and "only rows failed" in out


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema": "rca.bisect/2"}', '{"schema": "rca.bisect/1"}', '{"schema": "rca.bisect/1", "hosts": 3}', "\x00\xff", "[" * 100000]
)
def test_a_damaged_plan_names_the_file(plan, text):
    """No traceback whatever is in it."""
    with open(plan.path, "w") as file:
        file.write(text)
    code, _, err = plan("--result", plan.path)
    assert code == 2 and plan.path in err and "Traceback" not in err and "internal" not in err


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("settings", "shows"), "x"), (("settings", "shows"), 7), (("settings", "what"), 1), (("layout", "tp"), 0), (("layout", "tp"), "a"), (("hosts", 0), "host2"), (("hosts",), []),
        (("rounds", 0, 0, "units"), [99]), (("rounds", 0, 0, "result"), "maybe"), (("rounds", 0, 0, "group"), 2), (("rounds", 0), 5), (("settings", "bad"), 1.5), (("settings", "parallel"), "2"),
    ],
)  # fmt: skip
def test_every_damaged_field_is_an_error_of_the_file(plan, where, value):
    """What was edited by hand is checked."""
    plan("--hosts", "9", "-o", plan.path)
    document = json.loads(Path(plan.path).read_text())
    place = document
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    Path(plan.path).write_text(json.dumps(document))
    code, _, err = plan("--result", plan.path)
    assert code == 2 and "internal" not in err and "Traceback" not in err


@pytest.mark.parametrize(
    "args", [["--hosts", "0"], [], ["--hosts", "9", "--shows", "0"], ["--hosts", "9", "--bad", "10"], ["--hosts", "9", "--confidence", "1"], ["--hosts-file", "missing"], ["1=fail"]]
)
def test_settings_that_cannot_work_are_refused(plan, args):
    """With a word on what is wrong."""
    code, out, err = plan(*args)
    assert code == 2 and not out and err.startswith("error: ")


def test_a_plan_is_not_written_over(plan):
    """The second `-o` says how to go on."""
    plan("--hosts", "9", "-o", plan.path)
    code, _, err = plan("--hosts", "9", "-o", plan.path)
    assert code == 2 and "--result" in err


def test_a_simulation_prints_its_table(capsys):
    """The same on one core and on two."""
    tables = []
    for jobs in ("1", "2"):
        assert main(["bisect", "simulate", "--hosts", "64", "--bad", "1", "--trials", "8", "--jobs", jobs]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] and "2.0     2" in tables[0] and "6.0 tests" in tables[0]
