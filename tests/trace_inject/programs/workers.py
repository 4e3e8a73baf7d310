"""Children of the three start methods of multiprocessing, or workers of a DataLoader, that record while their parent holds spans open.

    python workers.py FOLDER fork|spawn|forkserver|loader-fork|loader-spawn
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

from rca import trace_inject as rt

ITEMS = 24


@rt.traced
def item(number: int) -> tuple[int, int]:
    """What a worker does."""
    return number, os.getpid()


class Items:
    """A data set."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, number: int) -> Any:
        import torch

        return torch.tensor(item(number))


def main(folder: str, how: str) -> None:
    """Prints the pids of the workers."""
    rt.install(folder, role="controller")
    with rt.span("parent"), rt.span("loop"):
        if how.startswith("loader"):
            from torch.utils.data import DataLoader

            loader = DataLoader(Items(), num_workers=2, multiprocessing_context=how.split("-")[1], timeout=60)
            found = [tuple(batch[0].tolist()) for batch in loader]
        else:
            with multiprocessing.get_context(how).Pool(2) as pool:
                found = pool.map(item, range(ITEMS), chunksize=1)
                pool.close()
                pool.join()
    assert [number for number, _ in found] == list(range(ITEMS))
    print(*sorted({pid for _, pid in found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
