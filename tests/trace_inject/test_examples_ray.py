"""The Ray example with a real Ray on this machine: run, one actor broken for real, and explained from what is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import venvs
from trace_inject.jobs import Job

pytestmark = pytest.mark.real
MAIN = venvs.ROOT / "examples" / "ray_actors" / "main.py"

@pytest.fixture(scope="module")
def python() -> Path:
    return venvs.python_with("ray")


@pytest.fixture
def job(python: Path, tmp_path: Path) -> Iterator:
    """Starts the example; Ray's own processes are gone at the end."""
    jobs = []

    def start(*arguments: object, change: tuple[str, str] | None = None) -> Job:
        main = MAIN
        if change is not None:
            source = MAIN.read_text()
            assert change[0] in source
            main = tmp_path / "changed.py"
            main.write_text(source.replace(*change))
        jobs.append(Job([python, main, *arguments], tmp_path / "job", RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled"))
        return jobs[-1]

    yield start
    for each in jobs:
        each.__exit__()


def test_healthy(job) -> None:
    """Both sides of each call are spans of one trace, an actor is known by role and number, and nothing is found."""
    run = job("--steps", 2)
    assert run.ended(90) == 0, run.said()
    assert run.faults() == []
    heads = {(head.get("role"), head.get("rank")) for head, _ in run.records()}
    assert heads >= {("controller", None), ("rollout", 0), ("rollout", 1), ("train", 0)}
    sent = {r["id"]: r for _, r in run.records("start") if r["n"] in ("generate sent", "train sent")}
    served = [r for _, r in run.records("start") if r["n"] in ("Rollout.generate", "Trainer.train")]
    assert len(served) == len(sent) == 6
    assert all((sent[r["p"]]["tr"], sent[r["p"]].get("s")) == (r["tr"], r.get("s")) for r in served)
    waited = [r["a"] for _, r in run.records("start") if r["n"] == "ray.get generate"]
    assert [a["rca.peer"] for a in waited] == ["rollout/0", "rollout/1"] * 2
    assert run.verdict().verdict == "healthy", run.verdict()


def test_an_actor_killed_in_a_call(job) -> None:
    """Ray says that the actor died; its open span says in what."""
    run = job("--steps", 50)
    pid, _ = run.wait_for("rollout", 1, "start", "Rollout.generate", step=2)
    os.kill(pid, signal.SIGKILL)
    assert run.ended(90) != 0
    found = run.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.actor_died"), found
    assert found.entity.get("pid") == pid, found


def test_an_actor_stopped_in_a_call(job) -> None:
    """It neither answers nor ends; `ray.get` gives up."""
    run = job("--steps", 50, "--timeout", 3)
    pid, _ = run.wait_for("rollout", 1, "start", "Rollout.generate", step=2)
    os.kill(pid, signal.SIGSTOP)
    assert run.ended(90) != 0
    found = run.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.rpc"), found
    assert found.entity.get("pid") == pid, found


def test_an_actor_that_raises(job) -> None:
    """The exception is the actor's, and the driver only repeats it."""
    run = job("--steps", 50, change=("time.sleep(0.2)\n", 'time.sleep(0.2)\n        assert step < 2, f"step {step} of rank {self.rank} has no labels"\n'))
    assert run.ended(90) != 0
    found = run.verdict()
    assert (found.verdict, found.cause) == ("failed", "sw.rank_exception"), found
    assert found.entity.get("role") == "train", found


def test_an_actor_calls_another(python: Path, tmp_path: Path) -> None:
    """A wrapped handle goes through Ray into another actor and works there; tasks and generators are spans, too; undecorated arguments pass unchanged."""
    script = tmp_path / "handles.py"
    script.write_text(
        """
import ray
from rca import trace_inject as rt
rt.install(role="controller")
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False, runtime_env={"env_vars": rt.ray_environment()})
rt.trace_ray()

@ray.remote(num_cpus=0)
@rt.traced_actor(role="reward")
class Reward:
    def score(self, text, *, scale=1):
        return len(text) * scale
    async def later(self, x):
        return x + 1

@ray.remote(num_cpus=0)
@rt.traced_actor(role="rollout")
class Rollout:
    def __init__(self, reward, rank):
        self.reward = reward
    def make(self, **extra):
        rt.trace_ray()
        return ray.get(self.reward.score.remote("abc", scale=2)), extra

@ray.remote
@rt.traced_task
def double(x):
    return 2 * x

reward = rt.traced_handle(Reward.remote(), "reward/0")
rollout = rt.traced_handle(Rollout.remote(reward, rank=5), "rollout/5")
assert ray.get(rollout.make.remote(a=1)) == (6, {"a": 1})
assert ray.get(reward.later.remote(1)) == 2
assert ray.get(rt.traced_handle(double).remote(4)) == 8
assert ray.get(rt.traced_handle(double).options(num_cpus=0).remote(4)) == 8
assert ray.get([double.remote(1), double.remote(2)]) == [2, 4]
ray.shutdown()
"""
    )
    with Job([python, script], tmp_path / "job", RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled") as run:
        assert run.ended(90) == 0, run.said()
        assert run.faults() == []
        names = {(head.get("role"), head.get("rank"), r["n"]) for head, r in run.records("start")}
        assert names >= {("rollout", 5, "Rollout.make"), ("reward", None, "Reward.score"), ("rollout", 5, "score sent"), ("reward", None, "Reward.later")}, names
        assert len({r["tr"] for _, r in run.records("start")}) == 1
