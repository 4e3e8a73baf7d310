"""What the scheduler left: pods and events of Kubernetes, or sacct and the batch output of Slurm. `w.sched` holds what it noticed."""

from __future__ import annotations

import json
import time
from typing import Any

from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Worker


def _utc(t: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(t))


def _pod(rec: Recorder, who: Worker) -> str:
    return f"{rec.w.run}-{who.role.replace('_', '-')}-{who.index}"


def k8s(rec: Recorder) -> None:
    w = rec.w
    failed = w.truth.get("verdict_expected") == "failed"
    pods, events = [], []
    for who in [w.controller, *w.role("rollout"), w.store]:
        oom = next((t for t, kind, d in w.sched if kind == "oom" and d["who"] is who), None)
        state: dict[str, Any] = {"running": {"startedAt": _utc(w.start)}}
        if oom:
            state = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": _utc(w.start), "finishedAt": _utc(oom)}}
        elif who is w.controller:
            state = {"terminated": {"exitCode": int(failed), "reason": "Error" if failed else "Completed", "startedAt": _utc(w.start), "finishedAt": _utc(w.end)}}
        pods.append({"kind": "Pod", "metadata": {"name": _pod(rec, who), "namespace": "rl", "labels": {"app": w.run, "role": who.role}}, "spec": {"nodeName": who.host.name},
                     "status": {"phase": "Failed" if (oom or (failed and who is w.controller)) else "Running" if who is not w.controller else "Succeeded", "podIP": who.host.ip, "hostIP": who.host.ip, "containerStatuses": [{"name": "main", "restartCount": 0, "state": state}]}})  # fmt: skip
        events.append({"type": "Normal", "reason": "Scheduled", "message": f"Successfully assigned rl/{_pod(rec, who)} to {who.host.name}", "involvedObject": {"kind": "Pod", "name": _pod(rec, who), "namespace": "rl"}, "source": {"component": "default-scheduler"}, "firstTimestamp": _utc(w.start - 40), "lastTimestamp": _utc(w.start - 40), "count": 1})
    for t, kind, d in w.sched:
        if kind == "preempt":
            for who in [w.controller, *w.role("rollout")]:
                events.append({"type": "Normal", "reason": "Preempted", "message": f"Preempted by pod {d['by']} on node {who.host.name}", "involvedObject": {"kind": "Pod", "name": _pod(rec, who), "namespace": "rl"}, "source": {"component": "default-scheduler"}, "firstTimestamp": _utc(t), "lastTimestamp": _utc(t), "count": 1})
    rec.shared("k8s/pods.json").append(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}, indent=1))
    rec.shared("k8s/events.json").append(json.dumps({"apiVersion": "v1", "kind": "List", "items": events}, indent=1))


def slurm(rec: Recorder) -> None:
    w = rec.w
    job, failed = 100000 + w.seed * 7 % 90000 + w.rng.randrange(9000), w.truth.get("verdict_expected") == "failed"
    preempted = next(((t, d) for t, kind, d in w.sched if kind == "preempt"), None)
    nodes = ",".join(h.name.split(".")[0] for h in w.hosts)
    first = w.hosts[0]
    state = "PREEMPTED" if preempted else "FAILED" if failed else "COMPLETED"
    start, end = rec.local(first, w.start - 20, "%Y-%m-%dT%H:%M:%S"), rec.local(first, w.end + 4, "%Y-%m-%dT%H:%M:%S")
    rec.shared("slurm/sacct.txt").extend([
        "JobID|JobName|State|ExitCode|Start|End|NodeList", f"{job}|{w.run}|{state}|{'0:15' if preempted else '1:0' if failed else '0:0'}|{start}|{end}|{nodes}",
        f"{job}.batch|batch|{'CANCELLED' if preempted else state}|{'0:15' if preempted else '1:0' if failed else '0:0'}|{start}|{end}|{first.name.split('.')[0]}",
    ])  # fmt: skip
    out = rec.shared(f"slurm/slurm-{job}.out")
    out += [f"+ nodes: {nodes}", f"+ launching {w.run}"]
    for t, kind, d in w.sched:
        if kind == "oom":
            out += [f"slurmstepd: error: Detected 1 oom_kill event in StepId={job}.0. Some of the step tasks have been OOM Killed.", f"srun: error: {d['who'].host.name.split('.')[0]}: task {w.hosts.index(d['who'].host)}: Out Of Memory"]
        elif kind == "preempt":
            out.append(f"slurmstepd: error: *** JOB {job} ON {first.name.split('.')[0]} CANCELLED AT {rec.local(first, t, '%Y-%m-%dT%H:%M:%S')} DUE TO PREEMPTION ***")
    if failed and not preempted:
        out.append(f"srun: error: {first.name.split('.')[0]}: task 0: Exited with exit code 1")


FORMS = (k8s, slurm)
