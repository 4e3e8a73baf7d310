"""SYNTHETIC: answers as NVML's Python module gives them, for machines without a GPU. Two devices; the second one supports less.

The names and shapes are those of the package nvidia-ml-py; what the devices say is made up.
"""

from __future__ import annotations

from types import SimpleNamespace as Answer

NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 109, 102
nvmlEventTypeXidCriticalError = 8

ecc = {0: 0, 1: 0}
reasons = {0: 1, 1: 0}
xids: list[tuple[int, int]] = []


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_Timeout(NVMLError):
    pass


def nvmlInit():
    pass


def nvmlDeviceGetCount():
    return 2


def nvmlDeviceGetHandleByIndex(i):
    return i


def nvmlDeviceGetIndex(handle):
    return handle


def nvmlDeviceGetPciInfo(handle):
    return Answer(busId=f"00000000:4{handle}:00.0".encode())


def nvmlDeviceGetTotalEccErrors(handle, kind, since):
    if handle == 1:
        raise NVMLError_NotSupported
    return ecc[handle] if kind == NVML_MEMORY_ERROR_TYPE_UNCORRECTED else 2


def nvmlDeviceGetRemappedRows(handle):
    return [1, 0, False, False]


def nvmlDeviceGetMemoryInfo(handle):
    return Answer(used=60 << 30, total=80 << 30)


def nvmlDeviceGetUtilizationRates(handle):
    return Answer(gpu=97, memory=40)


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return reasons[handle]


def nvmlDeviceGetTemperature(handle, sensor):
    return 61


def nvmlDeviceGetClockInfo(handle, clock):
    return 1980


def nvmlDeviceGetFieldValues(handle, numbers):
    return [Answer(nvmlReturn=0, valueType=3, value=Answer(ullVal=0 if n == NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL else 4)) for n in numbers]


def nvmlEventSetCreate():
    return xids


def nvmlDeviceRegisterEvents(handle, types, events):
    pass


def nvmlEventSetWait_v2(events, milliseconds):
    if not events:
        raise NVMLError_Timeout
    gpu, number = events.pop(0)
    return Answer(device=gpu, eventType=nvmlEventTypeXidCriticalError, eventData=number)
