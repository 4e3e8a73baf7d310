"""Record the logs of one fault: `python record.py FAULT OUT` (logs in OUT/logs, truth beside), or `python record.py --list`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torchrun.faults import FAULTS
from torchrun.harness import lacking, record


def main(argv: list[str]) -> int:
    if argv == ["--list"]:
        print("\n".join(f"{name:<36}{fault.what}" for name, fault in FAULTS.items()))
        return 0
    if len(argv) != 2 or argv[0] not in FAULTS:
        print(__doc__, file=sys.stderr)
        return 2
    fault, out = FAULTS[argv[0]], Path(argv[1])
    if need := lacking(fault.needs):
        print(f"error: this machine does not allow: {need}", file=sys.stderr)
        return 1
    seconds = record(fault, out / "logs")
    (out / "truth.json").write_text(fault.truth.as_json())
    print(f"{fault.name}: {seconds:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
