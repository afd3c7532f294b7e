"""Words as points: where a model puts translations, synonyms, and a text beside its augmented self.

The pictures of Ding et al. (COLING 2022): words of parallel sentences (their Figure 3), synonyms in the embedding
layer (Figure 4), x and xᵃ at the output (Figure 5). t-SNE shows neighbourhoods and no distances: `pull_together` says
in one number, before any projection, how much closer linked words are than others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.data.examples import Spans
from crosslift.data.segment import segment_all
from crosslift.data.words import pool_words, token_spans, word_maps
from crosslift.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerBase

    from crosslift.align import AlignedBitext

Floats = NDArray[np.float32]
FORMATS = (".svg", ".png", ".html", ".json")
SHORT, LONG = 4, 12
"""Words of a sentence that a picture shows: fewer say little, more fill it with one sentence."""


@dataclass(frozen=True)
class WordPoints:
    """Words with one vector each.

    Attributes:
        words: The words.
        vectors: (words, width).
        groups: What each word belongs to: a language, or `x` and `xᵃ`; a colour in the picture.
        links: (words,) words with the same number belong together (a word and its synonym); -1 = none.
    """

    words: Sequence[str]
    vectors: Floats
    groups: Sequence[str]
    links: NDArray[np.int64]

    def __add__(self, other: WordPoints) -> WordPoints:
        return WordPoints(
            [*self.words, *other.words],
            np.concatenate([self.vectors, other.vectors]),
            [*self.groups, *other.groups],
            np.concatenate([self.links, other.links]),
        )

    def take(self, rows: NDArray[np.integer]) -> WordPoints:
        """Return these words in this order."""
        return WordPoints(
            [self.words[i] for i in rows], self.vectors[rows], [self.groups[i] for i in rows], self.links[rows]
        )


def words_of(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    group: str,
    *,
    language: str = "en",
    layer: int = -1,
    spans: Sequence[Spans] | None = None,
    linked: bool = False,
) -> WordPoints:
    """Return the words of some texts as a model sees them; a word is the mean of its pieces.

    Args:
        model: A Hugging Face encoder or task model.
        tokenizer: Its tokenizer.
        texts: A few texts; they go through the model together.
        group: What the words are called in the picture.
        language: How the texts are cut into words.
        layer: 0 = embedding layer, -1 = the model's output.
        spans: The words, where they are known.
        linked: Number the words, so that the same call on xᵃ links word i to word i.
    """
    words = list(spans) if spans is not None else segment_all(texts, language)
    encoding = tokenizer(list(texts), truncation=True, return_offsets_mapping=True)
    maps = word_maps(token_spans(encoding, tokenizer), words)
    first, stop = (torch.from_numpy(side) for side in maps.pad(np.arange(len(texts))))
    names = ("input_ids", "attention_mask")
    inputs = tokenizer.pad({name: encoding[name] for name in names}, return_tensors="pt")
    plain: Any = getattr(model, "base_model", model)
    device = next(plain.parameters()).device
    plain.eval()
    with torch.no_grad():
        states = plain(**{name: inputs[name].to(device) for name in names}, output_hidden_states=True).hidden_states
    if not -len(states) <= layer < len(states):
        raise BadInput(f"The model has {len(states) - 1} layers; there is no layer {layer}.")
    vectors = pool_words(states[layer].float().cpu(), first, stop)
    there = first >= 0
    cut = [text[a:b] for text, part in zip(texts, words, strict=True) for a, b in part.tolist()]
    kept = maps.first >= 0
    numbers = np.arange(len(cut)) if linked else np.full(len(cut), -1)
    found = [word for word, keep in zip(cut, kept.tolist(), strict=True) if keep]
    return WordPoints(found, vectors[there].numpy(), [group] * len(found), numbers[kept])


def translated_words(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, aligned: AlignedBitext, count: int = 60
) -> WordPoints:
    """Return the words of a few sentence pairs, without punctuation, each linked to the word that translates it.

    The same pairs for every model, so that pictures of several can be laid side by side.

    Args:
        model: A Hugging Face encoder or task model.
        tokenizer: Its tokenizer.
        aligned: Sentence pairs with their word links.
        count: At most so many words of each side.
    """
    sizes = np.array([[len(s), len(t)] for s, t in zip(aligned.source, aligned.target, strict=True)]).reshape(-1, 2)
    linked = np.diff(aligned.alignment.starts) > 0
    fit = np.flatnonzero(linked & (sizes.min(1) >= SHORT) & (sizes.max(1) <= LONG))
    mixed = np.random.default_rng(0).permutation(fit)
    chosen = aligned.select(np.sort(mixed[np.cumsum(sizes[mixed].max(1)) <= count]))
    if not len(chosen):
        raise BadInput(f"No sentence pair of {SHORT} to {LONG} words with links.", "Give more bitext.")
    bitext, found = chosen.bitext, []
    pair = chosen.alignment.pairs()
    # A word has one link in a picture: that of the first pair of words in which both are new.
    ends = [
        np.cumsum([0, *map(len, spans)])[pair] + words
        for spans, words in ((chosen.source, chosen.alignment.source), (chosen.target, chosen.alignment.target))
    ]
    new = np.logical_and(*(np.isin(np.arange(len(end)), np.unique(end, return_index=True)[1]) for end in ends))
    sides = ((bitext.texts, bitext.language, chosen.source), (bitext.pairs or (), bitext.pair_language, chosen.target))
    for (texts, language, spans), end in zip(sides, ends, strict=True):
        points = words_of(model, tokenizer, list(texts), str(language), spans=spans, linked=True)
        points = points.take(np.flatnonzero([any(map(str.isalnum, word)) for word in points.words]))
        links = np.full(sum(map(len, spans)), -1)
        links[end[new]] = np.flatnonzero(new)
        found.append(WordPoints(points.words, points.vectors, points.groups, links[points.links]))
    return found[0] + found[1]


def replaced_words(x: WordPoints, xa: WordPoints, count: int = 60) -> WordPoints:
    """Return the first different words of x that xᵃ has another word for, and those words after them.

    Args:
        x: Words, numbered by `linked=True`.
        xa: The same texts with synonyms, numbered alike.
        count: At most so many words of each side.
    """
    _, left, right = np.intersect1d(x.links, xa.links, return_indices=True)
    there = [i for i, j in enumerate(zip(left, right, strict=True)) if x.words[j[0]] != xa.words[j[1]]]
    _, first = np.unique([x.words[left[i]] for i in there], return_index=True)
    kept = np.array(there, dtype=np.int64)[np.sort(first)][:count]
    return x.take(left[kept]) + xa.take(right[kept])


def pull_together(points: WordPoints) -> float:
    """Return the mean cosine of linked words minus that of all pairs: 0 = linked words are no closer than others."""
    unit = points.vectors / np.linalg.norm(points.vectors, axis=1, keepdims=True).clip(min=1e-12)
    cosines = unit @ unit.T
    upper = np.triu(np.ones_like(cosines, dtype=bool), 1)
    linked = upper & (points.links[:, None] == points.links) & (points.links[:, None] >= 0)
    if not linked.any():
        raise BadInput("No words of the picture are linked.")
    return float(cosines[linked].mean() - cosines[upper].mean())


def flat(points: WordPoints, seed: int = 0) -> NDArray[np.float64]:
    """Put words into the plane by t-SNE (cosine distances, PCA start): (words, 2)."""
    from sklearn.manifold import TSNE

    count = len(points.words)
    if count < 4:
        raise BadInput(f"{count} words make no picture.", "Give more texts.")
    # Perplexity is the number of neighbours that count; the usual 30 is too many for a few sentences.
    tsne = TSNE(perplexity=min(30.0, (count - 1) / 3), metric="cosine", init="pca", random_state=seed)
    return np.asarray(tsne.fit_transform(points.vectors), dtype=np.float64)


def placed(points: WordPoints, seed: int = 0) -> dict[str, list[Any]]:
    """Return words with their places in the plane as plain data: words, groups, links, x and y, two decimals."""
    places = flat(points, seed).round(2)
    return {
        "words": list(points.words),
        "groups": list(points.groups),
        "links": points.links.tolist(),
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
    }


def draw(panels: Mapping[str, WordPoints], path: str | Path, title: str = "", seed: int = 0) -> None:
    """Draw panels side by side: a dot and its word, a colour per group, a line between linked words.

    Args:
        panels: Title of a panel -> its words.
        path: Where to: .svg, .png, .html or .json (Vega-Lite).
        title: Of the whole picture.
        seed: Another seed, another projection.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise BadInput(f"{path}: pictures are written as {', '.join(FORMATS)}.")
    try:
        import altair
        import vl_convert  # noqa: F401  what altair saves pictures with
    except ImportError:
        raise MissingExtra("altair with vl-convert, which draws pictures,", "report") from None
    charts = [_panel(altair, name, points, flat(points, seed)) for name, points in panels.items()]
    chart = altair.hconcat(*charts).resolve_scale(color="shared").properties(title=title)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.save(str(path), **({"ppi": 150} if path.suffix == ".png" else {}))


def _panel(altair: Any, title: str, points: WordPoints, places: NDArray[np.float64]) -> Any:  # noqa: ANN401
    rows = [
        {"word": word, "group": group, "link": int(link), "x": float(x), "y": float(y)}
        for word, group, link, (x, y) in zip(points.words, points.groups, points.links, places, strict=True)
    ]
    both = {"x": altair.X("x:Q", axis=None), "y": altair.Y("y:Q", axis=None)}
    base = altair.Chart(altair.Data(values=rows), width=380, height=340)
    groups = list(dict.fromkeys(points.groups))
    colour = altair.Color(
        "group:N", title=None, scale=altair.Scale(domain=groups, range=["#d1603d", "#0b7a75", "#4a4e9a"])
    )
    layers = [
        base.mark_circle(size=36).encode(**both, color=colour, tooltip=["word:N", "group:N"]),
        base.mark_text(dy=-7, fontSize=9).encode(**both, text="word:N", color=colour),
    ]
    if (points.links >= 0).any():
        lines = base.transform_filter("datum.link >= 0").mark_line(color="#bbb", strokeWidth=1)
        layers.insert(0, lines.encode(**both, detail="link:N"))
    return altair.layer(*layers).properties(title=title)
