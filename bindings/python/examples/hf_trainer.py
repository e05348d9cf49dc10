"""Trains a small language model with Hugging Face's Trainer, saves in the background, and goes on where it stopped.

    python hf_trainer.py runs/demo --steps 20
    python hf_trainer.py runs/demo --steps 40      # goes on from step 20
"""

from __future__ import annotations

import argparse

import cairn
import torch
from cairn.integrations.transformers import CairnCallback
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("run")
    arguments.add_argument("--steps", type=int, default=20)
    options = arguments.parse_args()

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    )
    rows = torch.randint(0, 100, (64, 16))
    callback = CairnCallback(options.run, every=10, keep=cairn.Keep(last=2))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=f"{options.run}-logs",
            max_steps=options.steps,
            per_device_train_batch_size=4,
            save_strategy="no",
            report_to=[],
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        callbacks=[callback],
    )
    result = callback.resume(trainer)
    print(f"step {result.global_step}, loss {result.training_loss:.4f}, kept: {callback.checkpointer.steps()}")


if __name__ == "__main__":
    main()
