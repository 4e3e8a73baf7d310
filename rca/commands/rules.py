"""`rca rules`: what the analyzer knows, listed, shown and tested."""

from typing import Any

from rca.console import columns, safe, say
from rca.given import OK, folder_of_rules, options
from rca.report.write import to_stdout

FAILED, WRONG = 1, 2
TEST_HELP = """Check the rules and signatures in a folder, and run the tests that the rules carry.

A test is a `[[test]]` table of a rule file: the lines of a log, and the cause that is to come first. docs/rules-howto.md shows one.

\b
Examples:
  rca rules test my-rules/
  rca analyze logs/ --rules my-rules/

Exit codes: 0 all is well, 1 a test failed, 2 a file is not a valid rule.
"""


def add(cli: Any) -> None:
    """Give the group of commands to the app."""
    from typing import Annotated

    import typer

    Rules = options()[1]
    Markdown = Annotated[bool, typer.Option("--markdown", help="Print the whole rule book, as in docs/rules.md.")]
    RuleId = Annotated[str, typer.Argument(metavar="RULE_ID")]
    group = typer.Typer(rich_markup_mode=None, help="What the analyzer knows.")
    cli.add_typer(group, name="rules")

    @group.command("list", help="List every rule, one line each, or all of them in full as Markdown.")
    def list_rules(rules: Rules = None, markdown: Markdown = False) -> int:
        found = _rules(rules)
        if markdown:
            from rca.report.rulebook import page

            to_stdout(page(found))
            return OK
        wide = max((len(rule.id) for rule in found), default=0)
        to_stdout("".join(f"{safe(rule.id):{wide}}  {safe(rule.title)}\n" for rule in found))
        return OK

    @group.command("show", help="Show what a rule finds, how it is told apart, and what to do.")
    def show_rule(rule_id: RuleId, rules: Rules = None) -> int:
        from rca.errors import RcaError, did_you_mean
        from rca.report.rule import page

        known = {rule.id: rule for rule in _rules(rules)}
        rule_id = rule_id if rule_id in known else rule_id.replace(".", "/")  # people copy the cause from a report
        if rule_id not in known:
            raise RcaError(f"no such rule: `{rule_id}`", hint=did_you_mean(rule_id, known) or "`rca rules list` shows them all")
        to_stdout(page(known[rule_id], columns()))
        return OK

    @group.command("test", help=TEST_HELP)
    def test_rules(folder: Annotated[str, typer.Argument(metavar="DIR")]) -> int:
        return test(folder)


def test(folder: str) -> int:
    """Check a folder of rules and run their tests: 0 if all is well, 1 if a test fails, 2 if a file is no rule."""
    from pathlib import Path

    from rca.ruletest import outcomes, problems

    folder_of_rules(folder)
    if found := problems(Path(folder)):
        for error in found:
            say(f"error: {error.message}" + (f" in {error.where}" if error.where else ""))
            if error.hint:
                say(f"  hint: {error.hint}")
        return WRONG
    own = {rule.id for rule in _rules(folder) if rule.path.is_relative_to(folder)}
    results = []
    for result in outcomes(Path(folder)):
        results.append(result)
        to_stdout(safe(f"{'ok  ' if result.passed else 'FAIL'}  {result.rule}: {result.name}: {result.told}") + "\n")
    failed = sum(not r.passed for r in results)
    untested = sorted(own - {r.rule for r in results})
    to_stdout(f"{len(own)} rule(s), {len(results)} test(s), {failed} failed\n")
    if untested:
        say(f"warning: without a test: {', '.join(untested)}")
    return FAILED if failed else OK


def _rules(folder: str | None) -> list[Any]:
    """All rules, with those of the user's folder, by id."""
    from pathlib import Path

    from rca.rules import load_rules

    if folder is not None:
        folder_of_rules(folder)
    return sorted(load_rules(Path(folder) if folder is not None else None), key=lambda rule: rule.id)
