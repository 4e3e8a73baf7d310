"""Parallel groups: the degrees that a program prints with its arguments, the coordinates it gives a rank, whether roles share devices.

>>> for text in SAMPLE.splitlines():
...     print(sight(text, text.lower()))
[('sizes', {'tp': 4, 'pp': 2})]
[('sizes', {'tp': 8})]
[('place', {'rank': 15, 'dp': 0, 'pp': 1, 'tp': 7, 'world': 16})]
[('colocated', {'value': True})]
[('sizes', {'tp': 2, 'dp': 4})]

Source: Megatron-LM and vLLM arguments, vLLM `parallel_state.py`, SGLang `ServerArgs`.
"""

from __future__ import annotations

import re
from typing import Any

SAMPLE = """\
args: tensor_model_parallel_size=4, pipeline_model_parallel_size=2, lr=1e-6
  tensor_model_parallel_size ...................... 8
rank 15 in world size 16 is assigned as DP rank 0, PP rank 1, TP rank 7
config: {"trial": "x", "colocate": true, "world_size": 32}
ServerArgs(model_path='m', tp_size=2, dp_size=4, port=30000)"""

LITERALS = (b"parallel_size", b"tp_size", b"is assigned as", b"colocat")
AXES = {"tensor": "tp", "tp": "tp", "pipeline": "pp", "pp": "pp", "data": "dp", "dp": "dp", "expert": "ep", "ep": "ep", "context": "cp", "cp": "cp", "sequence": "sp", "sp": "sp"}
SIZE = re.compile(
    r"(?<![A-Za-z\d_])(?:(tensor|pipeline|data|expert|context|sequence)(?:_model)?_parallel_size|(tp|pp|dp|ep|cp|sp)_size)[\"']?\s?(?:[=:]|\.{3,60})\s?[\"']?(\d{1,6})(?![\d.])", re.I
)
PLACED = re.compile(r"\brank (\d{1,6}) in world size (\d{1,6}) is assigned as (.{3,160})")
COORDINATE = re.compile(r"\b(DP|PP|TP|EP|CP|PCP) rank (\d{1,6})", re.I)
COLOCATED = re.compile(r"[\"']?\bcolocat(?:e|ed|ion)(?:_all|_all_models|_actor_ref|_inference)?[\"']?\s?[=:]\s?[\"']?(true|false|1|0|yes|no)\b", re.I)


def sight(text: str, low: str) -> list[tuple[str, dict[str, Any]]]:
    """The degrees, coordinates and declarations of a line."""
    found: list[tuple[str, dict[str, Any]]] = []
    if "is assigned as" in low and (m := PLACED.search(text)):
        found.append(("place", {"rank": int(m[1]), **{c[0].lower(): int(c[1]) for c in COORDINATE.findall(m[3])}, "world": int(m[2])}))
    elif ("parallel_size" in low or "p_size" in low) and (sizes := {AXES[(m[1] or m[2]).lower()]: int(m[3]) for m in SIZE.finditer(text) if int(m[3])}):
        found.append(("sizes", sizes))
    if "colocat" in low and (m := COLOCATED.search(text)):
        found.append(("colocated", {"value": m[1].lower() in ("true", "1", "yes")}))
    return found
