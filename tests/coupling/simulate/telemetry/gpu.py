"""GPU counters: nvidia-smi csv, DCGM exporter scrapes, DCGM in a Prometheus range query."""

from __future__ import annotations

from coupling.simulate.course import GPU_MIB
from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import BUSES, Host


def _lost(rec: Recorder, host: Host, gpu: int, t: float) -> bool:
    return rec.w.series("xid", host, str(gpu)).at(t, rec.rng) == 79


def nvidia_smi(rec: Recorder) -> None:
    head = "timestamp, index, pci.bus_id, temperature.gpu, power.draw [W], utilization.gpu [%], memory.used [MiB], memory.total [MiB], ecc.errors.corrected.volatile.total, ecc.errors.uncorrected.volatile.total"
    for host in rec.hosts():
        if not any(x.gpu is not None and x.host is host for x in rec.w.workers):
            continue
        lines = rec.file(host, "nvidia_smi.csv")
        lines.append(head)
        for t in rec.times(rec.rng.uniform(0, 9)):
            stamp = rec.local(host, t, "%Y/%m/%d %H:%M:%S") + f".{int(t * 1000) % 1000:03d}"
            for gpu in range(host.gpus):
                if _lost(rec, host, gpu, t):
                    lines.append(f"Unable to determine the device handle for GPU {BUSES[gpu]}.0: Unknown Error")
                    continue
                v = {n: rec.value(n, host, str(gpu), t) for n in ("gpu_temp", "gpu_power", "gpu_util", "gpu_mem", "ecc_cor", "ecc_unc")}
                lines.append(f"{stamp}, {gpu}, 0000{BUSES[gpu].upper()}.0, {v['gpu_temp']:.0f}, {v['gpu_power']:.2f} W, {min(100, v['gpu_util']):.0f} %, {v['gpu_mem']:.0f} MiB, {GPU_MIB} MiB, {v['ecc_cor']:.0f}, {v['ecc_unc']:.0f}")


def _rows(host: Host) -> list[tuple[str, str, str]]:
    """(metric, series, gpu)."""
    names = (("DCGM_FI_DEV_GPU_TEMP", "gpu_temp"), ("DCGM_FI_DEV_GPU_UTIL", "gpu_util"), ("DCGM_FI_DEV_FB_USED", "gpu_mem"), ("DCGM_FI_DEV_XID_ERRORS", "xid"), ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ecc_unc"), ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "ecc_cor"))
    return [(m, s, str(g)) for m, s in names for g in range(host.gpus)]


def _uuid(host: Host, gpu: str) -> str:
    return f"GPU-{int(host.boot):08x}-{int(gpu):04x}-1e75-186d-c187099e4fe5"


def dcgm_text(rec: Recorder) -> None:
    for host in rec.hosts():
        if not any(x.gpu is not None and x.host is host for x in rec.w.workers):
            continue
        rows = [(m, f'gpu="{g}",UUID="{_uuid(host, g)}",pci_bus_id="0000{BUSES[int(g)].upper()}.0",device="nvidia{g}",modelName="NVIDIA H100 80GB HBM3",Hostname="{host.name}"', s, g) for m, s, g in _rows(host)]
        rec.scrapes(host, "dcgm.prom", rows, rec.every * 3)


def dcgm_json(rec: Recorder) -> None:
    rows = [(m, {"gpu": g, "UUID": _uuid(host, g), "pci_bus_id": f"0000{BUSES[int(g)].upper()}.0", "Hostname": host.name, "instance": f"{host.ip}:9400", "job": "dcgm"}, s, host, g)
            for host in rec.hosts() if any(x.gpu is not None and x.host is host for x in rec.w.workers) for m, s, g in _rows(host)]  # fmt: skip
    rec.prom_json("dcgm_range.json", rows)


FORMS = (nvidia_smi, dcgm_text, dcgm_json)
