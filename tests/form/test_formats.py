"""Every file of `rca/ingest/formats` is one that the reader of lines asks."""

import importlib
import pkgutil

from rca.ingest import formats, line


def test_no_shape_is_forgotten():
    """Every grammar and wrapper of the folder is tried by `parse`: the table in line.py is written by hand for speed."""
    known = {m.read for m in vars(line).values() if hasattr(m, "read")} | {m.peel for m in vars(line).values() if hasattr(m, "peel")}
    nested = {"journal_json", "mpi", "ray_event"}  # read through json_line, tee and launch
    for info in pkgutil.iter_modules(formats.__path__):
        module = importlib.import_module(f"rca.ingest.formats.{info.name}")
        for name in ("read", "peel"):
            function = getattr(module, name, None)
            if function is not None and getattr(function, "__module__", "") == module.__name__ and info.name not in nested:
                assert function in known, f"{info.name}.{name} is not in rca/ingest/line.py"
