"""One EAR training step at mBERT shape against the released recipe: time and peak memory, in one run.

    CROSSLIFT_DATA=… python benchmarks/ear_step.py --out benchmarks/results/ear-step.json
    python benchmarks/ear_step.py --shape 6x128 --steps 4 --out runs/ear-step.json      # a dry run

`released` is the recipe of the authors' code: two forward passes with the attention of all layers returned, every row
padded to 128, unfused attention, fp32, AdamW as it comes. Its batches lie ready in memory. The others are the loop of
`crosslift fit ear`, from drawing synonyms and tokenising them to the optimiser: as it is (`loop`; a GPU records steps
as CUDA graphs), with --cuda-graphs no (`plain loop`), and with --compile --cuda-graphs (`compiled`). Each
system has a process of its own; the same weights, the same examples.

Before anything is timed, the losses are compared without dropout in fp32: our `released` preset, padded to 128, must
give all four terms of the recipe; our default preset must give its two cross-entropies and its push without padding.

Lengths are those of real texts: the 15k English MNLI pairs that XNLI is trained from here, in a WordPiece vocabulary
of 20,000 learned from them; the embedding matrix has mBERT's 119,547 rows all the same. Without CROSSLIFT_DATA,
sentences of made-up words with the same distribution of words per sentence (WORDS) stand in.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import crosslift as xl
from crosslift.data.batches import training_batches
from crosslift.data.examples import Examples
from crosslift.methods.ear import Ear, Settings, mean_pool
from crosslift.runs.folder import RunFolder
from crosslift.runs.machine import describe
from crosslift.runs.plan import Plan
from crosslift.runs.progress import Silent
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import train
from crosslift.tasks import Task, task_for

BATCH, EPOCH, LENGTH, LAYER = 32, 50, 128, 6
ALPHA, BETA = 0.1, 1.0  # of the released scripts
WORDS = {"premise": (2, 6, 10, 17, 26, 35, 70), "hypothesis": (3, 5, 7, 9, 12, 15, 24)}
"""Words per sentence of MNLI at the quantiles 1, 10, 25, 50, 75, 90 and 99 %."""

SYSTEMS: dict[str, dict[str, Any]] = {
    "released": {},
    "plain loop": {"max_tokens": 4096, "cuda_graphs": False},
    "loop": {"max_tokens": 4096},
    "loop, 1024 tokens": {"max_tokens": 1024},
    "compiled": {"max_tokens": 4096, "compile": True, "cuda_graphs": True},
}


def pairs(count: int) -> tuple[Examples, dict[str, list[str]], str]:
    """Return examples, synonyms, and where they come from."""
    root = os.environ.get("CROSSLIFT_DATA")
    if root:
        from crosslift.data.synonyms import read_synonyms

        synonyms = read_synonyms(Path(root) / "synonyms" / "counterfitted_neighbors.json.xz")
        known = {word: list(others) for word, others in synonyms.items()}
        return xl.load("mnli", language="en", split="train").take(count), known, "mnli (en), counter-fitted synonyms"
    draw = np.random.default_rng(0)
    letters = list("aeiounrstlmd")
    words = sorted({"".join(draw.choice(letters, draw.integers(2, 9))) for _ in range(4000)})
    columns = []
    for quantiles in WORDS.values():
        at = np.interp(draw.random(count), [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], quantiles).round().astype(int)
        columns.append([" ".join(draw.choice(words, max(1, n))) for n in at])
    labels = draw.choice(["contradiction", "entailment", "neutral"], count).tolist()
    made = Examples("classification", "en", [str(i) for i in range(count)], *columns, labels=labels, name="made-up")
    # 4 of 10 running words of MNLI have counter-fitted synonyms, 4 each.
    known = {w: draw.choice(words, 4).tolist() for w in words if draw.random() < 0.4}
    return made, known, "made-up words with MNLI's lengths"


def wordpiece(examples: Examples) -> PreTrainedTokenizerFast:
    """Learn a cased WordPiece vocabulary from the texts."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=20_000, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([*examples.texts, *(examples.pairs or ())], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=LENGTH,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


class Setup:
    """Data, tokenizer and model, the same in every process."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        examples, synonyms, self.source = pairs(arguments.rows or 15_000)
        if arguments.tokenizer is None:  # made once, for all processes
            arguments.tokenizer = tempfile.mkdtemp()
            wordpiece(examples).save_pretrained(arguments.tokenizer)
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.tokenizer)
        self.examples = examples.take(EPOCH * BATCH)
        self.task: Task = task_for(self.examples, ("contradiction", "entailment", "neutral"), max_length=LENGTH)
        self.synonyms = Path(tempfile.mkdtemp()) / "synonyms.json"
        self.synonyms.write_text(json.dumps(synonyms), encoding="utf-8")

    def model(self, attention: str | None = None) -> BertForSequenceClassification:
        """Return the model, its weights drawn from a fixed seed."""
        layers, width = map(int, self.arguments.shape.split("x"))
        config = BertConfig(
            num_hidden_layers=layers, hidden_size=width, num_attention_heads=width // 64, intermediate_size=4 * width,
            vocab_size=119_547 if width == 768 else 20_000, num_labels=3,
        )  # fmt: skip
        config._attn_implementation = attention or "sdpa"
        torch.manual_seed(0)
        return BertForSequenceClassification(config)

    def method(self, preset: str) -> Ear:
        """Return EAR on the examples."""
        settings = Settings(synonyms=str(self.synonyms), preset=preset)  # type: ignore[arg-type]
        return Ear(settings, self.task, self.tokenizer, self.examples)


def widened(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Pad a batch to 128 tokens."""
    more = LENGTH - batch["input_ids"].shape[1]
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: pad(tensor, (0, more)) if name in names else tensor for name, tensor in batch.items()}


def released_terms(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The loss of the released recipe on x above xᵃ, padded to 128."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    half = len(batch["labels"]) // 2
    sides = []
    for part in (slice(0, half), slice(half, None)):
        inputs = {name: batch[name][part] for name in names}
        sides.append(model(**inputs, output_attentions=True, output_hidden_states=True))
    pooled = [
        mean_pool(side.hidden_states[0], mask)
        for side, mask in zip(sides, batch["attention_mask"].chunk(2), strict=True)
    ]
    first, second = (side.attentions[:LAYER][-1] for side in sides)
    return {
        "ce": cross_entropy(sides[0].logits, batch["labels"][:half]),
        "ce_augmented": cross_entropy(sides[1].logits, batch["labels"][half:]),
        "ept": -ALPHA * (pooled[0] - pooled[1]).square().mean(),
        "apt": BETA * (first - second).square().mean(),
    }


def agreement(setup: Setup, device: str) -> dict[str, dict[str, float]]:
    """Compare the losses without dropout; return term -> theirs, ours, and without padding."""
    reference, fused = setup.model("eager").to(device).eval(), setup.model().to(device).eval()
    for model in (reference, fused):  # far enough from zero to be compared
        with torch.no_grad():
            model.bert.embeddings.word_embeddings.weight.mul_(20)
    released, default = setup.method("released"), setup.method("default")
    rows = np.arange(BATCH)
    batch = {name: tensor.to(device) for name, tensor in released.batch(rows, 0).items()}
    with torch.no_grad():
        theirs = released_terms(reference, widened(batch))
        ours = released.loss(fused, widened(batch))
        bare = default.loss(fused, batch)
    bare["ept"] = bare["ept"] * ALPHA
    found = {}
    for name, value in theirs.items():
        found[name] = {"released": float(value), "ours": float(ours[name])}
        torch.testing.assert_close(ours[name], value, atol=1e-7, rtol=1e-3)
        if name != "apt":  # word by word it is another number
            found[name]["ours, unpadded"] = float(bare[name])
            torch.testing.assert_close(bare[name], value, atol=1e-7, rtol=1e-3)
    return found


class Sample(Plan):
    """An epoch of 50 batches; where fewer are asked for, those at even quantiles of their length."""

    def __init__(self, method: Ear, optimisation: Optimisation, max_tokens: int, count: int) -> None:
        super().__init__(method, optimisation, max_tokens, seed=1)
        self.count = count

    def rows(self, step: int) -> np.ndarray:
        """Return the rows of a step."""
        if self.count >= self.per_epoch:
            return super().rows(step)
        batches = training_batches(self.method.lengths, BATCH, 1, 0)
        batches.sort(key=lambda rows: int(self.method.lengths[rows].max()))
        return batches[int((step % self.count + 0.5) / self.count * len(batches))]


class Clock(Silent):
    """Times the steps after the first `warm` ones."""

    def __init__(self, warm: int, total: int, device: str) -> None:
        self.warm, self.total, self.device = warm, total, device
        self.seconds, self.began = 0.0, self.now()

    def advance(self, done: int, note: str = "") -> None:
        """Look at the clock where the timed part begins and ends."""
        if done in (self.warm, self.total):
            if self.device == "cuda":
                torch.cuda.synchronize()
            now = self.now()
            self.began, self.seconds = now, now - self.began

    def now(self) -> float:
        """Seconds; on one core those that the process had of it, so that neighbours do not count."""
        alone = self.device == "cpu" and torch.get_num_threads() == 1
        return time.process_time() if alone else time.perf_counter()


def run_released(setup: Setup, clock: Clock) -> None:
    """The released recipe, on batches that lie ready."""
    method = setup.method("released")
    shuffled = np.random.default_rng(0).permutation(len(setup.examples))  # theirs are not by length
    rows = shuffled[: len(shuffled) // BATCH * BATCH].reshape(-1, BATCH)
    ready = [
        {name: tensor.to(clock.device) for name, tensor in widened(method.batch(part, i)).items()}
        for i, part in enumerate(rows[: setup.arguments.steps])
    ]
    model = setup.model("eager").to(clock.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.0)
    for step in range(clock.total):
        sum(released_terms(model, ready[step % len(ready)]).values()).backward()  # type: ignore[union-attr]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock.advance(step + 1)


def run_loop(setup: Setup, clock: Clock, options: dict[str, Any]) -> dict[str, float]:
    """The product's own loop, synonyms and tokenizer included."""
    method, model = setup.method("default"), setup.model()
    method.prepare(model, seed=1)
    optimisation = Optimisation(batch_size=BATCH, steps=clock.total, learning_rate=2e-5)
    execution = Execution(checkpoint_every=10**9, log_every=10**6, **options)
    count = setup.arguments.steps
    plan = Sample(method, optimisation, execution.max_tokens, count)
    with tempfile.TemporaryDirectory() as folder:
        train(model, plan, RunFolder(folder), optimisation, execution, seed=1, watch=clock)
    began = clock.now()
    padded = [batch["input_ids"].shape for step in range(count) for batch, _ in plan.batches(step, 0, 1)]
    host = (clock.now() - began) / count
    return {
        "padded_tokens_per_step": sum(rows * length for rows, length in padded) // count,
        "of_which_ms_making_batches": round(1000 * host, 2),
    }


def measured(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time one system: milliseconds per step, peak memory in GB."""
    torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    setup = Setup(arguments)
    total = arguments.steps * (arguments.warm + arguments.epochs)
    clock = Clock(arguments.steps * arguments.warm, total, device)
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    try:
        facts = {} if name == "released" else run_loop(setup, clock, SYSTEMS[name])
        if name == "released":
            run_released(setup, clock)
    except Exception as error:  # one system that fails must not hide the others
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
    peak = (
        torch.cuda.max_memory_allocated() if device == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - idle
    )  # fmt: skip
    reserved = {"reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2)} if device == "cuda" else {}
    steps = arguments.steps * arguments.epochs
    return {"ms": round(1000 * clock.seconds / steps, 2), "peak_gb": round(peak / 1e9, 2), **reserved, **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50, help="batches of an epoch, at most 50")
    parser.add_argument("--warm", type=int, default=3, help="epochs that are not timed: compiling, capturing")
    parser.add_argument("--epochs", type=int, default=2, help="epochs that are timed")
    parser.add_argument("--rows", type=int, help="texts from which vocabulary and batches are drawn")
    parser.add_argument("--shape", default="12x768", help="layers × width; mBERT's has its vocabulary, too")
    parser.add_argument(
        "--systems", default="", help="by semicolons; default: all on a GPU, released and loop on a CPU"
    )
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    parser.add_argument("--out", type=Path)
    parser.set_defaults(tokenizer=None)
    arguments = parser.parse_args()
    if not (0 < arguments.steps <= EPOCH and arguments.warm > 0 and arguments.epochs > 0):
        parser.error(f"--steps is 1 to {EPOCH}, --warm and --epochs at least 1")
    cuda = torch.cuda.is_available()
    chosen = list(SYSTEMS) if cuda else ["released", "loop"]
    names = arguments.systems.split(";") if arguments.systems else chosen

    setup = Setup(arguments)
    lengths = setup.method("default").data.encoded.lengths()
    result: dict[str, Any] = {
        "shape": arguments.shape,
        "parameters": sum(p.numel() for p in setup.model().parameters()),
        "batch": BATCH,
        "texts": setup.source,
        "tokens_per_row": {"mean": round(float(lengths.mean()), 1), "max": int(lengths.max())},
        "losses_without_dropout": agreement(setup, "cuda" if cuda else "cpu"),
        "timed_steps": arguments.steps * arguments.epochs,
        "threads": arguments.threads,
        "systems": {},
        "machine": {name: describe()[name] for name in ("cores", "gpus", "python", "packages")},
    }
    context = mp.get_context("spawn")
    for name in names:
        # A process each: its memory, its compiled code, its own failure.
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            result["systems"][name] = found = pool.submit(measured, name, arguments).result()
        base = result["systems"].get("released", {})
        if "ms" in found and "ms" in base and name != "released":
            found["times_faster"] = round(base["ms"] / found["ms"], 2)
            found["share_of_memory"] = round(found["peak_gb"] / max(base["peak_gb"], 1e-9), 2)
        print(name, json.dumps(found), flush=True)
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
