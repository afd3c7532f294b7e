"""Pretraining throughput: our step against a plain Hugging Face training script, in one run.

Both train the same encoder (8 × 256, 28,000 pieces) with masked LM in bf16 on rows of 256 tokens. The plain script is
what the library's examples do: a collator that masks on the host, the model called with labels so that every position
is projected to the vocabulary, eager modules, AdamW. Ours is `crosslift pretrain`: windows drawn and masked on the
device, hidden pieces projected alone, compiled layers, fused AdamW. On random ids, since speed does not depend on them.

    python benchmarks/pretrain.py [--rows 256] [--steps 100] [--peak 790]        # --peak: TFLOP/s of the device
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import (
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from crosslift.data.streams import framed, mask_tokens, step_generator
from crosslift.methods.pretrain import at_places, masked_loss

LENGTH, PIECES = 256, 28_000


def small_tokenizer() -> PreTrainedTokenizerFast:
    pieces = {name: i for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])}
    pieces |= {f"w{i}": i for i in range(5, PIECES)}
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(pieces, unk_token="<unk>")),
        unk_token="<unk>", pad_token="<pad>", mask_token="<mask>", **names,
    )  # fmt: skip


def new_model(device: str) -> XLMRobertaForMaskedLM:
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=PIECES, hidden_size=256, num_hidden_layers=8, num_attention_heads=4, intermediate_size=1024,
        max_position_embeddings=514, type_vocab_size=1,
    )  # fmt: skip
    return XLMRobertaForMaskedLM(config).to(device).train()


def timed(step: Callable[[int], None], steps: int, device: str) -> float:
    for i in range(max(3, steps // 5)):
        step(i)
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for i in range(steps):
        step(steps + i)
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps


def plain_step(corpus: torch.Tensor, rows: int, device: str, bf16: bool) -> Callable[[int], None]:
    model, collate = new_model(device), DataCollatorForLanguageModeling(small_tokenizer(), mlm_probability=0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    host = corpus.cpu()

    def step(i: int) -> None:
        picked = torch.randint(0, len(host) - LENGTH, (rows,))
        batch = collate([{"input_ids": host[p : p + LENGTH]} for p in picked.tolist()]).to(device)
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_step(corpus: torch.Tensor, rows: int, device: str, bf16: bool, compiled: bool) -> Callable[[int], None]:
    model = new_model(device)
    if compiled:
        torch.set_float32_matmul_precision("high")
        for layer in model.base_model.encoder.layer:
            layer.compile(dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    offsets = torch.arange(LENGTH - 2, device=device)

    def step(i: int) -> None:
        generator = step_generator(0, i, 0, torch.device(device))
        begin = torch.randint(0, len(corpus) - LENGTH, (rows, 1), generator=generator, device=device)
        hidden = mask_tokens(framed(corpus[begin + offsets], 0, 2), 0.2, 4, [0, 1, 2, 3, 4], PIECES, generator)
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            states = model.base_model(input_ids=hidden.input_ids).last_hidden_state
            loss = masked_loss(model.lm_head(at_places(states, hidden.places)), hidden.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256 if torch.cuda.is_available() else 4)
    parser.add_argument("--steps", type=int, default=100 if torch.cuda.is_available() else 3)
    parser.add_argument("--peak", type=float, default=790.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bf16 = device == "cuda"
    corpus = torch.randint(5, PIECES, (2_000_000,), device=device)
    tokens = arguments.rows * LENGTH
    # Forward and backward multiply-adds per token: 6 per weight of the layers, attention scores, and the projection of
    # the 20% that are hidden. Counted alike for both: what the plain script computes beyond that is waste.
    flops = tokens * (6 * 8 * 12 * 256**2 + 12 * 8 * LENGTH * 256 + 0.2 * 6 * (PIECES * 256 + 256**2))
    result: dict[str, object] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "tokens_per_step": tokens,
    }  # fmt: skip
    for name, step in (
        ("plain", plain_step(corpus, arguments.rows, device, bf16)),
        ("ours", our_step(corpus, arguments.rows, device, bf16, compiled=device == "cuda")),
    ):
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = timed(step, arguments.steps, device)
        result[name] = {
            "milliseconds_per_step": round(1000 * seconds, 2),
            "tokens_per_second": round(tokens / seconds),
            "share_of_peak": round(flops / seconds / (arguments.peak * 1e12), 3) if device == "cuda" else None,
            "peak_memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None,
        }
    result["ratio"] = round(result["plain"]["milliseconds_per_step"] / result["ours"]["milliseconds_per_step"], 2)
    print(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
