"""Commands that somebody typed into the terminal that was pasted: no evidence of anything, but the prompt may name the host.

>>> typed("[kowalczyk@lynx04 nnUNet]$ nnUNetv2_train 221"), typed("$ df -h /dev/shm"), typed("dgx0412$ nvidia-smi -i 5 -q")
('lynx04', '', 'dgx0412')
>>> typed("(base) root@5e1f0b7a9d22:/workspace# torchrun train.py"), typed("costs $ 5 a day"), typed("RuntimeError: x"), typed("# step 3")
('5e1f0b7a9d22', None, None, None)
>>> typed("$ OSError: [Errno 28] No space left on device"), typed("node7# NVRM: Xid (PCI:0000:3b:00): 79"), typed("node7$ [rank0]: x")
(None, None, None)

Source: default prompts of bash, zsh, conda and Docker.
"""

from __future__ import annotations

import re

HEAD = 100  # a prompt is short
PROMPT = re.compile(
    r"(?:\([\w. -]{1,40}\) )?(?:"
    r"\[?[a-z_][\w.-]{0,31}@(?P<host>[A-Za-z\d][\w.-]{0,62})[:\s][^$#%>]{0,60}?\]?[$#%] ?(?=\S)"
    r"|(?P<name>[a-z][\w-]{0,30}\d[\w-]{0,30})[$#] (?=\S)"
    r"|\$ (?=[A-Za-z./_(]))"
)

#: No command begins so: what a program says stands behind a mark that only looks like a prompt.
SAID = re.compile(r"[\w.\[\]-]{1,80}:(?:\s|$)|\[\w|Traceback \(")
ELSEWHERE = re.compile(r"\b(?:srun|sbatch|salloc|bsub|qsub|ssh|pdsh|kubectl|docker|mpirun|ray|gcloud|aws|az)\b")


def runs_here(text: str) -> bool:
    """Whether a typed command runs on the host of its prompt and not somewhere else."""
    return ELSEWHERE.search(text[: 2 * HEAD]) is None


def typed(text: str) -> str | None:
    """The host that the prompt names ('' where it names none) if the line is a typed command, else None."""
    if "$" not in text[:HEAD] and "#" not in text[:HEAD] and "%" not in text[:HEAD]:
        return None
    match = PROMPT.match(text)
    return None if match is None or SAID.match(text, match.end()) else match["host"] or match["name"] or ""
