"""Adjustment and continual learning at mBERT's shape: our step against one written as the released code does it.

The released way: words are tokenised again at every step, one at a time; source, target and the frozen model are run in
chunks of four pairs, the frozen one with gradients; word vectors are means taken in a Python loop; float32 throughout.
Ours is `crosslift fit adjust`: tokenised once, the frozen vectors from the cache, both sides in one pass, words pooled
by one matrix product, bf16 on a GPU. Losses of both are compared in float32 without dropout, on the same pairs and the
same moved weights.

The second part compares a fine-tuning step with and without 16 aligned pairs (continual learning), for the shapes of
sentence-pair classification, tagging and question answering. Each plan is one call of the training loop over the same
16 batches again and again; a GPU has seen and recorded all their shapes when the clock starts, for every plan alike.

Text is made up (words of one to three pieces, sentence lengths like those of mined bitext).

    python benchmarks/adjust.py [--out FILE]          # 30,000 pairs on a GPU
    python benchmarks/adjust.py --dry                 # a small model on a CPU: does it run, are the losses equal?

What is done is written to FILE at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

from crosslift.align import AlignedBitext, Alignment
from crosslift.align.encoded_pairs import encode_pairs
from crosslift.data.examples import Answer, Examples
from crosslift.data.segment import segment_all
from crosslift.methods.adjust import Adjust, Settings
from crosslift.methods.finetune import Finetune
from crosslift.methods.finetune import Settings as FinetuneSettings
from crosslift.runs.adjust import AdjustOptimisation, AdjustPlan, anchor_rows
from crosslift.runs.continual import ContinualPlan, padding_on
from crosslift.runs.folder import RunFolder
from crosslift.runs.plan import Plan
from crosslift.runs.progress import Silent
from crosslift.runs.replay import Batch
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import train
from crosslift.tasks import task_for

BATCH, CHUNK, CONTINUAL = 32, 4, 16
CYCLE, WARM = 16, 2
"""Batches of a timed round, and rounds before the clock starts: a shape is recorded when it comes again."""
SHAPES = {"classification": (18, 9), "tagging": (8, 0), "qa": (10, 120)}
"""Median words of the first and second text, roughly those of MNLI, PAN-X and SQuAD."""


def made_tokenizer(vocabulary: int, seed: int = 0) -> tuple[PreTrainedTokenizerFast, list[str]]:
    """Return a WordPiece tokenizer and words that it cuts into one to three pieces."""
    random = np.random.default_rng(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    drawn = random.choice(26**4, size=vocabulary - 5, replace=False).tolist()
    shapes = ["".join(letters[n // 26**k % 26] for k in range(4)) for n in drawn]
    half = len(shapes) // 2
    starts, rest = shapes[:half], shapes[half:]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = special + starts + [f"##{piece}" for piece in rest]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=512,
    )  # fmt: skip
    counts = random.choice([0, 1, 2], p=[0.75, 0.17, 0.08], size=30_000).tolist()
    first = random.integers(len(starts), size=len(counts)).tolist()
    further = random.integers(len(rest), size=(len(counts), 2)).tolist()
    words = [starts[f] + "".join(rest[i] for i in more[:n]) for n, f, more in zip(counts, first, further, strict=True)]
    return fast, words


def sentences(count: int, words: list[str], mean: float, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(np.log(mean), 0.45, count).astype(int), 3, 60 if mean < 60 else 260)
    drawn = np.minimum(random.zipf(1.3, lengths.sum()) - 1, len(words) - 1)
    ends = np.cumsum(lengths)
    return [" ".join(words[i] for i in drawn[end - n : end]) for end, n in zip(ends, lengths, strict=True)]


def made_bitext(count: int, words: list[str]) -> AlignedBitext:
    """Sentences of some 20 words, translated word by word into other made-up words; 60% of the links are kept."""
    random = np.random.default_rng(1)
    shuffled = dict(zip(words, random.permutation(words), strict=True))
    source = sentences(count, words, 19, 2)
    target = [" ".join(shuffled[word] for word in text.split()) for text in source]
    links = [[(i, i) for i in np.flatnonzero(random.random(len(text.split())) < 0.6).tolist()] for text in source]
    ids = [str(i) for i in range(count)]
    bitext = Examples("bitext", "en", ids, source, target, pair_language="xx", name="made-up")
    spans = [segment_all(texts, "en") for texts in (source, target)]
    return AlignedBitext(bitext, *spans, Alignment.from_pairs(links))


class ReleasedWay:
    """A step as the released code does it."""

    def __init__(self, aligned: AlignedBitext, tokenizer: PreTrainedTokenizerFast, frozen: BertModel) -> None:
        self.aligned, self.tokenizer, self.frozen = aligned, tokenizer, frozen

    def rows(self, texts: list[list[str]], device: torch.device) -> tuple[dict[str, torch.Tensor], list]:
        """Tokenise word by word, pad, and return where the words are."""
        ids, spans = [], []
        for words in texts:
            row, places = [self.tokenizer.cls_token_id], []
            for word in words:
                pieces = self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(word))
                places.append((len(row), len(row) + len(pieces)))
                row += pieces
            ids.append([*row, self.tokenizer.sep_token_id])
            spans.append([*places, (0, 1), (len(row), len(row) + 1)])
        longest = max(map(len, ids))
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in ids], device=device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids], device=device)
        return {"input_ids": padded, "attention_mask": mask}, spans

    def chunk(self, model: BertModel, pairs: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the squared distance of each word pair, and of each source word from where it was, over the width."""
        device = next(model.parameters()).device
        bitext = self.aligned.bitext
        source, source_spans = self.rows([bitext.texts[p].split() for p in pairs], device)
        target, target_spans = self.rows([bitext.pairs[p].split() for p in pairs], device)
        s_hidden = model(**source, output_hidden_states=True).hidden_states[-1]
        t_hidden = model(**target, output_hidden_states=True).hidden_states[-1]
        f_hidden = self.frozen(**source, output_hidden_states=True).hidden_states[-1]
        one, other, now, then = [], [], [], []
        for k, p in enumerate(pairs):
            last = (len(source_spans[k]), len(target_spans[k]))
            marks = [(last[0] - 2, last[1] - 2), (last[0] - 1, last[1] - 1)]
            for i, j in self.aligned.alignment.links(p) + marks:
                one.append(s_hidden[k, slice(*source_spans[k][i])].mean(0))
                other.append(t_hidden[k, slice(*target_spans[k][j])].mean(0))
            for span in source_spans[k]:
                now.append(s_hidden[k, slice(*span)].mean(0))
                then.append(f_hidden[k, slice(*span)].mean(0))
        pull = (torch.stack(one) - torch.stack(other)).square().mean(-1)
        anchor = (torch.stack(now) - torch.stack(then).detach()).square().mean(-1)
        return pull, anchor

    def step(self, model: BertModel, optimizer: torch.optim.Optimizer, pairs: list[int]) -> None:
        """Take one optimiser step; the means of the chunks are added."""
        for start in range(0, len(pairs), CHUNK):
            pull, anchor = self.chunk(model, pairs[start : start + CHUNK])
            (pull.mean() + anchor.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.no_grad()
    def losses(self, model: BertModel, pairs: list[int]) -> tuple[float, float]:
        """Return pull and anchor over a whole batch: means over all its word pairs and words."""
        parts = [self.chunk(model, pairs[start : start + CHUNK]) for start in range(0, len(pairs), CHUNK)]
        pull, anchor = (torch.cat(column).mean() for column in zip(*parts, strict=True))
        return float(pull), float(anchor)


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak() -> float | None:
    if not torch.cuda.is_available():
        return None
    found = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return round(found, 2)


class Report:
    """What is known so far: printed with the time, and written at once."""

    def __init__(self, out: Path | None, facts: dict[str, Any]) -> None:
        self.out, self.facts, self.began = out, facts, time.perf_counter()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"[{time.perf_counter() - self.began:6.1f} s] {text}", file=sys.stderr, flush=True)

    def add(self, part: str, **facts: object) -> None:
        """Add to a part."""
        self.facts.setdefault(part, {}).update(facts)
        self.say(f"{part}: {json.dumps(facts)}")
        if self.out:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(json.dumps(self.facts, indent=2) + "\n")


@dataclass(frozen=True)
class Setting:
    """What both parts share: sizes, device, and a made-up language."""

    arguments: argparse.Namespace
    device: torch.device
    tokenizer: PreTrainedTokenizerFast
    words: list[str]

    def made(self, model: type, **config: int) -> Any:  # noqa: ANN401  a Hugging Face model
        """Return a model; weights are drawn on the device, since a CPU takes longer over that than over all else."""
        torch.manual_seed(0)
        with torch.device(self.device):
            return model(bert(self.arguments, **config))


def adjustment(setting: Setting, report: Report) -> None:
    """30,000 pairs our way; a few steps of the released way; the losses of both on the moved weights."""
    arguments, tokenizer = setting.arguments, setting.tokenizer
    aligned = made_bitext(arguments.pairs, setting.words)
    model = setting.made(BertModel)
    frozen = setting.made(BertModel)
    frozen.load_state_dict(model.state_dict())
    frozen.eval()
    execution = Execution(max_tokens=16384)
    report.say("bitext and models are made")

    began = time.perf_counter()
    pairs = encode_pairs(aligned, tokenizer, keep_identical=True, max_words=10**6)
    tokenised = time.perf_counter() - began
    anchors = anchor_rows(model, tokenizer, pairs, Settings(), execution)
    sync()
    anchored = time.perf_counter() - began - tokenised
    report.say(f"tokenised in {tokenised:.1f} s, anchored in {anchored:.1f} s")
    method = Adjust(Settings(), pairs, anchors, tokenizer.pad_token_id)
    optimisation = AdjustOptimisation(batch_size=BATCH)
    plan = AdjustPlan(method, optimisation, execution.max_tokens, seed=1)
    peak()
    with tempfile.TemporaryDirectory() as folder:
        trained = train(model, plan, RunFolder(folder), optimisation, execution, seed=1)
    sync()
    seconds = tokenised + anchored + trained.seconds
    ours = {
        "seconds": round(seconds, 2),
        "of_which_tokenising": round(tokenised, 2),
        "of_which_anchor": round(anchored, 2),
        "milliseconds_per_step": round(1000 * trained.seconds / plan.steps, 2),
        "pairs_per_second": round(len(pairs) / seconds, 1),
        "peak_memory_gib": peak(),
    }
    links = len(pairs.links.source)
    report.add("adjustment", pairs=len(pairs), links=links, steps=plan.steps, ours=ours)

    order = {text: i for i, text in enumerate(aligned.bitext.texts)}
    released = ReleasedWay(aligned, tokenizer, frozen)
    batches = [plan.rows(step) for step in range(max(arguments.compared, arguments.steps + 2))]
    report.add("adjustment", **compared(model, frozen, batches[: arguments.compared], method, released, order))

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5, betas=(0.9, 0.98), eps=1e-9)
    for step, rows in enumerate(batches[: arguments.steps + 2]):
        if step == 2:
            sync()
            peak()
            began = time.perf_counter()
        released.step(model, optimizer, [order[pairs.texts[r]] for r in rows.tolist()])
    sync()
    per_step = (time.perf_counter() - began) / arguments.steps
    theirs = {
        "seconds": round(per_step * plan.steps, 1),
        "timed_steps": arguments.steps,
        "milliseconds_per_step": round(1000 * per_step, 1),
        "pairs_per_second": round(BATCH / per_step, 1),
        "peak_memory_gib": peak(),
    }
    report.add("adjustment", released_way=theirs, ratio=round(per_step * plan.steps / seconds, 2))


def compared(
    model: BertModel,
    frozen: BertModel,
    batches: list[np.ndarray],
    method: Adjust,
    released: ReleasedWay,
    order: dict[str, int],
) -> dict[str, object]:
    """Return how far the losses are apart: the weights have moved, so neither is trivial; float32, no dropout."""
    chosen = method.pairs.select(np.concatenate(batches))
    anchors = anchor_rows(frozen, released.tokenizer, chosen, Settings(), Execution(precision="fp32"))
    exact = Adjust(Settings(), chosen, anchors, method.pad_id)
    device = next(model.parameters()).device
    model.eval()
    worst, begin = 0.0, 0
    terms: dict[str, torch.Tensor] = {}
    for rows in batches:
        places = np.arange(begin, begin + len(rows))
        begin += len(rows)
        batch = {name: tensor.to(device) for name, tensor in exact.batch(places, 0).items()}
        with torch.no_grad():
            terms = exact.loss(model, batch)
        theirs = released.losses(model, [order[chosen.texts[place]] for place in places.tolist()])
        worst = max(worst, *(abs(float(terms[n]) - v) for n, v in zip(("pull", "anchor"), theirs, strict=True)))
    last = {name: round(float(value), 5) for name, value in terms.items()}
    return {"losses_agree": worst <= 1e-4, "largest_difference_of_losses": worst, "losses_compared_last": last}


def bert(arguments: argparse.Namespace, **more: int) -> BertConfig:
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    return BertConfig(vocab_size=arguments.vocabulary, pad_token_id=0, **(small if arguments.dry else {}), **more)


def made_task(kind: str, count: int, words: list[str]) -> Examples:
    first, second = SHAPES[kind]
    ids = [str(i) for i in range(count)]
    texts = sentences(count, words, first, 3)
    if kind == "tagging":
        spans = segment_all(texts, "en")
        tags = [["B-LOC" if i % 5 == 0 else "O" for i in range(len(part))] for part in spans]
        return Examples("tagging", "en", ids, texts, spans=spans, labels=tags, name="made-up")
    others = sentences(count, words, second, 4)
    if kind == "qa":
        answers = [[Answer(text.split()[0], 0)] for text in others]
        return Examples("qa", "en", ids, texts, others, labels=answers, name="made-up")
    labels = [("yes", "no", "maybe")[i % 3] for i in range(count)]
    return Examples("classification", "en", ids, texts, others, labels=labels, name="made-up")


class Again:
    """The first batches of a plan, in the same order again and again."""

    def __init__(self, plan: Plan, steps: int) -> None:
        self.plan, self.steps, self.replayable = plan, steps, plan.replayable

    def batches(self, step: int, rank: int, world: int) -> Iterator[tuple[Batch, float]]:
        """Return the batches of a step."""
        return self.plan.batches(step % CYCLE, rank, world)

    def loss(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the plan's loss terms."""
        return self.plan.loss(model, batch)


class Clock(Silent):
    """Times rounds of `CYCLE` steps, after the warm ones."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def advance(self, done: int, note: str = "") -> None:
        """Look at the clock at the end of a round."""
        if done % CYCLE == 0 and done >= WARM * CYCLE:
            sync()
            self.marks.append(time.perf_counter())

    def milliseconds(self) -> float:
        """Return the median of the rounds, by step."""
        return 1000 * float(np.median(np.diff(self.marks))) / CYCLE


def continual(setting: Setting, report: Report) -> None:
    """A fine-tuning step without pairs, with pairs one pass after the other, and as `fit --with-adjustment` does it."""
    tokenizer, arguments = setting.tokenizer, setting.arguments
    aligned = made_bitext(min(arguments.pairs, 3000), setting.words)
    pairs = encode_pairs(aligned, tokenizer, keep_identical=True, max_words=10**6)
    execution = Execution(max_tokens=16384, log_every=10**6)
    settings = Settings(pull_weight=0.01, anchor_weight=0.01)
    cheap, multiple = padding_on(setting.device, tokenizer.model_max_length)
    encoder = setting.made(BertModel)
    adjust = Adjust(
        settings, pairs, anchor_rows(encoder, tokenizer, pairs, settings, execution), tokenizer.pad_token_id
    )
    heads = {
        "classification": BertForSequenceClassification,
        "tagging": BertForTokenClassification,
        "qa": BertForQuestionAnswering,
    }
    for kind, head in heads.items():
        examples = made_task(kind, BATCH * 50, setting.words)
        task = task_for(examples)
        method = Finetune(FinetuneSettings(), task, tokenizer, examples)
        steps = CYCLE * (WARM + arguments.rounds)
        optimisation = Optimisation(steps=steps, batch_size=BATCH)
        plain = Plan(method, optimisation, execution.max_tokens, seed=1)
        plans = {
            "plain": plain,
            "one_after_the_other": ContinualPlan(plain, adjust, CONTINUAL, None, multiple),
            "with_adjustment": ContinualPlan(plain, adjust, CONTINUAL, cheap, multiple),
        }
        times, memory = {}, {}
        for name, plan in plans.items():
            model = setting.made(head, num_labels=max(2, len(task.labels)))
            model.base_model.load_state_dict(encoder.state_dict(), strict=False)
            peak()
            clock = Clock()
            with tempfile.TemporaryDirectory() as folder:
                train(model, Again(plan, steps), RunFolder(folder), optimisation, execution, seed=1, watch=clock)
            times[name], memory[name] = clock.milliseconds(), peak()
            report.say(f"{kind}, {name}: {times[name]:.2f} ms a step")
        found = {
            "task_tokens": round(float(np.mean(method.lengths)), 1),
            "sentence_tokens": round(float(np.mean(pairs.lengths()) / 2), 1),
            "milliseconds_per_step": {name: round(value, 2) for name, value in times.items()},
            "ratio": round(times["with_adjustment"] / times["plain"], 2),
            "ratio_one_after_the_other": round(times["one_after_the_other"] / times["plain"], 2),
            "peak_memory_gib": memory,
        }
        report.add("continual", **{kind: found})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="a small model and few pairs: for a CPU")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--steps", type=int, help="timed steps of the released way")
    parser.add_argument("--rounds", type=int, default=3, help=f"timed rounds of {CYCLE} continual steps: their median")
    parser.add_argument("--part", choices=("adjustment", "continual", "both"), default="both")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    arguments.vocabulary = 2_000 if arguments.dry else 119_547
    arguments.pairs = arguments.pairs or (200 if arguments.dry else 30_000)
    arguments.steps = arguments.steps or (2 if arguments.dry else 6)
    arguments.compared = 2 if arguments.dry else 5
    arguments.rounds = 1 if arguments.dry else arguments.rounds
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    report = Report(arguments.out, {"device": name, "dry": arguments.dry, "torch": torch.__version__})
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CROSSLIFT_CACHE"] = cache
        setting = Setting(arguments, device, *made_tokenizer(arguments.vocabulary))
        report.say(f"{name}; a tokenizer of {arguments.vocabulary:,} pieces is made")
        if arguments.part != "continual":
            adjustment(setting, report)
            if device.type == "cuda":
                torch.cuda.empty_cache()
        if arguments.part != "adjustment":
            continual(setting, report)
    print(json.dumps(report.facts, indent=2))
    return 0 if report.facts.get("adjustment", {}).get("losses_agree", True) else 1


if __name__ == "__main__":
    sys.exit(main())
