"""Every rule is complete, names its sources and what fools it, and covers the classes it claims."""

from __future__ import annotations

import pytest

from rca.rules import Rule, load_rules

RULES = load_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_rule_is_a_documentation_page(rule: Rule) -> None:
    """Its prose fields say what it finds, why, what it looks like, how it is told apart, what fools it, and what to do."""
    for name in ("title", "finds", "why", "looks_like", "told_apart"):
        assert len(getattr(rule, name)) > 8, name
    assert rule.fooled_by and rule.sources and rule.remedy["text"]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_rule_path_is_its_id(rule: Rule) -> None:
    """Path = name = id, and the family is the cause's own unless the file says what it guesses from."""
    assert rule.path.as_posix().endswith(f"rules/{rule.id}.toml")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_links_are_worth_something(rule: Rule) -> None:
    """Causes and mechanisms speak for a rule, `against` links speak against it, and no single link settles everything."""
    for link in rule.links:
        assert abs(link.present) <= 6 and abs(link.absent) <= 6
        assert link.present <= 0 if link.role == "against" else link.present >= 0
        assert link.absent <= 0 or link.role == "against"
