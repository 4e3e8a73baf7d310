"""Roles: which one a name speaks of, and in whose world its ranks count.

Train, reference and rollout count their ranks from 0 each: rank 2 of the reference model is not rank 2 of the trainer. Whoever names no role
of the others counts in the trainer's world.
"""

from __future__ import annotations

import re
from functools import lru_cache

ROLES = (
    ("meta_server", re.compile(r"元数据|权重服务|参数服务|权重仓库|meta")),
    ("controller", re.compile(r"主控|控制器|调度器|controller|driver|master|orchestrat|task_?runner|main_task|main_ppo")),
    ("rollout", re.compile(r"推理|采样|生成|rollout|infer|generat|sampler|vllm|sglang|(?:^|[_/-])gen(?:[_/-]|\d|$)")),
    ("reference", re.compile(r"参考|(?:^|[_/-])ref(?:erence)?(?:[_/-]|\d|$|worker|model|policy|svc|service)|reference")),
    ("reward", re.compile(r"奖励|reward|verifier")),
    ("critic", re.compile(r"价值|评论|critic|value")),
    ("dataloader", re.compile(r"data_?loader|data_?worker")),
    ("launcher", re.compile(r"launcher|torchrun|elastic|agent(?!.?loop)")),
    ("train", re.compile(r"训练|train|actor|policy|learner")),
)
#: Roles whose members are counted from 0 by themselves.
OTHER_WORLDS = frozenset({"rollout", "reference", "reward", "critic"})
INDEX = re.compile(r"(\d+)$")


@lru_cache(maxsize=1 << 12)
def role_of(actor: str | None) -> str | None:
    """The role that an actor's name speaks of, or None.

    >>> role_of("engine_rollout-0"), role_of("meta_server"), role_of("dmesg"), role_of("RefWorker")
    ('rollout', 'meta_server', None, 'reference')
    """
    low = (actor or "").lower()
    return next((role for role, pattern in ROLES if pattern.search(low)), None)


def world_of(role: str | None) -> str | None:
    """The world in which a role's ranks count; None is the trainer's.

    >>> world_of("rollout"), world_of("train"), world_of(None)
    ('rollout', None, None)
    """
    return role if role in OTHER_WORLDS else None
