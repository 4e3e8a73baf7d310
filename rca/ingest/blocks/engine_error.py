"""A typed error of an engine whose type, sub-error and reason are printed one below the other, as one line.

>>> block = Typed("error_type: TrainEngineError, sub_error: SaveError, ")
>>> block.feed("reason: ('Connection aborted.', RemoteDisconnected('x'))"), block.feed("step 4")
(True, False)
>>> block.text
"TrainEngineError: SaveError: ('Connection aborted.', RemoteDisconnected('x'))"
>>> stage_of_sub_error("UpdateWeightError"), stage_of_sub_error("OSError")
('weights_update', None)

Source: AReaL asystem, its EngineError and FrameworkError as printed.
"""

from __future__ import annotations

import re

START = "error_type: "
HEAD = re.compile(r"error_type: {0,2}(\w{1,80}),? {0,2}sub_error: {0,2}(\w{1,80}),? {0,2}(?:reason: {0,2}(.*))?$", re.S)
REASON = re.compile(r"\s{0,8}reason: {0,2}(.*)$")
STAGES = {
    "InitializeError": "init", "UploadWeightsError": "weights_update", "UpdateWeightError": "weights_update", "RolloutError": "rollout",
    "NotifyEventError": "rollout", "InferenceWorkError": "rollout", "InferenceWorkRolloutError": "rollout", "InferenceWorkerError": "rollout",
    "ComputeLogpError": "reference", "TrainBatchError": "train", "DistributedBatchMemoryError": "train", "SaveError": "save", "RecoverError": "recover",
    "SchedulerError": "cleanup",
}  # fmt: skip


class Typed:
    """Collects the lines; `text` is the error in one line."""

    def __init__(self, text: str) -> None:
        match = HEAD.match(text)
        self.known = match is not None
        self.error, self.sub_error, reason = match.groups() if match else ("", "", text)
        self._reason = [reason] if reason else []

    def feed(self, text: str) -> bool:
        """Take one line; False means that it is not part of the error."""
        if not self._reason and (match := REASON.match(text)):
            self._reason.append(match[1])
            return True
        return False

    @property
    def text(self) -> str:
        """Type, sub-error and reason as other programs of the family print them."""
        said = " ".join(self._reason).strip()
        return ": ".join(part for part in (self.error, self.sub_error, said) if part)


def stage_of_sub_error(name: str | None) -> str | None:
    """The stage of a run in which an engine raises such an error."""
    return STAGES.get(name or "")
