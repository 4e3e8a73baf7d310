"""A tiny language model, randomly initialised, trained by Hugging Face's Trainer with evidence left behind. Nothing is downloaded.

python main.py OUT [--steps 20] [--save 10] [--resume CHECKPOINT]
"""

from __future__ import annotations

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from rca import trace_inject as rt
from rca.trace_inject.integrations.transformers import RcaCallback


class Counting(torch.utils.data.Dataset):
    """Rows of numbers that go up by one."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(at, at + 16) % 64
        return {"input_ids": ids, "labels": ids}


def build(out: str, steps: int = 20, save: int = 10, traced: bool = True, **more: object) -> Trainer:
    """The trainer; everything of it is the user's own but the one callback."""
    set_seed(7)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32))
    settings = {
        "per_device_train_batch_size": 8, "learning_rate": 1e-2, "logging_steps": 2, "eval_strategy": "steps", "eval_steps": save, "save_steps": save,
        "report_to": [], "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    args = TrainingArguments(output_dir=out, max_steps=steps, **(settings | more))
    data = Counting()
    return Trainer(model=model, args=args, train_dataset=data, eval_dataset=torch.utils.data.Subset(data, range(16)), callbacks=[RcaCallback()] if traced else [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save", type=int, default=10)
    parser.add_argument("--resume")
    asked = parser.parse_args()
    rt.install(role="train")
    build(asked.out, asked.steps, asked.save).train(resume_from_checkpoint=asked.resume)
    print("training finished")
