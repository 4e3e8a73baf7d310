"""py-spy dumps as people leave them: whole, only the main threads, several processes in one file."""

from __future__ import annotations

from rca.ingest.reader import Reader

WAITS = "    all_reduce (torch/distributed/distributed_c10d.py:1324)\n    train (train.py:9)"
LOADS = "    wait (threading.py:320)\n    get (queue.py:180)\n    _try_get_data (torch/utils/data/dataloader.py:1011)\n    train (train.py:7)"


def dumps(text: str) -> list[dict]:
    reader = Reader("dump.txt")
    for number, line in enumerate(text.split("\n"), 1):
        reader.line(line, number, number, [])
    return [e for e in reader.finish()["events"] if e["kind"] == "process.stack_dump"]


def test_several_processes_of_one_file():
    text = (
        f'Process 11: python train.py --local_rank 0\nPython v3.10.12 (/usr/bin/python3)\n\nThread 11 (active): "MainThread"\n{WAITS}\n'
        f'Thread 99 (idle): "pin_memory"\n    wait (threading.py:1)\n'
        f'Process 12: python train.py --local_rank=1\nPython v3.10.12 (/usr/bin/python3)\n\nThread 12 (idle): "MainThread"\n{LOADS}\n'
    )
    first, second = dumps(text)
    assert (first["pid"], first["local_rank"], first["attrs"]["place"]) == (11, 0, "collective")
    assert (second["pid"], second["local_rank"], second["attrs"]["place"]) == (12, 1, "loader")
    assert second["attrs"]["frame"][2] == "_try_get_data"


def test_main_threads_only_and_several_in_front_of_one_stack():
    text = f'Thread 21 (active): "MainThread"\nThread 22 (active): "MainThread"\n{WAITS}\nThread 23 (idle): "MainThread"\n{LOADS}'
    first, second = dumps(text)
    assert (first["attrs"]["processes"], first["attrs"]["place"]) == (2, "collective")
    assert (second["pid"], second["attrs"]["place"]) == (23, "loader")


def test_other_lines_are_no_dump():
    assert dumps('Process 12: finished\nThread 3 (idle): "worker"\nProcess 7: cat /etc/hosts') == []
