"""Find the true root cause of failed distributed training runs.

The stages, in order: `ingest` (bytes to records to events), `correlate` (events to a causal graph), `rules` (graph to hypotheses to a
verdict), `report` (verdict to text). `analyze` runs them all:

    import rca
    report = rca.analyze("logs/")
    print(report.verdict, report.document["hypotheses"][0]["cause"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rca.errors import RcaError
    from rca.pipeline import Report, analyze

__version__ = "0.1.0"
__all__ = ["RcaError", "Report", "analyze"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    """Import the pipeline only when it is used: `import rca` stays cheap inside a trainer."""
    if name in ("analyze", "Report"):
        from rca import pipeline

        return getattr(pipeline, name)
    if name == "RcaError":
        from rca.errors import RcaError

        return RcaError
    raise AttributeError(f"module `rca` has no attribute `{name}`")
