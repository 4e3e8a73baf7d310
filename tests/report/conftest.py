"""Golden text: what a renderer gives for a known case."""

from __future__ import annotations

from pathlib import Path

import pytest

from rca.report.document import document
from rca.taxonomy import Kind
from tests.builders import NOON_NS, SECOND_NS, event, evidence, hypothesis, missing, reading, run, verdict

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(request):
    """Compare text with `golden/<name>`, or write it there under `--update-golden`."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def ecc_report() -> dict:
    """A GPU fault during rollout that comes to light in the next weight update."""
    xid = event(
        Kind.DEVICE_MEMORY_ERROR, "NVRM: Xid (PCI:0000:3b:00): 48, pid=4711, An uncorrectable double bit error (DBE) has been detected",
        severity="fatal", host="node-7", role="rollout", rank=27, gpu=3, stage="rollout", step=41, time_error_ns=12_000_000,
        source="logs/dmesg-node-7.log", line=812,
    )  # fmt: skip
    loud = event(
        Kind.WEIGHTS_FAILED, "TrainEngineError: UploadWeightsError: Status code: 500, CUDA error: device-side assert triggered [/nope] in " + "layer." * 30,
        time_ns=NOON_NS + 9 * SECOND_NS, host="node-7", rank=3, stage="weights_update", step=42, source="logs/driver.log", line=90210,
    )  # fmt: skip
    quiet = event(Kind.RANK_SILENT, "rank 3 wrote nothing for 9 s", severity="warning", source=None, line=None, rank=3, also=loud.records)
    retry = event(Kind.RPC_FAILED, "rpc to node-2 failed once and was retried", severity="warning", source="logs/driver.log", line=17, host="node-2")
    first = hypothesis(
        "gpu.ecc", rule="coupling/01_colocated_gpu_fault", title="A GPU fault during rollout breaks the colocated trainer", confidence=0.93, event=xid,
        summary="GPU 3 of node-7 had an uncorrectable memory error while rollout used it; train shares the device and failed in the next weight update",
        entity={"host": "node-7", "role": "rollout", "rank": 27, "gpu": 3}, symptom=loud, evidence=(evidence(xid), evidence(quiet, "mechanism"), evidence(loud, "symptom")),
        missing=(missing("ECC counters of node-7", "nvidia-smi -q -d ECC,ROW_REMAPPER"),), why=("-4.0 base rate of gpu.ecc", "+4.5 cause", "-0.4 no handle was shared"),
        remedy={"action": "replace-node", "text": "drain the node and run the field diagnostic", "retryable": True, "cordon": ["node-7"]},
    )  # fmt: skip
    second = hypothesis(
        "sw.device_assert", rule="sw/device_assert", title="A kernel assertion failed", confidence=0.04, event=loud, evidence=(evidence(loud), evidence(xid, "against")),
        why=("-3.0 base rate of sw.device_assert", "+1.0 assertion named", "-1.5 no index message though stderr was read"),
    )  # fmt: skip
    case = run(xid, loud, quiet, retry, hosts=("node-2", "node-7"), world=32, missing=(missing("rank 5 of 32 left no log", "torchrun --redirects 3"),),
               notes=(("one RPC to node-2 failed and was retried; nothing depends on it", retry),),
               readings=(reading("logs/driver.log"), reading("logs/dmesg-node-7.log", format="dmesg")))  # fmt: skip
    return document(
        case,
        verdict(first, second, summary="A GPU of node-7 broke during rollout; the weight update that failed is its victim."),
        seconds=1.25,
        version="0.1.0",
    )
