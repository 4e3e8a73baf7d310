"""`rca gate`: analyze, and let a policy decide the exit code."""

from typing import Any

from rca.console import safe, say
from rca.given import Given, code, options, report
from rca.report.write import to_stdout

HELP = """Analyze a run and let a policy decide the exit code.

Without a policy a failed run violates (1) and an inconclusive one only warns (0). The policy is read from `rca.toml` of the current folder if
there is one. Globs on the command line come before the file's; of several that match, the longest decides.

\b
Examples:
  rca gate logs/
  rca gate logs/ --fail 'gpu.*' --warn '*' --min-confidence 0.8
  rca gate logs/ --policy ci/rca.toml

Exit codes: 0 policy met, 1 violated, 2 wrong usage or policy, 3 incomplete input, 4 internal error, 5 no recognisable evidence.
"""


def add(cli: Any) -> None:
    """Give the command to the app."""
    from pathlib import Path
    from typing import Annotated

    import typer

    Paths, Rules, Baseline, Topology, Prometheus = options()
    Policy = Annotated[str | None, typer.Option("--policy", metavar="FILE", help="The policy; else `rca.toml` of this folder, if there is one.")]
    Fail = Annotated[list[str], typer.Option("--fail", metavar="GLOB", help="Causes that violate, as `gpu.*`; may be repeated.", show_default=False)]
    Warn = Annotated[list[str], typer.Option("--warn", metavar="GLOB", help="Causes that only warn.", show_default=False)]
    Ignore = Annotated[list[str], typer.Option("--ignore", metavar="GLOB", help="Causes to ignore.", show_default=False)]
    Least = Annotated[float | None, typer.Option("--min-confidence", metavar="X", help="Judge only hypotheses at or above X (0 to 1).")]

    @cli.command(help=HELP)
    def gate(
        paths: Paths, policy: Policy = None, fail: Fail = [], warn: Warn = [], ignore: Ignore = [], min_confidence: Least = None,  # noqa: B006
        baseline: Baseline = None, rules: Rules = None, topology: Topology = None, prometheus: Prometheus = None,
    ) -> int:  # fmt: skip
        from rca.gate import Policy, decide, read_policy

        default = Path("rca.toml")
        chosen = read_policy(Path(policy)) if policy else read_policy(default) if default.is_file() else Policy()
        chosen = chosen.over(fail=fail, warn=warn, ignore=ignore, min_confidence=min_confidence)
        found = report(paths, Given(rules, baseline, topology, prometheus))
        if not found.recognised:
            return code(found)
        decision = decide(found.document, chosen)
        to_stdout("".join(f"{safe(line)}\n" for line in decision.lines))
        for warning in decision.warnings:
            say(f"warning: {warning}")
        return decision.exit_code or code(found)
