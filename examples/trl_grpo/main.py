"""GRPO on a tiny language model and a tiny tokenizer, both made here, with evidence left behind. Nothing is downloaded.

python main.py OUT [--steps 6] [--tokens 8]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

from rca import trace_inject as rt
from rca.trace_inject.integrations.transformers import RcaCallback

WORDS = ["<pad>", "<eos>", "<unk>", *"abcdefghijklmnopqrstuvwxyz"]


def variety(completions: list[str], **_: object) -> list[float]:
    """More different letters are better."""
    return [float(len(set(text.split()))) for text in completions]


def build(out: str, steps: int = 6, tokens: int = 8, reward: Callable = variety, traced: bool = True, **more: object) -> GRPOTrainer:
    """The trainer; everything of it is the user's own but the one callback."""
    set_seed(7)
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 4096}
    first = os.path.join(out, "first")  # a folder, because the reference model is read from where the policy came
    LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=1, bos_token_id=None, **shape)).save_pretrained(first)
    settings = {
        "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": tokens, "beta": 0.04, "learning_rate": 1e-3, "logging_steps": 1,
        "save_steps": 3, "report_to": [], "use_cpu": True, "bf16": False, "disable_tqdm": True,
    }  # fmt: skip
    args = GRPOConfig(output_dir=out, max_steps=steps, **(settings | more))
    prompts = Dataset.from_dict({"prompt": ["a b c", "x y z", "k l", "m n o p"] * 8})
    return GRPOTrainer(model=first, reward_funcs=[reward], args=args, train_dataset=prompts, processing_class=words, callbacks=[RcaCallback()] if traced else [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=8)
    asked = parser.parse_args()
    rt.install(role="train")
    build(asked.out, asked.steps, asked.tokens).train()
    print("training finished")
