"""Ways for the weights from train rank 0 to the rollout workers, one file each, with the same two classes.

    Sender(config, run, address).upload(version, weights)          in train rank 0
    Receiver(config, run, rank).receive(version, like) -> weights      in each rollout worker
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def of(config: Any) -> Any:
    """The module of the configured way."""
    return import_module(f"{__name__}.{config.weight_sync}")
