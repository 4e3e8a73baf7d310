"""The policy: a tiny pre-norm decoder in plain torch, with a cache of keys and values for sampling.

Shapes: B rows, T new tokens, S tokens before them in the cache, V characters of the vocabulary, W = `Config.width`, H heads, D = W / H.
Decoder: arXiv:1706.03762; norm before each block: arXiv:2002.04745. No dropout: what is sampled is what is trained.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rca.replay_trainer import task
from rca.replay_trainer.config import Config


def device() -> torch.device:
    """Where all computing is done. What goes in and comes out of the functions of this package lies on the CPU either way."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Cache:
    """Keys and values of the tokens so far, for each layer [B, H, S, D]; empty at first, grown by every `forward`."""

    def __init__(self) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []

    @property
    def length(self) -> int:
        """S."""
        return self.layers[0][0].shape[2] if self.layers else 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer after these, [B, H, T, D], have been added: [B, H, S + T, D]."""
        if layer == len(self.layers):
            self.layers.append((keys, values))
        else:
            was = self.layers[layer]
            self.layers[layer] = (torch.cat([was[0], keys], 2), torch.cat([was[1], values], 2))  # [B, H, S + T, D]
        return self.layers[layer]


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, hidden: Tensor, cache: Cache | None, layer: int) -> Tensor:
        """[B, T, W] from x [B, T, W]; `hidden` [T, S + T] is true where a token would see one that comes after it."""
        rows, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x))  # [B, T, 3W]
        q, k, v = qkv.view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)  # each [B, H, T, D]
        if cache is not None:
            k, v = cache.extend(layer, k, v)  # [B, H, S + T, D]
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])  # [B, H, T, S + T]
        seen = scores.masked_fill(hidden, -torch.inf).softmax(3) @ v  # [B, H, T, D]
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))  # [B, T, W]
        return x + self.down(F.gelu(self.up(self.feed_norm(x))))  # [B, T, W]


class Transformer(nn.Module):
    """A decoder for strings of the task's length."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.context = task.prompt_length(config) + task.answer_length(config)
        self.token = nn.Embedding(len(task.VOCABULARY), config.width)
        self.place = nn.Embedding(self.context, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, len(task.VOCABULARY), bias=False)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits [B, T, V] of the character after each of tokens [B, T], which follow those in the cache. Raises ValueError past the longest string."""
        before, length = cache.length if cache is not None else 0, tokens.shape[1]
        if before + length > self.context:
            raise ValueError(f"{before + length} tokens, where the longest string has {self.context}")
        at = torch.arange(before, before + length, device=tokens.device)  # [T]
        hidden = torch.arange(before + length, device=tokens.device) > at[:, None]  # [T, S + T]
        x = self.token(tokens) + self.place(at)  # [B, T, W]
        for layer, block in enumerate(self.blocks):
            x = block(x, hidden, cache, layer)  # [B, T, W]
        return self.head(self.norm(x))  # [B, T, V]


def build(config: Config) -> Transformer:
    """The model as it is before the first step: the same on every process, made on the CPU, then moved to the device.

    Small weights in the last layer make the first policy nearly uniform, which explores most.
    """
    model = Transformer(config)
    random = task.generator(config, "weights")
    with torch.no_grad():
        for name, value in sorted(model.named_parameters()):
            if value.dim() == 2:  # the norms keep their ones and zeros
                spread = 0.02 if name == "head.weight" else 1 / math.sqrt(config.width) if "." in name and name.startswith("blocks") else 0.5
                value.copy_(torch.randn(value.shape, generator=random) * spread)
    return model.to(device())


def digest(weights: Mapping[str, Tensor]) -> str:
    """A fingerprint of weights, 12 hexadecimal digits: the same where names, shapes and all bits are the same."""
    known = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        known.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        known.update(value.numpy().tobytes())
    return known.hexdigest()[:12]


def fingerprint(value: Tensor) -> str:
    """The same of one tensor's bits alone."""
    return hashlib.sha256(value.detach().cpu().contiguous().numpy()).hexdigest()[:12]
