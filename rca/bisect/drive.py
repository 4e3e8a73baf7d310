"""Run a plan to its end: each group is asked, its result goes into the plan, until the answer is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from rca.bisect.group_testing import Answer
from rca.bisect.plan import FAIL, PASS, Group, Plan

Ask = Callable[[Group], tuple[bool, str]]  # whether the group failed, and how


def drive(plan: Plan, ask: Ask, at_once: int, say: Callable[[str], object], keep: Callable[[Plan], object] = lambda plan: None, stop: Callable[[], object] = lambda: None) -> Answer:
    """Run groups, at most so many at once, until the plan is over. What a group raises, and Ctrl-C, ends the search: `stop` ends the groups that run; what had a result is kept."""
    answer, over = plan.proceed()
    keep(plan)
    while not over:
        waiting = plan.open()
        failed = 0
        with ThreadPoolExecutor(max(1, min(at_once, len(waiting)))) as pool:
            futures = {pool.submit(ask, group): group for group in waiting}
            left = set(futures)
            try:
                while left:
                    done, left = wait(left, return_when=FIRST_COMPLETED)
                    for future in done:
                        group = futures[future]
                        wrong, how = future.result()
                        group.result = FAIL if wrong else PASS
                        failed += wrong
                        say(f"round {len(plan.rounds)}, group {group.number} of {len(group.units)} machines: {'FAIL' if wrong else 'pass'}, {how}")
                    keep(plan)
            except BaseException:
                for future in left:
                    future.cancel()
                stop()
                raise
        say(f"round {len(plan.rounds)}: {failed} of {len(waiting)} groups failed")
        answer, over = plan.proceed()
        keep(plan)
    return answer
