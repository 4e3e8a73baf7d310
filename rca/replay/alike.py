"""Is this machine like the one that recorded? Where it is not, the same request may give other bits without a fault."""

from __future__ import annotations

import platform

from rca.errors import RcaError
from rca.replay.recording import Recording


def differences(recording: Recording, other_versions: bool) -> list[str]:
    """What is not the same, in words. Raises RcaError for other versions of torch or Python, unless they are accepted."""
    import torch

    here = {"torch": torch.__version__, "python": platform.python_version()}
    machine = {"machine": platform.machine(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    found: dict[str, None] = {}
    for header in recording.headers:
        for name, own in here.items():
            theirs = str(header.versions.get(name, own))
            if _release(name, theirs) != _release(name, own):
                if not other_versions:
                    raise RcaError(
                        f"recorded with {name} {theirs}, this is {own}: its numbers may differ", where=str(header.source),
                        hint=f"install {name} {_release(name, theirs)}, or accept it with --other-versions: a difference is then no evidence",
                    )  # fmt: skip
                found[f"{name} {theirs}, here {own}"] = None
            elif name == "torch" and theirs != own:  # another build: `2.13.0+cpu`, `2.13.0+cu130`
                found[f"{name} {theirs}, here {own}"] = None
        for name, own in machine.items():
            if (said := header.facts.get(name)) is not None and said != own:
                found[f"{name.replace('_', ' ')} {str(said)[:40]}, here {own}"] = None
    return list(found)


def _release(name: str, version: str) -> str:
    """What decides about numbers: a release of torch, `3.11` of Python.

    >>> _release("torch", "2.13.0+cpu"), _release("python", "3.11.7")
    ('2.13.0', '3.11')
    """
    return version.split("+")[0] if name == "torch" else ".".join(version.split(".")[:2])
