"""Adjust an encoder with sentence pairs: bitext and a model in, a Hugging Face encoder out; no labels are read."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.align import align_words
from crosslift.align.aligned import check_directions
from crosslift.align.encoded_pairs import EncodedPairs, encode_pairs, join_pairs, pieces_as_words
from crosslift.align.pharaoh import SUFFIXES, write_pharaoh
from crosslift.data.bitext import read_bitext
from crosslift.data.bitext_filter import BitextFilter, check_scripts, filter_bitext
from crosslift.data.draft import UNKNOWN_LANGUAGE
from crosslift.data.examples import Examples
from crosslift.errors import BadInput
from crosslift.methods.adjust import Adjust, Settings, word_vectors
from crosslift.models.frozen import (
    FrozenCache,
    FrozenRows,
    cache_folder,
    text_keys,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from crosslift.models.load import load_encoder, load_tokenizer
from crosslift.runs.deliver import save_model
from crosslift.runs.folder import RunFolder
from crosslift.runs.machine import autocast_for, describe, precision_for
from crosslift.runs.plan import Plan
from crosslift.runs.progress import Silent, Watch
from crosslift.runs.replay import Batch
from crosslift.runs.settings import Execution, Optimisation, sort_settings
from crosslift.runs.train import make_accelerator, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from crosslift.align import AlignedBitext

File = str | Path | Sequence[str | Path]
Bitexts = Mapping[str, File | Examples]
"""Target language -> a file of pairs, two files side by side, or examples; the source language comes first."""


@dataclass(frozen=True)
class Pairing:
    """How sentence pairs become pairs of words."""

    aligner: str = field(
        default="statistical",
        metadata={"help": "statistical, eflomal, a Pharaoh file, a trained model, or an encoder (folder or name)."},
    )
    symmetrise: str = field(
        default="intersection", metadata={"help": "intersection, grow-diag-final-and, union, forward or backward."}
    )
    cut: Literal["segment", "spaces"] = field(
        default="segment", metadata={"help": "Words by language, or (for external aligners) at spaces."}
    )
    keep_identical: bool = field(default=False, metadata={"help": "Keep links between equal strings."})
    unfiltered: bool = field(
        default=False, metadata={"help": "Leave out the filters of the bitext (length, script of a pair, …)."}
    )
    max_words: int = field(default=64, metadata={"help": "Pairs with more words on a side are left out."})
    pair_length: int = field(default=128, metadata={"help": "Longer sentences are cut, in tokens."})
    pairs: int | None = field(
        default=None, metadata={"help": "Use so many pairs of each language, drawn after all filters."}
    )

    def __post_init__(self) -> None:
        for name in ("max_words", "pair_length", "pairs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"--{name.replace('_', '-')} must be at least 1, not {value}.")


@dataclass(frozen=True)
class AdjustOptimisation(Optimisation):
    """How the weights move in adjustment: the released code's values."""

    learning_rate: float = field(default=5e-5, metadata={"help": "Peak learning rate."})
    epochs: float = field(default=1.0, metadata={"help": "Passes over the pairs."})
    schedule: Literal["linear", "cosine", "constant"] = field(
        default="constant", metadata={"help": "How the rate falls after warm-up."}
    )
    clip: float = field(default=0.0, metadata={"help": "Largest gradient norm; 0 = no clipping."})
    beta2: float = field(default=0.98, metadata={"help": "Second-moment decay of AdamW."})


SETTINGS = (Settings, Pairing, AdjustOptimisation, Execution)
"""Dataclasses whose fields `adjust` takes by name."""


@dataclass(frozen=True)
class Adjusted:
    """A finished adjustment.

    Attributes:
        model: Hugging Face folder of the encoder, for `--model` of any other method.
        summary: Pairs, links, what was left out, pull and anchor before and after, cost.
    """

    model: Path
    summary: dict[str, object]


def adjust(
    *,
    bitext: Bitexts,
    model: str | Path,
    out: str | Path,
    source: str = "en",
    seed: int = 1,
    overwrite: bool = False,
    watch: Watch | None = None,
    **settings: object,
) -> Adjusted:
    """Pull the vectors of translated words together; started again with the same arguments, it goes on.

    Args:
        bitext: Target language -> sentence pairs, source language first: a file (`source TAB target`), two files with
            one sentence a line each, or examples of kind `bitext`.
        model: Encoder by folder, embedded name or hub id.
        out: Run folder; the encoder is in its `model/`.
        source: Language of the first side.
        seed: Fixes the drawn pairs, batches and dropout.
        overwrite: Replace a run that is there already.
        watch: Who is told about progress.
        settings: Anything of `Settings`, `Pairing`, `AdjustOptimisation` and `Execution`, by name.
    """
    watch = watch or Silent()
    kept = sort_settings(SETTINGS, settings)
    own, pairing = Settings(**kept[0]), Pairing(**kept[1])
    optimisation, execution = AdjustOptimisation(**kept[2]), Execution(**kept[3])
    sets = read_bitexts(bitext, source, pairing)
    config: dict[str, object] = {
        "method": "adjust",
        "model": str(model),
        "bitext": {language: found.name for language, found in sets.items()},
        "source": source,
        "seed": seed,
        "settings": asdict(own),
        "pairing": asdict(pairing),
        "optimisation": asdict(optimisation),
        "fingerprint": fingerprint(sets, pairing.aligner),
    }
    accelerator = make_accelerator(execution)
    folder = RunFolder(out)
    if accelerator.is_main_process:
        folder = RunFolder.start(out, config, overwrite=overwrite)
    accelerator.wait_for_everyone()
    if folder.done:
        watch.say(f"{folder.path} is done already.")
        return Adjusted(folder.model, folder.summary)
    with ExitStack() as held:
        if accelerator.is_main_process:
            held.enter_context(folder.locked())
        else:
            watch = Silent()
        torch.manual_seed(seed)  # a pooler that the folder lacks is drawn
        tokenizer, encoder = load_tokenizer(model), load_encoder(model).to(accelerator.device)
        pairs = make_pairs(sets, tokenizer, own, pairing, seed)
        for line in describe_pairs(pairs):
            watch.say(line)
            folder.note(line)
        anchors = anchor_rows(encoder, tokenizer, pairs, own, execution)
        method = Adjust(own, pairs, anchors, int(tokenizer.pad_token_id))
        plan = AdjustPlan(method, optimisation, execution.max_tokens, seed)
        watch.say(f"plan      {plan.steps:,} steps of {plan.batch_size} pairs, on {accelerator.device.type}")
        before = distances(method, encoder, execution)
        trained = train(
            encoder,
            plan,
            folder,
            optimisation,
            execution,
            seed=seed,
            accelerator=accelerator,
            watch=watch,
            label="adjust",
        )
        summary: dict[str, object] = {
            "pairs": dict(pairs.languages),
            "links": len(pairs.links.source),
            "left_out": dict(pairs.skipped),
            "steps": plan.steps,
            "seconds": round(trained.seconds, 3),
            "before": before,
            "after": distances(method, encoder, execution),
            "machine": describe(),
        }
        if accelerator.is_main_process:
            encoder.eval()
            save_model(encoder, tokenizer, folder.model)
            folder.finish(summary)
        accelerator.wait_for_everyone()
        return Adjusted(folder.model, summary)


class AdjustPlan(Plan):
    """Batches of pairs; the pull is weighed by links, the anchor by source words."""

    method: Adjust

    def batches(self, step: int, rank: int, world: int) -> Iterator[tuple[Batch, float]]:
        """Return this process's micro-batches with their share of the step's links."""
        words = int(self.method.words[self.rows(step)].sum())
        for batch, share in super().batches(step, rank, world):
            # The loop weighs the whole loss by `share`; the anchor's own share is another.
            own = int((batch["word_first"].chunk(2)[0] >= 0).sum())
            scale = own / words / share if share else 0.0
            yield {**batch, "anchor_scale": torch.tensor(scale)}, share

    def loss(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return pull and anchor."""
        terms = self.method.loss(model, batch)
        return {"pull": terms["pull"], "anchor": terms["anchor"] * batch["anchor_scale"]}


def read_bitexts(bitext: Bitexts, source: str, pairing: Pairing) -> dict[str, Examples]:
    """Read the sentence pairs of every language; unequal files, broken lines and wrong languages are refused here."""
    if not bitext:
        raise BadInput("There are no sentence pairs.", "Name them with --bitext LANGUAGE=FILE.")
    if len(bitext) > 1 and is_links_file(pairing.aligner):
        raise BadInput("One file of links belongs to one bitext.", "Adjust with one language, or without --aligner.")
    check_directions(pairing.aligner, pairing.symmetrise)
    found = {}
    for language, given in bitext.items():
        if isinstance(given, Examples):
            if given.kind != "bitext":
                raise BadInput(f"{given.name or 'These examples'}: {given.kind} data, not sentence pairs.")
            found[language] = replace(given, pair_language=language)
        else:
            # A translation memory says itself which its other language is.
            other = None if language == UNKNOWN_LANGUAGE else language
            found[language] = read_bitext(given, language=source, pair_language=other)
        check_scripts(found[language])
    return found


def make_pairs(
    sets: Mapping[str, Examples],
    tokenizer: PreTrainedTokenizerBase,
    settings: Settings,
    pairing: Pairing,
    seed: int,
) -> EncodedPairs:
    """Align every bitext by itself, keep the links that can be used, and draw the pairs that were asked for."""
    parts = []
    for bitext in sets.values():
        links_given = is_links_file(pairing.aligner)
        if not (links_given or pairing.unfiltered):
            bitext = filter_bitext(bitext, BitextFilter(max_words=pairing.max_words))
        pieces = settings.pooling == "subwords"
        if pieces and pairing.aligner not in ("statistical", "eflomal"):
            raise BadInput(
                f"With --pooling subwords the pieces are aligned, and {pairing.aligner} links words.", "Drop --aligner."
            )
        aligned = _aligned(
            pieces_as_words(bitext, tokenizer, pairing.pair_length) if pieces else bitext,
            "spaces" if pieces else pairing.cut,
            pairing,
        )
        found = encode_pairs(
            aligned,
            tokenizer,
            pieces_of=bitext if pieces else None,
            linked=settings.linked,
            keep_identical=pairing.keep_identical,
            max_words=pairing.max_words,
            max_length=min(pairing.pair_length, tokenizer.model_max_length),
        )
        parts.append(drawn(found, pairing.pairs, seed))
    return join_pairs(parts)


def _aligned(bitext: Examples, words: str, pairing: Pairing) -> AlignedBitext:
    """Align one bitext; what is drawn at random is kept, for a run that goes on and for its other processes."""
    align = partial(align_words, bitext, words=words)
    if pairing.aligner != "eflomal":
        return align(aligner=pairing.aligner, symmetrise=pairing.symmetrise)
    name = f"{fingerprint({bitext.pair_language or 'und': bitext}, '')}-{words}-{pairing.symmetrise}"
    kept = cache_folder().parent / "links" / f"{name}.links"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            write_pharaoh(kept, align(aligner="eflomal", symmetrise=pairing.symmetrise).alignment)
    return align(aligner=kept)


def drawn(pairs: EncodedPairs, count: int | None, seed: int) -> EncodedPairs:
    """Return `count` pairs drawn without replacement, in their order; fewer than asked for is an error."""
    if count is None or count == len(pairs):
        return pairs
    if count > len(pairs):
        language = next(iter(pairs.languages))
        raise BadInput(
            f"{language}: --pairs {count:,}, but only {len(pairs):,} pairs can be used.", "Ask for fewer, or for all."
        )
    rows = np.random.default_rng([seed, count]).choice(len(pairs), size=count, replace=False)
    return pairs.select(np.sort(rows))


def is_links_file(aligner: str) -> bool:
    """Whether an aligner is a file of links, line by line; a saved statistical aligner is another kind of file."""
    path = Path(aligner)
    return path.suffix in SUFFIXES or (path.is_file() and path.suffix != ".safetensors")


def anchor_rows(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: EncodedPairs,
    settings: Settings,
    execution: Execution,
) -> FrozenRows:
    """Return f⁰ of every source word, computed once for all runs that share encoder, pairs and settings."""
    device = next(encoder.parameters()).device
    pad_id = int(tokenizer.pad_token_id)
    maps, side = pairs.source.words, pairs.source
    spans = [np.stack([maps[row].first, maps[row].stop]) for row in range(len(pairs))]
    precision = precision_for(execution.precision, device.type == "cpu")
    was_training = encoder.training

    def compute(rows: NDArray[np.int64]) -> object:
        with autocast_for(execution.precision, device):
            return word_vectors(encoder, side, rows, pad_id, layer=settings.layer, how=settings.word)

    found = FrozenCache().rows(
        text_keys(pairs.texts, spans),
        compute,  # type: ignore[arg-type]
        kind=f"words-{settings.word}-layer-{settings.layer or 'last'}-{precision}",
        model=encoder_fingerprint(encoder),
        tokenizer=tokenizer_fingerprint(tokenizer),
        width=int(encoder.config.hidden_size),
        dtype=np.float16,
    )
    encoder.train(was_training)
    return found


def encoder_fingerprint(encoder: PreTrainedModel) -> str:
    """Return the digest of an encoder without its pooler, which is drawn at random where a folder lacks it."""
    pooler = getattr(encoder, "pooler", None)
    if pooler is not None:
        encoder.pooler = None
    try:
        return weights_fingerprint(encoder)
    finally:
        if pooler is not None:
            encoder.pooler = pooler


@torch.no_grad()
def distances(method: Adjust, encoder: PreTrainedModel, execution: Execution, most: int = 256) -> dict[str, float]:
    """Return pull and anchor without dropout, over the first pairs of a shuffled order."""
    device = next(encoder.parameters()).device
    rows = np.sort(np.random.default_rng(0).permutation(len(method.lengths))[:most])
    encoder.eval()
    found = {"pull": 0.0, "anchor": 0.0}
    weights = {"pull": method.units(rows), "anchor": method.words[rows]}
    for start in range(0, len(rows), 32):
        part = slice(start, start + 32)
        batch = {name: tensor.to(device) for name, tensor in method.batch(rows[part], 0).items()}
        with autocast_for(execution.precision, device):
            terms = method.loss(encoder, batch)
        for name, weight in weights.items():
            found[name] += float(terms[name]) * float(weight[part].sum() / weight.sum())
    return {name: round(value, 6) for name, value in found.items()}


def describe_pairs(pairs: EncodedPairs) -> list[str]:
    """Return in words what there is to learn from, and what was left out."""
    counts = ", ".join(f"{count:,} {language}" for language, count in pairs.languages.items())
    lines = [f"pairs     {counts}; {len(pairs.links.source):,} links"]
    return lines + [f"left out  {count:,} {reason}" for reason, count in pairs.skipped.items()]


def fingerprint(sets: Mapping[str, Examples], aligner: str) -> str:
    """Return a digest of sentence pairs and of a file that links them, so that a run never goes on with others."""
    digest = hashlib.blake2b(digest_size=12)
    for language, bitext in sets.items():
        for pair in zip(bitext.texts, bitext.pairs or (), strict=True):
            digest.update("\x1f".join((language, *pair)).encode())
    if Path(aligner).is_file():
        digest.update(Path(aligner).read_bytes())
    return digest.hexdigest()
