"""faulthandler dumps: a fatal signal's stack, or a scheduled look at all threads.

Frames are innermost first. `Timeout (0:00:09)!` is an alarm clock that the program set itself: it is no failure.
Source: CPython `Python/traceback.c`, `Modules/faulthandler.c`.

>>> block = Stacks(SAMPLE.splitlines()[0])
>>> all(block.feed(text) for text in SAMPLE.splitlines()[1:])
True
>>> block.main()
[('/opt/lib/torch/distributed/distributed_c10d.py', 4159, 'barrier'), ('train.py', 90, '<module>')]
"""

from __future__ import annotations

import re

Frames = list[tuple[str, int, str]]  # (file, line or 0, function), innermost first
SAMPLE = """\
Timeout (0:30:00)!
Thread 0x00007f7682fad6c0 (most recent call first):
  File "/opt/lib/threading.py", line 320 in wait

Thread 0x00007fe201fbeb80 (most recent call first):
  File "/opt/lib/torch/distributed/distributed_c10d.py", line 4159 in barrier
  File "train.py", line 90 in <module>"""

SCHEDULED = re.compile(r"^Timeout \((\d+):(\d\d):(\d\d)(?:\.\d+)?\)!$")
FATAL = re.compile(r"^Fatal Python error: (.+)$")
THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])? \(most recent call first\):$")
FRAME = re.compile(r'^  File "([^"]*)", line (\d+|\?\?\?) in (.+)$')

#: What a thread is doing, by function and file of its innermost telling frame; first match wins.
#: Source: the frames of torch 2.x, CPython, and `formats/07` section 7.5.
PLACES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("lock", re.compile(r".*(?:file_baton\.py wait|filelock/\S+ (?:acquire|_acquire)|fcntl\.py \w+|\S* (?:lockf|flock)|portalocker/\S+ \w+)$")),
    ("mutex", re.compile(r".*(?:logging/__init__\.py acquire|\S* _?acquire_?lock|importlib\S* _lock_unlock_module|<frozen importlib\S* acquire)$")),
    ("loader", re.compile(r"torch/utils/data/(?:dataloader|_utils/\w+)\.py .*|.* _(?:try_get_data|get_data|next_data|get_batch)$")),
    ("save", re.compile(r".*(?:torch/serialization\.py (?:save|_save|__exit__)|checkpoint/\S+ \w*(?:save|write)\w*|\S* save_checkpoint|\S* fsync|\S* save_file)$")),
    ("load", re.compile(r".*(?:torch/serialization\.py (?:load|_load)|\S* load_checkpoint|\S* load_state_dict)$")),
    ("collective", re.compile(r".*(?:distributed_c10d\.py|nn/parallel/distributed\.py|autograd/graph\.py _engine_run_backward|torch/distributed/\S+) ?.*")),
    ("rpc", re.compile(r".*(?:requests/|httpx/|aiohttp/|urllib3/|http/client\.py|grpc/|ray/_private/worker\.py|socket\.py).*")),
    ("import", re.compile(r".*(?:importlib|<frozen importlib).*")),
    ("device", re.compile(r".*torch/cuda/\S* synchronize$")),
)  # fmt: skip
IDLE = re.compile(r".*(?:threading\.py (?:wait|_wait_for_tstate_lock|join|run|_bootstrap\w*)|queue\.py get|selectors\.py \w+|connection\.py \w+|popen_fork\.py \w+)$")


class Stacks:
    """Collects one dump: its heading and the frames of each thread.

    `who` is what the dump says of its process (pid, rank), `count` for how many processes it stands, `asked` whether somebody took it because
    the job hung.
    """

    def __init__(self, heading: str) -> None:
        self.who: dict[str, int] = {}
        self.count = 1
        self.asked = False
        self.scheduled = bool(SCHEDULED.match(heading))
        fatal = FATAL.match(heading)
        self.fatal = fatal[1] if fatal else None
        self.threads: list[tuple[bool, Frames]] = []
        self.blank = 0

    def feed(self, text: str) -> bool:
        """Take one line; False means that it is not part of the dump."""
        if thread := THREAD.match(text):
            self.threads.append((thread[1] == "Current thread", []))
            return True
        if (frame := FRAME.match(text)) and self.threads:
            self.threads[-1][1].append((frame[1], int(frame[2]) if frame[2].isdecimal() else 0, frame[3]))
            return True
        if not text.strip():
            return True
        return text.startswith(("  ...", "...", "  <no Python frame>", "Extension modules:", "Python runtime state", "  Garbage-collecting"))

    def demanded(self, alone: bool) -> bool:
        """Whether somebody sent the abort to see where the process stands: the dump is all that its file holds, and the job's own code was running.

        Code that aborts by itself is native, says why before, and stands below a frame of the library that called it.
        """
        frames = self.main()
        self.asked = self.asked or (alone and self.fatal == "Aborted" and bool(frames) and not re.search(r"/torch/|(?:site|dist)-packages/", frames[0][0]))
        return self.asked

    def main(self) -> Frames:
        """Frames of the thread that matters: the current one, else the main thread, which comes last."""
        current = [frames for is_current, frames in self.threads if is_current]
        return current[0] if current else (self.threads[-1][1] if self.threads else [])


def telling(frames: Frames) -> tuple[str, tuple[str, int, str]] | None:
    """The innermost frame that says what the thread is doing, and what that is.

    Idle frames (a lock, a queue) are skipped: who called them tells.
    """
    for frame in frames:
        text = f"{frame[0]} {frame[2]}"
        if IDLE.match(text):
            continue
        for name, pattern in PLACES:
            if pattern.match(text):
                return name, frame
    return None
