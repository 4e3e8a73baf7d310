"""`rca rules`: what the analyzer knows, listed and shown."""

from typing import Any

from rca.console import columns, safe
from rca.given import OK, folder_of_rules, options
from rca.report.write import to_stdout


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


def _rules(folder: str | None) -> list[Any]:
    """All rules, with those of the user's folder, by id."""
    from pathlib import Path

    from rca.rules import load_rules

    if folder is not None:
        folder_of_rules(folder)
    return sorted(load_rules(Path(folder) if folder is not None else None), key=lambda rule: rule.id)
