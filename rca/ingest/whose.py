"""Whose code raised an exception: the job's own, a library's, or that of the framework that runs the job.

An exception in a user's reward function is the user's; an `AttributeError` in the middle of the trainer or of the engine is a defect of that version,
or of two versions together, whoever started the job. Frameworks are often run from a checkout, so the folder of the package counts, not `site-packages`.

>>> whose_code([("/home/me/reward.py", 7, "score")], "KeyError")
{'library': False, 'defect': False}
>>> whose_code([("/opt/verl/verl/protocol.py", 190, "union_numpy_dict")], "AssertionError")
{'library': True, 'defect': True}
>>> whose_code([("/opt/env/lib/python3.12/site-packages/sklearn/metrics/_ranking.py", 3, "auc")], "ValueError")
{'library': True, 'defect': False}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib/python3|<frozen |/torch/(?:nn|distributed|utils|_)")
#: Packages of trainers and engines by a folder that each of them has: `miles/` and `ray/` alone may be somebody's home, `verl/my_job.py` the user's file.
FRAMEWORK = re.compile(
    r"(?:^|[/.])(?:verl/(?:trainer|workers|single_controller|utils|models|experimental|third_party|interactions|tools|protocol\.py)"
    r"|openrlhf/(?:trainer|cli|models|utils|datasets)|trlx?/(?:trainer|extras|scripts|generation|experimental|models|pipeline|utils|import_utils)"
    r"|(?:slime|miles)/(?:backends|rollout|ray|router|utils)|(?:areal|realhf)/(?:engine|trainer|infra|controller|workflow|utils|api|experimental|core|scheduler|platforms|system|base|impl)"
    r"|nemo_rl/\w+|nemo/(?:collections|core|utils|lightning)|skyrl(?:_train|_gym|_tx)?/\w+|rlinf/\w+|roll/(?:distributed|pipeline|third_party|utils|models|agentic)"
    r"|prime_rl/\w+|open_instruct/\w+\.py|cosmos_rl/\w+|chatlearn/\w+|llamafactory/\w+|llmtuner/\w+|swift/(?:llm|trainers|cli|utils|megatron|plugin|rlhf_trainers|tuners)"
    r"|unsloth(?:_zoo|_compiled_cache)?/\w+|vllm(?:_ascend)?/\w+/|sglang/(?:srt|lang|multimodal_gen)|deepspeed/(?:runtime|ops|utils|comm|inference|moe|checkpoint|launcher|sequence)"
    r"|megatron/(?:core|training|legacy|rl|bridge)|mindspeed(?:_rl|_llm)?/\w+|(?:site|dist)-packages/ray/)"
)
#: Where programs are rewritten and compiled: what fails there concerns no input of the job.
COMPILER = re.compile(r"/torch/(?:fx|_inductor|_functorch|_dynamo|_export)/|/triton/(?:compiler|backends|runtime)/|/vllm/compilation/")
#: Raised by a name, an argument or a state that the code itself got wrong; a `ValueError` is how code speaks of what it was given.
DEFECTS = frozenset({"AttributeError", "TypeError", "NameError", "UnboundLocalError", "KeyError", "IndexError", "AssertionError", "NotImplementedError", "RecursionError"})


def whose_code(frames: Sequence[Sequence], exception: str) -> dict[str, bool]:
    """`library`: the innermost frame is no code of the job's; `defect`: it is the framework's, and the exception is one of those that its own code makes."""
    innermost = str(frames[-1][0]) if frames else ""
    framework = FRAMEWORK.search(innermost) is not None
    compiler = COMPILER.search(innermost) is not None
    return {"library": framework or LIBRARY.search(innermost) is not None, "defect": compiler or (framework and exception.rsplit(".", 1)[-1] in DEFECTS)}
