"""What a task loses at the special tokens of a plugged model, whose states no hidden word asks for.

    crosslift fit plug --multi mini-x --mono mini-en --text text.txt --steps 300 --batch-size 24 --out runs/hmlm
    crosslift fit finetune --model mini-en --data mnli --epochs 1 --learning-rate 0.0003 --seeds 1 --out runs/nli
    python first_token.py --connectors hmlm=runs/hmlm mixed=mini-x/mini-en --task-model runs/nli --out first.json

The text was the first 60,000 lines of text-en, the connector in bf16 with `--max-tokens 3072`.
Between connector and task model some states are replaced by constants, the English model's mean over 200 pairs of
MNLI at the same places: `<s>`, the pair of separators, the last one. If accuracy rises, the connector's were worse than
a constant. Scores on XNLI, paired by example: how many answers the replacement mends and how many it breaks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import crosslift as xl
from crosslift.models.anatomy import headed, part
from crosslift.models.connectors import load_connector
from crosslift.models.load import load_model

PLACES = {"<s>": (0,), "</s></s>": (1, 2), "last </s>": (3,), "all": (0, 1, 2, 3)}
ROWS = 25


def main() -> None:
    """Score each replacement in each language."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connectors", nargs="+", default=["mixed=mini-x/mini-en"], help="NAME=FOLDER")
    parser.add_argument(
        "--task-model", type=Path, required=True, help="run of fit finetune --data mnli --model mini-en"
    )
    parser.add_argument("--mono", default="mini-en")
    parser.add_argument("--languages", default="en,de,zh")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, object] = {"rows": given.limit}
    for one in given.connectors:
        name, _, folder = one.partition("=")
        found[name] = measure(folder, given.task_model, given.mono, given.languages.split(","), given.limit)
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@torch.no_grad()
def measure(connector: str, task_model: Path, mono: str, languages: list[str], limit: int) -> dict[str, object]:
    """Return language -> replaced place -> accuracy, and answers mended and broken."""
    loaded, task, tokenizer = load_connector(connector), load_model(task_model).eval(), xl.load_tokenizer("mini-x")
    below = part(loaded.multi, 0, loaded.facts.encoder_layers, embeddings=True, norm=False).eval()
    plug = loaded.facts.plug_layer
    top = headed(task, plug)
    means = special_means(mono, plug)
    scores: dict[str, object] = {}
    for language in languages:
        examples = xl.load("xnli", language=language, split="test").take(limit)
        right: dict[str, list[bool]] = {name: [] for name in ("connector", *PLACES)}
        for at in range(0, len(examples), ROWS):
            texts, pairs = list(examples.texts[at : at + ROWS]), list(examples.pairs[at : at + ROWS])
            batch = tokenizer(texts, pairs, padding=True, truncation=True, max_length=128, return_tensors="pt")
            mask = batch["attention_mask"]
            states = loaded.connector(below(batch["input_ids"], mask), mask)
            for name in right:
                changed = replaced(states, specials(batch["input_ids"], mask), means, PLACES.get(name, ()))
                answers = top(inputs_embeds=changed, attention_mask=mask).logits.argmax(-1).tolist()
                gold = examples.labels[at : at + ROWS]
                right[name] += [task.config.id2label[a] == g for a, g in zip(answers, gold, strict=True)]
        plain = np.array(right["connector"])
        scores[language] = {
            name: {
                "accuracy": round(100 * float(np.mean(one)), 2),
                "mended": int((np.array(one) & ~plain).sum()),
                "broken": int((~np.array(one) & plain).sum()),
            }
            for name, one in right.items()
        }
    return scores


def special_means(mono: str, layer: int) -> Tensor:
    """Return the English model's mean states of the four special tokens of a pair, at a layer: (4, width)."""
    bottom = part(xl.load_encoder(mono), 0, layer, embeddings=True, norm=False).eval()
    tokenizer = xl.load_tokenizer(mono)
    examples = xl.load("mnli", language="en", split="train").take(200)
    batch = tokenizer(list(examples.texts), list(examples.pairs), padding=True, truncation=True, max_length=128,
                      return_tensors="pt")  # fmt: skip
    states = bottom(batch["input_ids"], batch["attention_mask"])
    places = specials(batch["input_ids"], batch["attention_mask"])
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1])).mean(0)


def specials(ids: Tensor, mask: Tensor) -> Tensor:
    """Return where the four special tokens of each pair stand: (rows, 4)."""
    special = ((ids == 0) | (ids == 2)) & mask.bool()  # <s> and </s>, in both vocabularies
    return special.nonzero()[:, 1].view(len(ids), 4)


def replaced(states: Tensor, places: Tensor, means: Tensor, which: tuple[int, ...]) -> Tensor:
    """Return states with some special tokens replaced by their means."""
    changed = states.clone()
    for one in which:
        changed[torch.arange(len(states)), places[:, one]] = means[one].to(states.dtype)
    return changed


if __name__ == "__main__":
    main()
