"""Adjustment and continual learning at mBERT's shape: our step against one written as the released code does it.

The released way: words are tokenised again at every step, one at a time; source, target and the frozen model are run in
chunks of four pairs, the frozen one with gradients; word vectors are means taken in a Python loop; float32 throughout.
Ours is `crosslift fit adjust`: tokenised once, the frozen vectors from the cache, both sides in one pass, words pooled
by one matrix product, bf16 on a GPU. Losses of both are compared in float32 without dropout, on the same pairs and the
same moved weights.

The second part compares a fine-tuning step with and without 16 aligned pairs (continual learning), for the shapes of
sentence-pair classification, tagging and question answering.

Text is made up (words of one to three pieces, sentence lengths like those of mined bitext).

    python benchmarks/adjust.py [--out FILE]          # 30,000 pairs on a GPU
    python benchmarks/adjust.py --dry                 # a small model on a CPU: does it run, are the losses equal?
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

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
from crosslift.runs.continual import ContinualPlan
from crosslift.runs.folder import RunFolder
from crosslift.runs.plan import Plan
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import train
from crosslift.tasks import task_for

BATCH, CHUNK, CONTINUAL = 32, 4, 16
SHAPES = {"classification": (18, 9), "tagging": (8, 0), "qa": (10, 120)}
"""Median words of the first and second text, roughly those of MNLI, PAN-X and SQuAD."""


def made_tokenizer(vocabulary: int, seed: int = 0) -> tuple[PreTrainedTokenizerFast, list[str]]:
    """Return a WordPiece tokenizer and words that it cuts into one to three pieces."""
    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    shapes = ["".join(random.choice(letters, size=4)) for _ in range(2 * vocabulary)]
    shapes = list(dict.fromkeys(shapes))[: vocabulary - 5]
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
    counts = random.choice([0, 1, 2], p=[0.75, 0.17, 0.08], size=30_000)
    words = ["".join([random.choice(starts), *random.choice(rest, size=n)]) for n in counts]
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


def adjustment(arguments: argparse.Namespace, device: torch.device) -> dict[str, object]:
    tokenizer, words = made_tokenizer(arguments.vocabulary)
    aligned = made_bitext(arguments.pairs, words)
    config = bert(arguments)
    torch.manual_seed(0)
    model = BertModel(config).to(device)
    frozen = BertModel(config).to(device)
    frozen.load_state_dict(model.state_dict())
    frozen.eval()
    execution = Execution(max_tokens=16384)

    began = time.perf_counter()
    pairs = encode_pairs(aligned, tokenizer, keep_identical=True, max_words=10**6)
    tokenised = time.perf_counter() - began
    anchors = anchor_rows(model, tokenizer, pairs, Settings(), execution)
    sync()
    anchored = time.perf_counter() - began - tokenised
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

    # The weights have moved, so neither term is trivial; float32 and no dropout make the two comparable.
    released = ReleasedWay(aligned, tokenizer, frozen)
    exact = Adjust(Settings(), pairs, anchor_rows(frozen, tokenizer, pairs, Settings(), Execution(precision="fp32")),
                   tokenizer.pad_token_id)  # fmt: skip
    order = {text: i for i, text in enumerate(aligned.bitext.texts)}
    model.eval()
    worst = 0.0
    for step in range(arguments.compared):
        rows = plan.rows(step)
        batch = {name: tensor.to(device) for name, tensor in exact.batch(rows, 0).items()}
        with torch.no_grad():
            terms = exact.loss(model, batch)
        theirs = released.losses(model, [order[pairs.texts[r]] for r in rows.tolist()])
        worst = max(worst, *(abs(float(terms[n]) - v) for n, v in zip(("pull", "anchor"), theirs, strict=True)))
    last = {name: round(float(value), 5) for name, value in terms.items()}

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5, betas=(0.9, 0.98), eps=1e-9)
    batches = [[order[pairs.texts[r]] for r in plan.rows(step).tolist()] for step in range(arguments.steps + 2)]
    for batch_pairs in batches[:2]:
        released.step(model, optimizer, batch_pairs)
    sync()
    peak()
    began = time.perf_counter()
    for batch_pairs in batches[2:]:
        released.step(model, optimizer, batch_pairs)
    sync()
    per_step = (time.perf_counter() - began) / arguments.steps
    theirs = {
        "seconds": round(per_step * plan.steps, 1),
        "timed_steps": arguments.steps,
        "milliseconds_per_step": round(1000 * per_step, 1),
        "pairs_per_second": round(BATCH / per_step, 1),
        "peak_memory_gib": peak(),
    }
    return {
        "pairs": len(pairs),
        "links": len(pairs.links.source),
        "steps": plan.steps,
        "ours": ours,
        "released_way": theirs,
        "ratio": round(per_step * plan.steps / seconds, 2),
        "largest_difference_of_losses": worst,
        "losses_compared_last": last,
    }


def bert(arguments: argparse.Namespace) -> BertConfig:
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    return BertConfig(vocab_size=arguments.vocabulary, pad_token_id=0, **(small if arguments.dry else {}))


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


def continual(arguments: argparse.Namespace, device: torch.device) -> dict[str, object]:
    tokenizer, words = made_tokenizer(arguments.vocabulary)
    aligned = made_bitext(min(arguments.pairs, 3000), words)
    pairs = encode_pairs(aligned, tokenizer, keep_identical=True, max_words=10**6)
    heads = {
        "classification": BertForSequenceClassification,
        "tagging": BertForTokenClassification,
        "qa": BertForQuestionAnswering,
    }
    execution = Execution(max_tokens=16384)
    settings = Settings(pull_weight=0.01, anchor_weight=0.01)
    found: dict[str, object] = {}
    for kind, head in heads.items():
        examples = made_task(kind, BATCH * 40, words)
        task = task_for(examples)
        config = bert(arguments)
        config.num_labels = max(2, len(task.labels))
        torch.manual_seed(0)
        model = head(config).to(device)
        anchors = anchor_rows(model.base_model, tokenizer, pairs, settings, execution)
        adjust = Adjust(settings, pairs, anchors, tokenizer.pad_token_id)
        method = Finetune(FinetuneSettings(), task, tokenizer, examples)
        steps = arguments.continual_steps
        optimisation = Optimisation(steps=steps, batch_size=BATCH)
        plain = Plan(method, optimisation, execution.max_tokens, seed=1)
        plans = {
            "plain": plain,
            "two_passes": ContinualPlan(plain, adjust, CONTINUAL, one_pass=False),
            "with_adjustment": ContinualPlan(plain, adjust, CONTINUAL, one_pass=True),
        }
        times: dict[str, list[float]] = {name: [] for name in plans}
        memory = {}
        for repeat in range(arguments.repeats + 1):
            for name, plan in plans.items():
                peak()
                with tempfile.TemporaryDirectory() as folder:
                    seconds = train(model, plan, RunFolder(folder), optimisation, execution, seed=1).seconds
                memory[name] = peak()
                if repeat:  # the first round warms up
                    times[name].append(1000 * seconds / steps)
        middle = {name: float(np.median(values)) for name, values in times.items()}
        found[kind] = {
            "task_tokens": round(float(np.mean(method.lengths)), 1),
            "sentence_tokens": round(float(np.mean(pairs.lengths()) / 2), 1),
            "milliseconds_per_step": {name: round(value, 2) for name, value in middle.items()},
            "ratio": round(middle["with_adjustment"] / middle["plain"], 2),
            "ratio_two_passes": round(middle["two_passes"] / middle["plain"], 2),
            "peak_memory_gib": memory,
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="a small model and few pairs: for a CPU")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--steps", type=int, help="timed steps of the released way")
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds of the continual steps; the median counts")
    parser.add_argument("--continual-steps", type=int, default=100, help="steps of a timed round")
    parser.add_argument("--part", choices=("adjustment", "continual", "both"), default="both")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    arguments.vocabulary = 2_000 if arguments.dry else 119_547
    arguments.pairs = arguments.pairs or (200 if arguments.dry else 30_000)
    arguments.steps = arguments.steps or (2 if arguments.dry else 30)
    arguments.compared = 2 if arguments.dry else 10
    arguments.continual_steps = 5 if arguments.dry else arguments.continual_steps
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    result: dict[str, object] = {"device": name, "dry": arguments.dry, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CROSSLIFT_CACHE"] = cache
        if arguments.part != "continual":
            result["adjustment"] = adjustment(arguments, device)
        if arguments.part != "adjustment":
            result["continual"] = continual(arguments, device)
    print(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
