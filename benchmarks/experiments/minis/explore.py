"""Which start, rate or window leaves the plateau? Short runs on a part of the data, one after another.

    python explore.py --root FOLDER --arm init=deep --arm init=deep,learning_rate=5e-4,dropout=0,window=64 --out FILE

An arm is `init` (see `STARTS`; `as-is` keeps what `new_encoder` gives,
the others draw all layers anew, so that no head starts at a neighbour) and any settings of `crosslift pretrain`. Every
arm gets the same steps, batches of the same size, and the same held-out windows, in which all chosen pieces are hidden.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from recipe import read_config

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from crosslift.runs.pretrain_data import Prepared

PAIRS_PER_LANGUAGE, LINES_PER_LANGUAGE = 6000, 4000
SMALL = {"window_tokens": 16_384, "pair_tokens": 8_192, "pair_lengths": (24, 64), "words": 1.5, "learning_rate": 1e-3}
UNUSED = {"switched_windows": 0.0, "switched_pairs": 0.0, "lexicon_pairs": 0.0}


def attention(name: str) -> bool:
    return name.endswith(("query", "key"))


def residual(name: str) -> bool:
    return name.endswith("output.dense")


STARTS: dict[str, Callable[[str, int], float]] = {
    "deep": lambda name, layers: 1.0 if attention(name) else (8 * layers) ** -0.25,
    "small": lambda name, layers: (2 * layers) ** -0.5 if residual(name) else 1.0,
    "tiny": lambda name, layers: 0.1 if residual(name) else 1.0,
    "xavier": lambda name, layers: 1.0,
}
"""Gain of Xavier's initialisation by module; `bert` is a deviation of 0.02 everywhere, `qk` that but for attention."""


def start(model: PreTrainedModel, init: str, layers: int) -> None:
    """Draw the layers' matrices anew."""
    from torch import nn

    for name, module in model.base_model.encoder.named_modules():
        if not isinstance(module, nn.Linear) or init == "as-is":
            continue
        if init == "bert" or (init == "qk" and not attention(name)):
            nn.init.normal_(module.weight, std=0.02)
        else:
            nn.init.xavier_normal_(module.weight, gain=1.0 if init == "qk" else STARTS[init](name, layers))


def sample(config: dict, folder: Path) -> tuple[dict[str, list[Path]], Path]:
    """Write a part of the text and of the pairs, where it is not there yet; return the files."""
    from crosslift.data.files import read_lines

    rng = random.Random(0)
    pairs = folder / "pairs.txt"
    if pairs.exists():
        return {path.stem: [path] for path in sorted(folder.glob("??.txt"))}, pairs
    folder.mkdir(parents=True, exist_ok=True)
    by_language: dict[str, list[str]] = {}
    for path in config["bitext"]:
        if "gettext" not in path:
            for line in read_lines(Path(path)):
                by_language.setdefault(line.split("\t", 1)[0], []).append(line)
    some = [line for own in by_language.values() for line in rng.sample(own, min(len(own), PAIRS_PER_LANGUAGE))]
    text = {}
    for language, path in config["text"].items():
        lines = [line for line in read_lines(Path(path)) if line]
        text[language] = [folder / f"{language}.txt"]
        kept = rng.sample(lines, min(len(lines), LINES_PER_LANGUAGE))
        text[language][0].write_text("\n".join(kept) + "\n", encoding="utf-8")
    pairs.write_text("\n".join(some) + "\n", encoding="utf-8")  # last: its presence says that all is there
    return text, pairs


def run_arm(
    arm: dict[str, str],
    data: Prepared,
    tokenizer: PreTrainedTokenizerBase,
    steps: int,
    warmup: int,
    device: torch.device,
) -> dict[str, object]:
    """Train one arm; return its settings, the last losses and the held-out loss."""
    import torch

    from crosslift.methods.pretrain import Pretrainer
    from crosslift.models.new_encoder import new_encoder
    from crosslift.runs.held_out import HeldOut
    from crosslift.runs.pretrain import SETTINGS
    from crosslift.runs.progress import Lines
    from crosslift.runs.settings import sort_settings
    from crosslift.runs.timed_work import TimedWork

    given = SMALL | UNUSED | {"steps": steps} | {name: value for name, value in arm.items() if name != "init"}
    shape, _, objectives, sampling, optimisation, _ = (
        cls(**own) for cls, own in zip(SETTINGS, sort_settings(SETTINGS, given), strict=True)
    )
    model = new_encoder(shape, tokenizer, 1)
    start(model, arm.get("init", "as-is"), shape.layers)
    widths = [teacher.sentences.shape[1] for teacher in data.teachers]
    module = Pretrainer(model, objectives, widths, data.word_width).to(device).train()
    work = TimedWork(
        data.streams, data.pairs, data.teachers, tokenizer, steps=steps, sampling=sampling, objectives=objectives,
        max_positions=shape.max_positions, seed=1,
    )  # fmt: skip
    work.limit(None, Lines())
    rate = optimisation.learning_rate
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=rate, betas=(0.9, optimisation.beta2), weight_decay=optimisation.weight_decay
    )
    began, tail = time.monotonic(), []
    for step in range(steps):
        torch.manual_seed(step)
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / warmup)
        batch, _ = next(iter(work.batches(step, 0, 1)))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            terms = module(batch)
        torch.stack(list(terms.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= steps - 50:
            tail.append({name: term.item() for name, term in terms.items()})
    means = {name: round(sum(row[name] for row in tail) / len(tail), 3) for name in tail[0]}
    held = HeldOut(work, data, 0.0, Lines())(module)
    scores = {"held_out_loss": round(held["loss"], 3), "held_out_accuracy": round(held["accuracy"], 2)}
    return {"arm": arm, "terms": means, "total": round(sum(means.values()), 3), **scores,
            "seconds": round(time.monotonic() - began)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("mini-x.json"))
    parser.add_argument("--arm", action="append", required=True, metavar="NAME=VALUE,…")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--warmup", type=int, default=250, help="steps")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    import torch
    from transformers import PreTrainedTokenizerFast

    from crosslift.data.tokenise import Workers
    from crosslift.methods.pretrain import Objectives, Sampling
    from crosslift.runs.pretrain_data import prepare, read_corpus
    from crosslift.runs.progress import Lines

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = read_config(arguments.config, arguments.root)
    text, pairs = sample(config, arguments.root / "sample")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(config["tokenizer"])
    with Workers(arguments.workers) as workers:
        sampling = Sampling(pair_lengths=SMALL["pair_lengths"], **UNUSED)
        corpus, teachers = read_corpus(text, [pairs], {}), config["teachers"][:1]
        data = prepare(corpus, tokenizer, teachers, sampling, Objectives(), device, 1, workers, Lines())
    found = []
    for item in arguments.arm:
        arm = dict(setting.split("=", 1) for setting in item.split(","))
        found.append(run_arm(arm, data, tokenizer, arguments.steps, arguments.warmup, device))
        print(json.dumps(found[-1]), flush=True)
        arguments.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
