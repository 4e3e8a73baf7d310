r"""Tags of MPI launchers before each line: Open MPI and PRRTE `--tag-output`, with or without a time, SageMaker's, Horovod's.

The first number is the job, the second the rank. No blank belongs to the tag of Open MPI, one to that of PRRTE.

>>> for text in SAMPLE.splitlines():
...     rest, wrap = peel(text)
...     print(wrap.stream, wrap.rank, wrap.host, wrap.stamp is not None, repr(rest[:12]))
1,3 3 None False 'Bus error'
1,8 8 None False '  File "x.py'
1,11 11 algo-2 False 'RuntimeError'
1,0 0 None False 'boom'
1,0 0 None True '  File "x.py'
1,2 2 None True 'boom'
1,4 4 n1 False '  File "x.py'
>>> [peel(t) for t in ("[1,3] x", "[1,3]<b>:x", "x[1,3]<stderr>:y", "Thu Jan  8 10:11:12 2026 x")]
[None, None, None, None]

Source: ompi `orte/mca/iof`, prrte `prte_iof_base`; horovod `gloo_run.py`; sagemaker-training `mpi.py`.
"""

from __future__ import annotations

import re

from rca.ingest.formats import Wrap, unpadded
from rca.ingest.times import MONTH_NAME, WEEKDAY, of

SAMPLE = """\
[1,3]<stderr>:Bus error
[1,8]<stdout>:  File "x.py", line 248
[1,mpirank:11,algo-2]<stderr>:RuntimeError: x
[1,0]<stderr>: boom
Thu Jan  8 10:11:12 2026[1,0]<stderr>:  File "x.py"
Thu Jan  8 10:11:12 2026<stderr>[1,2]: boom
[n1:4123,1,4]<stderr>:   File "x.py", line 3"""

TAG = r"(?:[A-Za-z][\w.-]{0,60}@)?(?:([A-Za-z][\w.-]{0,60}):\d{1,9},)?(\d{1,9}),(?:mpirank:)?(\d{1,6})(?:,([A-Za-z][\w.-]{0,60}))?"
TAGGED = re.compile(
    rf"({WEEKDAY} {MONTH_NAME} [ \d]\d \d\d:\d\d:\d\d \d{{4}} ?)?(?:\[{TAG}\]<(?:stdout|stderr|stddiag)>|<(?:stdout|stderr|stddiag)>\[{TAG}\]):", re.ASCII
)


def peel(text: str) -> tuple[str, Wrap] | None:
    """Take one such tag off."""
    match = TAGGED.match(text, 0, 200)
    if match is None:
        return None
    when, host1, job1, rank1, name1, host2, job2, rank2, name2 = match.groups()
    rank = rank1 or rank2
    stamp = of(when.rstrip()) if when else None
    return unpadded(text[match.end() :]), Wrap("mpi", f"{job1 or job2},{rank}", rank=int(rank), host=host1 or name1 or host2 or name2, stamp=stamp)
