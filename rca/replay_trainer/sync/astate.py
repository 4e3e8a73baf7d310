"""`astate`: train rank 0 puts the weights of each version into the MetaServer, and each rollout worker gets them from there."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import httpx
from torch import Tensor

from rca import trace_inject as rt
from rca.replay_trainer import wire
from rca.replay_trainer.config import Config
from rca.replay_trainer.serve import address_file

log = logging.getLogger("weights")
POLL_S = 0.1


class _Client:
    def __init__(self, config: Config, run: Path) -> None:
        self.config = config
        self._file = address_file(run, "meta_server", 0)
        self._url: str | None = None
        self._client = httpx.Client(trust_env=False, timeout=config.weights_timeout_s)
        rt.trace_httpx(self._client)

    @property
    def url(self) -> str:
        if self._url is None:
            self._url = json.loads(self._file.read_text("utf-8"))["url"]
        return self._url

    def close(self) -> None:
        self._client.close()


class Sender(_Client):
    def __init__(self, config: Config, run: Path, address: str) -> None:
        super().__init__(config, run)

    def upload(self, version: int, weights: dict[str, Tensor]) -> None:
        """Put the weights of a version. Raises RuntimeError that says why they could not be put."""
        body = wire.pack({**weights, "version": version})
        rt.handoff("weights", body, key=f"weights-{version}")
        try:
            self._client.put(f"{self.url}/v1/put_binary", params={"key": f"weights/{version}"}, content=body).raise_for_status()
        except httpx.TimeoutException as error:
            raise RuntimeError("Upload weights request timeout") from error
        except httpx.HTTPError as error:
            raise RuntimeError(f"Failed to upload weights to meta_server: {error}") from error


class Receiver(_Client):
    def __init__(self, config: Config, run: Path, rank: int) -> None:
        super().__init__(config, run)

    def receive(self, version: int, like: dict[str, Tensor]) -> dict[str, Tensor]:
        """Get the weights of a version as soon as they are there. Raises RuntimeError."""
        end = time.monotonic() + self.config.weights_timeout_s
        try:
            while True:
                answer = self._client.get(f"{self.url}/v1/get_binary", params={"key": f"weights/{version}", "wait_s": "5"})
                if answer.status_code != 404:
                    answer.raise_for_status()
                    break
                if time.monotonic() > end:
                    raise RuntimeError(f"Failed to update weights: version {version} is not in meta_server after {self.config.weights_timeout_s:g} s")
        except httpx.TimeoutException as error:
            raise RuntimeError("Failed to update weights: meta_server request timeout") from error
        except httpx.HTTPError as error:
            raise RuntimeError(f"Failed to update weights: meta_server: {error}") from error
        rt.handoff("weights", answer.content, key=f"weights-{version}", received=True)
        values = wire.unpack(answer.content)
        if values.pop("version", None) != version:
            raise RuntimeError(f"Failed to update weights: meta_server gave another version than {version}")
        return values
