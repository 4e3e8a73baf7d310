"""Synthetic: an RDMA adapter loses its link or its packets: mlx5 kernel lines in `logs/hosts/<host>/dmesg.log`, and its counters before and after. Nothing else happens.

Lines: drivers/infiniband/hw/mlx5/main.c and drivers/net/ethernet/mellanox/mlx5/core/events.c of Linux; counters: rdma-statistic(8).
"""

from __future__ import annotations

import datetime
import time

from rca.errors import RcaError
from rca.replay_trainer import kernel_log
from rca.replay_trainer.faults import Scene, noted

KIND = "synthetic"
NEEDS = ()
BUS = "0000:5e:00.0"
BEFORE = {"rx_write_requests": 153371244, "out_of_sequence": 12, "packet_seq_err": 0, "local_ack_timeout_err": 0, "rnr_nak_retry_err": 0, "roce_slow_restart": 0}
#: What happens -> (kernel lines with their delay in ms, what is added to the counters).
EVENTS: dict[str, tuple[tuple[tuple[int, str], ...], dict[str, int]]] = {
    "link_down": (
        ((0, f"mlx5_core {BUS}: Port module event: module 0, Cable unplugged"), (3, f"mlx5_core {BUS} mlx5_0: Port: 1 Link DOWN")),
        {"local_ack_timeout_err": 1843, "packet_seq_err": 37},
    ),
    "link_flap": (
        ((0, f"mlx5_core {BUS} mlx5_0: Port: 1 Link DOWN"), (4210, f"mlx5_core {BUS} mlx5_0: Port: 1 Link ACTIVE")),
        {"local_ack_timeout_err": 211, "packet_seq_err": 54, "out_of_sequence": 1308},
    ),
    "packet_loss": ((), {"out_of_sequence": 48211, "packet_seq_err": 9127, "local_ack_timeout_err": 652, "roce_slow_restart": 388}),
    "health": (((0, f"mlx5_core {BUS}: poll_health:825: device's health compromised - reached miss count."),), {"local_ack_timeout_err": 2290}),
}


def make(scene: Scene, role: str, rank: int, event: str = "link_down", before_s: float = 60.0) -> None:
    """The first reading of the counters is of `before_s` seconds ago, the second of one second after the event."""
    if event not in EVENTS:
        raise RcaError(f"`event` must be one of {', '.join(EVENTS)}: `{event}`")
    host, now_us = scene.host(role, rank), time.time_ns() // 1000
    lines, added = EVENTS[event]
    folder = scene.logs / "hosts" / host.name
    if lines:
        kernel_log.add(folder / "dmesg.log", [kernel_log.written(text, now_us + ms * 1000) for ms, text in lines])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "rdma_statistic.log").open("a", encoding="utf-8") as out:
        out.write(_reading(now_us - int(before_s * 1e6), BEFORE))
        out.write(_reading(now_us + max([ms for ms, _ in lines], default=0) * 1000 + 1_000_000, {name: value + added.get(name, 0) for name, value in BEFORE.items()}))
    noted(scene, synthetic=True, host=host.name, device="mlx5_0", event=event)


def _reading(ts_us: int, counters: dict[str, int]) -> str:
    when = datetime.datetime.fromtimestamp(ts_us // 1_000_000, datetime.UTC)
    values = " ".join(f"{name} {value}" for name, value in counters.items())
    return f"{when:%a %b} {when.day:2d} {when:%H:%M:%S} UTC {when:%Y}\nlink mlx5_0/1 {values}\n"
