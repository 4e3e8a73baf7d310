"""Events and edges to a judged verdict: this room knows causes. Rules are data, one cause class per file."""

from rca.rules.chain import Link, Rule, load_rules

__all__ = ["Link", "Rule", "load_rules"]
