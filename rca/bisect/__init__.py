"""Find the machine that computes wrongly without an error, by running groups of machines: each group passes or fails, and that is all that is known.

    hosts ─► units (whole model-parallel replicas) ─► groups to run ─► pass, fail ─► posterior ─► the next groups, or who is bad

`units` and `names` know hosts; `grid` is rows, then columns; `posterior`, `choose` and `group_testing` are for several bad machines and faults that show
only sometimes; `plan` keeps the state of a search on a real cluster in a file; `simulate` measures all of it; `selftest` tests one machine alone.
"""
