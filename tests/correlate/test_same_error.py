"""What one print of an error shows, its other prints mean too."""

from __future__ import annotations

from rca.correlate.same_error import share
from rca.taxonomy import Kind
from tests.builders import event

REFUSED = "RuntimeError: CUDA error: invalid argument\nCUDA kernel errors might be asynchronously reported at some other API call"
FRAMES = {"frames": [("/x/torch/multiprocessing/reductions.py", 357, "reduce_tensor")], "traceback": True}


def test_caller_repeats_what_the_workers_traceback_explains() -> None:
    """The refused call is seen in one traceback only; the caller's line and another rank's last line are the same failure."""
    own = event(Kind.DEVICE_IPC, REFUSED, attrs=FRAMES)
    caller = event(Kind.DEVICE_ERROR, "update_weights on 10.0.0.3:21000 failed: HTTP 500 CUDA error: invalid argument", rank=None)
    assert [e.kind for e in share([own, caller])] == [Kind.DEVICE_IPC, Kind.DEVICE_IPC]


def test_another_error_or_another_stack_is_its_own() -> None:
    """Neither other words nor a traceback that shows another call are changed."""
    own = event(Kind.DEVICE_IPC, REFUSED, attrs=FRAMES)
    other = event(Kind.DEVICE_ERROR, "CUDA error: unspecified launch failure")
    elsewhere = event(Kind.DEVICE_ERROR, REFUSED, attrs={"frames": [("/app/kernels.py", 9, "launch")], "traceback": True})
    assert [e.kind for e in share([own, other, elsewhere])] == [Kind.DEVICE_IPC, Kind.DEVICE_ERROR, Kind.DEVICE_ERROR]
