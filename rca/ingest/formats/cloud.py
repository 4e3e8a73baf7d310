r"""Prefixes of managed services and their log exports: SageMaker, CloudWatch, Airflow.

>>> for text in SAMPLE.splitlines():
...     rest, wrap = peel(text)
...     print(wrap.shape, wrap.stream, wrap.host, wrap.rank, wrap.stamp is not None, repr(rest[:16]))
cloudwatch algo-1 algo-1 None True '[1,3]<stderr>:bo'
cloudwatch job/a1b2c3 None None True 'RuntimeError: x'
cloudwatch algo-2 algo-2 None True '  File "x.py"'
cloudwatch  None None True 'RuntimeError: x'
airflow  None None True '[rank0]: x'
airflow  None None True '  File "x.py", l'
sagemaker algo-2 algo-2 None False '[rank3]: boom'
>>> [peel(t) for t in ("a/b\tc\td", "[2026-01-05, 10:00:00 UTC] {x.py:3} ERROR - task failed", "algo-1 said", "12\t13", "1484973334 812344")]
[None, None, None, None, None]

Airflow's own level is that of the relay and not of the line. Source: aws-cli `logs tail`, CloudWatch Logs export format; airflow `log_format`,
`pod_manager.py`, `subprocess.py`; sagemaker local mode.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, LOCAL, Wrap
from rca.ingest.times import CLOCK, epoch, of

SAMPLE = """\
job-7/algo-1-1767607000\t2026-01-05T10:00:00.123Z\t[1,3]<stderr>:boom
job/a1b2c3\t1767607200123\tRuntimeError: x
2026-01-05T10:00:00.123000+00:00 job-7/algo-2-1767607000   File "x.py"
1767607200123\tRuntimeError: x
[2026-01-05, 10:00:00 UTC] {pod_manager.py:490} INFO - [base] [rank0]: x
[2026-01-05T10:00:00.123+0000] {subprocess.py:93} INFO -   File "x.py", line 3
algo-2-8gd7b  | [rank3]: boom"""

TIME = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)|1\d{12})"
STREAM = re.compile(rf"([\w.$\[\]/-]{{2,120}})\t{TIME}[\t ]", re.ASCII)
TAILED = re.compile(rf"{TIME} ([\w.$\[\]-]{{1,80}}/[\w.$\[\]/-]{{1,120}}) ", re.ASCII)
MILLIS = re.compile(r"(1\d{12})\t", re.ASCII)
INSTANCE = re.compile(r"(?:^|/)(algo-\d{1,4})-\d{9,10}$", re.ASCII)
LOCAL_MODE = re.compile(r"(algo-\d{1,4})-\w{5}(?:[_-]\d{1,2})? {1,9}\| ", re.ASCII)
#: The modules with which Airflow relays what another process printed.
RELAY = re.compile(
    rf"\[(\d{{4}}-\d\d-\d\d(?:, |[T ]){CLOCK}(?: ?UTC| ?[+-]\d\d:?\d\d|Z)?)\] \{{(?:pod_manager|subprocess|logging_mixin|pod|kubernetes_pod|bash|taskinstance"
    r"|process_utils)\.py:\d{1,5}\} INFO - (?:\[[\w-]{1,60}\] (?!$))?",
    re.ASCII,
)


def peel(text: str) -> tuple[str, Wrap] | None:
    """Take one such prefix off."""
    first = text[:1]
    if first == "[":
        match = RELAY.match(text, 0, HEAD) if "{" in text[:60] else None
        if match is None or text[match.end() :].startswith("Marking task"):
            return None
        return text[match.end() :], Wrap("airflow", stamp=of(match[1].replace(", ", " ", 1)))
    if "\t" in text[:200]:
        if first == "1" and (match := MILLIS.match(text)):
            return text[match.end() :], Wrap("cloudwatch", stamp=epoch(match[1]))
        if match := STREAM.match(text, 0, HEAD):
            return text[match.end() :], _stream(match[1], match[2])
    if first == "2" and "/" in text[20:120] and (match := TAILED.match(text, 0, HEAD)):
        return text[match.end() :], _stream(match[2], match[1])
    if text[:5] == "algo-" and (match := LOCAL_MODE.match(text, 0, LOCAL)):
        return text[match.end() :], Wrap("sagemaker", match[1], host=match[1])
    return None


def _stream(name: str, when: str) -> Wrap:
    instance = INSTANCE.search(name)
    return Wrap("cloudwatch", instance[1] if instance else name, host=instance[1] if instance else None, stamp=epoch(when) if when.isdecimal() else of(when))
