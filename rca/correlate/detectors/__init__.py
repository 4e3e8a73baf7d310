"""Events that no line states, derived from many: one file per detector, found by listing this folder."""
