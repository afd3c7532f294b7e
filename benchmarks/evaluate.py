"""Our evaluation against a plain loop on XNLI test: same predictions, ratio of the times.

The plain loop is what a short script does: batches of 32 in input order, each tokenised when its turn comes and
padded to 128 tokens. Both run the same weights, in the same process, on the same rows. On a CPU the arithmetic is all
there is, so the ratio is near 128 over the mean length in tokens: it depends on how finely the tokenizer splits.

    CROSSLIFT_DATA=… python benchmarks/evaluate.py [--model mini-x] [--rows 300]
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch

import crosslift as xl
from crosslift.data import concatenate
from crosslift.data.examples import Examples
from crosslift.runs.evaluate import predict_examples
from crosslift.tasks import task_for


def plain_loop(model: torch.nn.Module, tokenizer: object, examples: Examples, labels: tuple[str, ...]) -> list[str]:
    found = []
    for start in range(0, len(examples), 32):
        part = slice(start, start + 32)
        batch = tokenizer(
            list(examples.texts[part]), list(examples.pairs[part]),
            padding="max_length", truncation=True, max_length=128, return_tensors="pt",
        )  # fmt: skip
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        found += [labels[i] for i in logits.argmax(-1).tolist()]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("MODEL", "mini-x"))
    parser.add_argument("--rows", type=int, default=200, help="rows per language")
    parser.add_argument("--languages", default="ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/evaluate.json"))
    arguments = parser.parse_args()

    languages = arguments.languages.split(",")
    examples = concatenate([xl.load("xnli", language=x, split="test").take(arguments.rows) for x in languages])
    task = task_for(examples)
    tokenizer, model = xl.load_tokenizer(arguments.model), xl.load_model(arguments.model, task).eval()
    warm = examples.take(64)
    plain_loop(model, tokenizer, warm, task.labels)
    predict_examples(model, tokenizer, task, warm)

    began = time.perf_counter()
    plain = plain_loop(model, tokenizer, examples, task.labels)
    plain_seconds = time.perf_counter() - began
    began = time.perf_counter()
    ours = [p["prediction"] for p in predict_examples(model, tokenizer, task, examples)]
    our_seconds = time.perf_counter() - began

    lengths = task.encode(examples.unlabelled(), tokenizer).lengths()
    differing = sum(a != b for a, b in zip(plain, ours, strict=True))
    result = {
        "model": Path(arguments.model).name,
        "languages": arguments.languages,
        "rows": len(examples),
        "mean_tokens": round(float(lengths.mean()), 1),
        "most_that_padding_can_give": round(128 / float(lengths.mean()), 2),
        "threads": torch.get_num_threads(),
        "plain_seconds": round(plain_seconds, 2),
        "our_seconds": round(our_seconds, 2),
        "ratio": round(plain_seconds / our_seconds, 2),
        "differing_predictions": differing,
    }
    print(json.dumps(result, indent=2))
    assert differing == 0, "the two must predict the same"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
