"""How far apart translated words lie, and unrelated ones: does an encoder put the same meaning in the same place?

Related pairs are aligned words of parallel sentences; unrelated ones take the same source words with target words of
other sentences. For L2 distance and cosine similarity:

    AUC      P(a related pair is nearer than an unrelated one), ties count half; 100 = apart, 50 = no difference
    overlap  Σ_bins min(related, unrelated), of two histograms with equal bins; 0 = apart, 100 = the same

and the share of the squared distance that the largest dimensions carry, and sentence retrieval. Efimov et al. show the
histograms of an encoder before and after adjustment and fine-tuning (their Figures 1 and 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from crosslift.align.encoded_pairs import EncodedPairs, encode_pairs
from crosslift.errors import BadInput, MissingExtra
from crosslift.measure.retrieval import retrieval_accuracy, sentence_vectors
from crosslift.methods.adjust import Pooling, word_vectors
from crosslift.models.load import load_encoder, load_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from crosslift.align import AlignedBitext

Floats = NDArray[np.floating]
Vectors = tuple[Floats, Floats, Floats]
"""(samples, width) each: source words, their translations, unrelated target words."""

BINS = 50
DIMENSIONS = (1, 10, 100)


@dataclass(frozen=True)
class Separation:
    """Related against unrelated word pairs, by one distance.

    Attributes:
        auc: See above, in percent.
        overlap: See above, in percent.
        related: Mean of related pairs.
        unrelated: Mean of unrelated pairs.
        edges: (bins + 1,) edges of the histograms.
        related_share: (bins,) share of the related pairs in each bin.
        unrelated_share: (bins,) likewise.
    """

    auc: float
    overlap: float
    related: float
    unrelated: float
    edges: list[float]
    related_share: list[float]
    unrelated_share: list[float]


@dataclass(frozen=True)
class EncoderAlignment:
    """What one encoder's vectors say.

    Attributes:
        l2: Distances.
        cosine: Similarities.
        dimensions: Number of dimensions -> share of the squared distance of related pairs that the largest so many
            carry, in percent.
        retrieval: Sentences whose translation is their nearest neighbour, both directions, in percent.
        samples: Word pairs looked at.
        sentences: Sentence pairs looked at for retrieval.
    """

    l2: Separation
    cosine: Separation
    dimensions: dict[int, float]
    retrieval: float
    samples: int
    sentences: int


def separation(related: Floats, unrelated: Floats, *, nearer: Literal["low", "high"], bins: int = BINS) -> Separation:
    """Compare two samples of distances (`nearer="low"`) or similarities (`"high"`).

    Args:
        related: (n,) values of related pairs.
        unrelated: (m,) values of unrelated pairs.
        nearer: Which end means near.
        bins: Of the histograms, over the range of both samples.
    """
    sign = 1 if nearer == "low" else -1
    ordered = np.sort(sign * unrelated)
    below = np.searchsorted(ordered, sign * related, side="left")
    equal = np.searchsorted(ordered, sign * related, side="right") - below
    auc = 1 - (below + equal / 2).mean() / len(unrelated)
    edges = np.histogram_bin_edges(np.concatenate([related, unrelated]), bins)
    one, other = (np.histogram(values, edges)[0] / len(values) for values in (related, unrelated))
    return Separation(
        auc=round(float(100 * auc), 2),
        overlap=round(float(100 * np.minimum(one, other).sum()), 2),
        related=round(float(related.mean()), 4),
        unrelated=round(float(unrelated.mean()), 4),
        edges=[round(float(e), 5) for e in edges],
        related_share=[round(float(v), 5) for v in one],
        unrelated_share=[round(float(v), 5) for v in other],
    )


def dimension_shares(source: Floats, target: Floats, counts: tuple[int, ...] = DIMENSIONS) -> dict[int, float]:
    """Return the share of Σ (source − target)² that the largest dimensions carry, in percent.

    Args:
        source: (pairs, width).
        target: (pairs, width).
        counts: How many dimensions; more than the width means all.
    """
    by_dimension = np.sort(np.square(source - target).sum(0))[::-1]
    total = max(float(by_dimension.sum()), 1e-30)
    return {count: round(float(100 * by_dimension[:count].sum() / total), 2) for count in counts}


def sample_pairs(pairs: EncodedPairs, samples: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw links, and for each another link whose sentence pair is not the same: two arrays of link numbers."""
    pair = pairs.links.pairs()
    if pair.min(initial=0) == pair.max(initial=0):
        raise BadInput("Unrelated words come from other sentences, and here is only one pair.", "Give more bitext.")
    random = np.random.default_rng(seed)
    related = np.sort(random.choice(len(pair), size=min(samples, len(pair)), replace=False))
    # Links of one pair lie together: a step of at least their number leads to another pair.
    starts, count = pairs.links.starts, len(pair)
    own = starts[pair[related] + 1] - starts[pair[related]]
    step = random.integers(0, count - own)
    return related, (starts[pair[related] + 1] + step) % count


def sampled_vectors(
    encoder: PreTrainedModel,
    pairs: EncodedPairs,
    pad_id: int,
    *,
    samples: int = 5000,
    seed: int = 0,
    layer: int | None = None,
    how: Pooling = "mean",
) -> Vectors:
    """Return vectors of sampled words: source, translation, unrelated.

    Args:
        encoder: An encoder without head.
        pairs: Pairs tokenised for it, with links between words.
        pad_id: Its tokenizer's padding.
        samples: Word pairs to draw.
        seed: Draws them.
        layer: Counted from 1; `None`: the last one.
        how: How the pieces of a word become one vector.
    """
    related, other = sample_pairs(pairs, samples, seed)
    pair, links = pairs.links.pairs(), pairs.links
    rows = np.unique(pair[np.concatenate([related, other])])
    place = np.searchsorted(rows, pair)
    found = []
    for side, word in ((pairs.source, links.source), (pairs.target, links.target)):
        vectors = word_vectors(encoder, side, rows, pad_id, layer=layer, how=how)
        found.append((vectors.values, vectors.starts, word))
    (source, source_starts, s), (target, target_starts, t) = found
    return (
        source[source_starts[place[related]] + s[related]],
        target[target_starts[place[related]] + t[related]],
        target[target_starts[place[other]] + t[other]],
    )


def compare_vectors(vectors: Vectors, bins: int = BINS) -> tuple[Separation, Separation, dict[int, float]]:
    """Return the separation by L2 and by cosine, and the share of the largest dimensions."""
    source, target, unrelated = (part.astype(np.float64) for part in vectors)
    l2 = separation(
        np.linalg.norm(source - target, axis=1), np.linalg.norm(source - unrelated, axis=1), nearer="low", bins=bins
    )
    cosine = separation(_cosine(source, target), _cosine(source, unrelated), nearer="high", bins=bins)
    return l2, cosine, dimension_shares(source, target)


def _cosine(one: Floats, other: Floats) -> Floats:
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(1) / np.maximum(norms, 1e-12))


def measure_encoder(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    aligned: AlignedBitext,
    *,
    samples: int = 5000,
    sentences: int = 1000,
    seed: int = 0,
    layer: int | None = None,
    how: Pooling = "mean",
) -> EncoderAlignment:
    """Measure one encoder; arguments as in `sampled_vectors` and `measure_alignment`."""
    pairs = encode_pairs(
        aligned, tokenizer, linked="words", max_words=10**6, max_length=min(256, tokenizer.model_max_length)
    )
    pad_id = int(cast("int", tokenizer.pad_token_id))
    vectors = sampled_vectors(encoder, pairs, pad_id, samples=samples, seed=seed, layer=layer, how=how)
    l2, cosine, dimensions = compare_vectors(vectors)
    count = min(sentences, len(aligned))
    bitext = aligned.bitext
    last = -1 if layer is None else layer
    sides: list[torch.Tensor] = [
        sentence_vectors(encoder, tokenizer, list(texts)[:count])[last]
        for texts in (bitext.texts, cast("list[str]", bitext.pairs))
    ]
    return EncoderAlignment(l2, cosine, dimensions, round(retrieval_accuracy(*sides), 2), len(vectors[0]), count)


@dataclass(frozen=True)
class AlignmentReport:
    """Several encoders measured on the same word pairs.

    Attributes:
        encoders: Name -> what its vectors say.
        bitext: Where the word pairs come from.
        language: Language of the second side.
    """

    encoders: dict[str, EncoderAlignment]
    bitext: str
    language: str

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain data."""
        return asdict(self)

    def table(self) -> str:
        """Return one line per encoder, as text."""
        wide = max(len(name) for name in [*self.encoders, "encoder"])
        dimensions = "".join(f"{f'top {k}':>9}" for k in DIMENSIONS)
        lines = [
            f"{'encoder':<{wide}}   L2: related  unrelated    AUC  overlap   cosine: related  unrelated    AUC  overlap"
            f"{dimensions}  retrieval"
        ]
        for name, found in self.encoders.items():
            l2, cosine = found.l2, found.cosine
            shares = "".join(f"{share:>8.1f}%" for share in found.dimensions.values())
            lines.append(
                f"{name:<{wide}}   {l2.related:>11.2f}{l2.unrelated:>11.2f}{l2.auc:>7.1f}{l2.overlap:>9.1f}"
                f"   {cosine.related:>15.3f}{cosine.unrelated:>11.3f}{cosine.auc:>7.1f}{cosine.overlap:>9.1f}"
                f"{shares}{found.retrieval:>11.1f}"
            )
        return "\n".join(lines)

    def draw(self, path: str | Path) -> None:
        """Write the histograms as a picture (.png or .svg); needs the extra `report`."""
        path = Path(path)
        if path.suffix not in (".png", ".svg"):
            raise BadInput(f"{path.name}: pictures are .png or .svg.")
        try:
            import altair
            import vl_convert  # noqa: F401  what altair saves pictures with
        except ImportError:
            raise MissingExtra("altair with vl-convert, which draws pictures,", "report") from None
        path.parent.mkdir(parents=True, exist_ok=True)
        _chart(altair, self).save(str(path), **({"ppi": 150} if path.suffix == ".png" else {}))


def measure_alignment(
    models: Mapping[str, str | Path],
    aligned: AlignedBitext,
    *,
    samples: int = 5000,
    sentences: int = 1000,
    seed: int = 0,
    layer: int | None = None,
    how: Pooling = "mean",
    device: str | torch.device | None = None,
) -> AlignmentReport:
    """Measure several encoders, or the encoders inside task models, on the same word pairs.

    Args:
        models: Name (original, adjusted, …) -> model by folder, run, embedded name or hub id.
        aligned: Sentence pairs with their word links; best ones that no encoder was adjusted on.
        samples: Word pairs to draw.
        sentences: Sentence pairs for retrieval.
        seed: Draws the word pairs.
        layer: Counted from 1; `None`: the last one.
        how: How the pieces of a word become one vector.
        device: Default: a GPU where there is one.
    """
    import torch

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    options: dict[str, Any] = {"samples": samples, "sentences": sentences, "seed": seed, "layer": layer, "how": how}
    found = {
        name: measure_encoder(load_encoder(model).to(where), load_tokenizer(model), aligned, **options)
        for name, model in models.items()
    }
    return AlignmentReport(found, aligned.bitext.name, aligned.bitext.pair_language or "und")


def _chart(altair: Any, report: AlignmentReport) -> Any:  # noqa: ANN401  altair has no types here
    """Return one histogram per encoder and distance; related and unrelated pairs lie over each other."""
    colours = altair.Scale(domain=["related", "unrelated"], range=["#0b7a75", "#d1603d"])
    rows = []
    for measure, title in (("l2", "L2 distance"), ("cosine", "cosine similarity")):
        shown = [cast("Separation", getattr(found, measure)) for found in report.encoders.values()]
        ends = [min(s.edges[0] for s in shown), max(s.edges[-1] for s in shown)]
        charts = []
        for name, one in zip(report.encoders, shown, strict=True):
            values = [
                {"from": one.edges[i], "to": one.edges[i + 1], "share": share, "base": 0, "pairs": kind}
                for kind, shares in (("related", one.related_share), ("unrelated", one.unrelated_share))
                for i, share in enumerate(shares)
            ]
            charts.append(
                altair.Chart(altair.Data(values=values), width=170, height=120)
                .mark_bar(opacity=0.55)
                .encode(
                    x=altair.X("from:Q", title=title, scale=altair.Scale(domain=ends, nice=False)),
                    x2="to:Q",
                    y=altair.Y("share:Q", title="share of pairs", stack=None),
                    y2="base:Q",
                    color=altair.Color("pairs:N", scale=colours, title=None),
                )
                .properties(title={"text": name, "subtitle": f"AUC {one.auc:.1f}, overlap {one.overlap:.1f}"})
            )
        rows.append(altair.hconcat(*charts))
    return altair.vconcat(*rows, title=f"{report.bitext} ({report.language})")
