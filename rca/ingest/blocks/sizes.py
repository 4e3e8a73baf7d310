"""What a program says of the memory that it holds, step after step: `storage_size=102601996515`, `rss=41.2 GiB`, `used_memory:...`.

Only names that mean the memory of a process or of a store; device memory, budgets, peaks and totals of traffic are something else. Small values are no news.

>>> samples('INFO meta_server.py:131 -- 23790 -- "GET /v1/health HTTP/1.1" 200 storage_size=102601996515 keys=192')
[('meta_server', 'service_bytes', 102601996515)]
>>> samples("kv-store-0: heap_used=3.5GiB peak_rss=9 GiB"), samples("step 3 loss 2.1 batch_size=512 gpu_mem=71.2 GiB cache_size=4096")
([('kv-store-0', 'service_bytes', 3758096384)], [])
"""

from __future__ import annotations

import re

SIZE = re.compile(
    r"(?<![\w.])(?P<name>(?:[a-z]{1,20}_){0,3}(?:storage_size|store_size|cache_size|rss|resident|heap_used|used_heap|used_memory|used_mem|memory_used|memory_usage|mem_used|mem_usage)(?:_rss|_bytes|_kb|_mb|_gb|_mib|_gib)?)"
    r"\"?\s?[=:]\s?(?P<value>\d{1,18}(?:\.\d{1,6})?)\s?(?P<unit>[kmgt]i?b\b|[kmgt]\b|bytes\b|b\b)?"
)
NOT_HELD = re.compile(r"gpu|cuda|vram|device|peak|max|limit|total|budget|kv|free")
SERVICE = re.compile(r"(?<![\w/])(?P<service>[A-Za-z][\w-]{0,40}?(?:server|service|store|cache|coordinator|registry|redis|etcd|meta|broker|master|worker|loader)[\w-]{0,20})(?:\.py|[:\]\s.(])", re.I)
UNITS = {"b": 1, "bytes": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
LEAST = 64 << 20


def may_hold(low: str) -> bool:
    """Whether a line, in lower case, may tell a size: asked of every line, so by substrings."""
    return (
        "mem_us" in low or "used_mem" in low or "rss" in low or "storage_size" in low or "memory_us" in low or "heap_used" in low or "used_heap" in low
        or "cache_size" in low or "store_size" in low or "resident" in low
    )  # fmt: skip


def samples(text: str) -> list[tuple[str | None, str, int]]:
    """`(service, "service_bytes", bytes)` for the sizes of one line."""
    found: list[tuple[str | None, str, int]] = []
    for match in SIZE.finditer(text.lower()):
        name, unit = match["name"], match["unit"] or match["name"].rpartition("_")[2]
        scale = UNITS.get(unit, UNITS.get(unit[:1], 1) if unit in ("kb", "mb", "gb", "kib", "mib", "gib", "tib", "tb") else 1)
        value = int(float(match["value"]) * scale)
        if value >= LEAST and not NOT_HELD.search(name):
            service = SERVICE.search(text)
            found.append((service["service"] if service else name, "service_bytes", value))
            break
    return found
