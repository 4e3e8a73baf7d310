"""NVIDIA GPUs by NVML (package `nvidia-ml-py`), where both are there: memory errors, remapped rows, Xids, NVLink, clocks slowed by heat or power, use.

The library is imported at the first sample, never before. What a device does not support is not asked for again.
Source: the NVML reference: nvmlDeviceGetTotalEccErrors, nvmlDeviceGetRemappedRows, nvmlClocksEventReason*, nvmlEventTypeXidCriticalError, NVML_FI_DEV_NVLINK_*.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rca.trace_inject.sampler._place import Place, Values, subject

IDLE = 0x1  # a reason for slow clocks that comes and goes with the work
XIDS_MOST = 16  # of one sample
LINKS = {"NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "recovery", "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "crc_data"}
VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by NVML_VALUE_TYPE_*


class Devices:
    """NVML, begun in this process."""

    def __init__(self, nvml: Any) -> None:
        self.nvml, self.pid = nvml, os.getpid()
        nvml.nvmlInit()
        self.handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        self.about = [subject(gpu=i, bus_id=_text(nvml.nvmlDeviceGetPciInfo(handle).busId)) for i, handle in enumerate(self.handles)]
        self.xids = dict.fromkeys(range(len(self.handles)), 0)
        self.without: set[tuple[int, str]] = set()
        self.events = None
        try:
            self.events = nvml.nvmlEventSetCreate()
            for handle in self.handles:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self.events)
        except Exception:
            self.events = None  # not everybody may

    def ask(self, gpu: int, name: str, *args: Any) -> Any:
        """One question about a device; None where there is no answer."""
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        question = name + repr(args)
        if function is None or (gpu, question) in self.without:
            return None
        try:
            return function(self.handles[gpu], *args)
        except Exception as error:
            if type(error).__name__ == "NVMLError_NotSupported":
                self.without.add((gpu, question))
            return None


def read(place: Place) -> Values:
    """All devices of the host."""
    devices = place.memory.get("devices", place)
    if devices is place:
        try:
            import pynvml

            devices = Devices(pynvml)
        except Exception:  # no package, no driver, no device
            devices = None
        place.memory["devices"] = devices
    if devices is None:
        return {}
    _xids(devices)
    found: Values = {}
    for gpu, about in enumerate(devices.about):
        values = dict(_device(devices, gpu))
        found.update({(about, name): value for name, value in values.items() if value is not None})
        if values:
            found[about, "gpu.xid"] = devices.xids[gpu]
        for name, counter in LINKS.items():
            if (errors := _field(devices, gpu, name)) is not None:
                found[f"{about},counter={counter}", "gpu.nvlink_errors"] = errors
    return found


def _device(devices: Devices, gpu: int) -> list[tuple[str, float | None]]:
    nvml, ask = devices.nvml, devices.ask
    found: list[tuple[str, float | None]] = []
    for name, kind, since in (
        ("gpu.ecc_uncorrected", "UNCORRECTED", "VOLATILE"), ("gpu.ecc_corrected", "CORRECTED", "VOLATILE"), ("gpu.ecc_uncorrected_ever", "UNCORRECTED", "AGGREGATE"),
    ):  # fmt: skip
        found.append((name, ask(gpu, "nvmlDeviceGetTotalEccErrors", getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}", 0), getattr(nvml, f"NVML_{since}_ECC", 0))))
    if (rows := ask(gpu, "nvmlDeviceGetRemappedRows")) is not None:
        found += zip(("gpu.remap_corrected", "gpu.remap_uncorrected", "gpu.remap_pending", "gpu.remap_failed"), map(int, rows), strict=False)
    if (memory := ask(gpu, "nvmlDeviceGetMemoryInfo")) is not None:
        found += [("gpu.mem_used", memory.used), ("gpu.mem_total", memory.total)]
    if (use := ask(gpu, "nvmlDeviceGetUtilizationRates")) is not None:
        found.append(("gpu.util", use.gpu))
    reasons = next((r for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons") if (r := ask(gpu, name)) is not None), None)
    if reasons is not None:
        found.append(("gpu.slow_mask", reasons & ~IDLE))
    found += [
        ("gpu.temperature", ask(gpu, "nvmlDeviceGetTemperature", getattr(nvml, "NVML_TEMPERATURE_GPU", 0))),
        ("gpu.sm_clock", ask(gpu, "nvmlDeviceGetClockInfo", getattr(nvml, "NVML_CLOCK_SM", 1))),
        ("gpu.pcie_replays", ask(gpu, "nvmlDeviceGetPcieReplayCounter")), ("gpu.pcie_width", ask(gpu, "nvmlDeviceGetCurrPcieLinkWidth")),
    ]  # fmt: skip
    return [(name, value) for name, value in found if value is not None]


def _field(devices: Devices, gpu: int, name: str) -> float | None:
    """A value that NVML gives by number."""
    number = getattr(devices.nvml, name, None)
    answer = devices.ask(gpu, "nvmlDeviceGetFieldValues", (number,)) if number is not None else None
    if not answer or answer[0].nvmlReturn != 0 or not 0 <= answer[0].valueType < len(VALUES):
        return None
    return getattr(answer[0].value, VALUES[answer[0].valueType], None)


def _xids(devices: Devices) -> None:
    """Take the Xids that have come since the last sample, without waiting."""
    if devices.events is None:
        return
    wait = getattr(devices.nvml, "nvmlEventSetWait_v2", None) or devices.nvml.nvmlEventSetWait
    for _ in range(XIDS_MOST):
        try:
            event = wait(devices.events, 0)
            devices.xids[devices.nvml.nvmlDeviceGetIndex(event.device)] = int(event.eventData)
        except Exception:  # by a time-out NVML says that there is none
            return


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
