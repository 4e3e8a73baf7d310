"""Events to a causal graph: this room knows time and topology."""
