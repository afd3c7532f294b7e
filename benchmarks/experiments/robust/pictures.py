"""The pictures of the EAR paper on real data: Figures 3, 4 and 5.

    CROSSLIFT_DATA=… python benchmarks/experiments/robust/pictures.py --model mini-x --runs runs/pictures --out pictures

Trains `ear` and `rs-da` on MNLI into --runs, unless they lie there already, and writes
    figure-3.svg   words of XNLI sentences and of their translations at the output: EAR beside RS-DA
    figure-4.svg   synonyms in the embedding layer: untrained beside EAR
    figure-5.svg   a few training texts x and xᵃ at the output of EAR
    pictures.json  how much closer linked words are than others (cosine, before any projection)
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np

import crosslift as xl
from crosslift.data.augment import Source, SynonymSettings
from crosslift.data.synonyms import read_synonyms
from crosslift.measure.pictures import WordPoints, draw, pull_together, words_of

SYSTEMS = {"ear": ("ear", {}), "rs-da": ("robust", {"variant": "rs-da"})}


def synonym_pairs(texts: list[str], synonyms: dict[str, tuple[str, ...]], count: int) -> list[tuple[str, str]]:
    """Return the most frequent words of the texts that have a synonym which occurs there, too."""
    words = [word for text in texts for word in text.lower().split()]
    names, counts = np.unique(words, return_counts=True)
    often = dict(zip(names.tolist(), counts.tolist(), strict=True))
    found: list[tuple[str, str]] = []
    taken: set[str] = set()
    for word in sorted(often, key=lambda word: (-often[word], word)):
        other = next((o for o in synonyms.get(word, ()) if o in often and o not in taken), None)
        if other and word not in taken and len(word) > 3:
            found.append((word, other))
            taken |= {word, other}
        if len(found) == count:
            break
    return found


def linked(model: object, tokenizer: object, pairs: list[tuple[str, str]], layer: int) -> WordPoints:
    """Return words and synonyms, each as a text of its own."""
    first, second = ([pair[k] for pair in pairs] for k in (0, 1))
    return words_of(model, tokenizer, first, "word", layer=layer, linked=True) + words_of(  # type: ignore[arg-type]
        model,
        tokenizer,
        second,
        "synonym",
        layer=layer,
        linked=True,  # type: ignore[arg-type]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini-x")
    parser.add_argument("--runs", type=Path, default=Path("runs/pictures"))
    parser.add_argument("--language", default="ar", help="of the translations in Figure 3")
    parser.add_argument("--sentences", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=30, help="synonyms in Figure 4")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--epochs", type=float, default=1, help="the paper trains for one on XNLI")
    parser.add_argument("--steps", type=int, help="a dry run")
    parser.add_argument("--out", type=Path, default=Path("pictures"))
    arguments = parser.parse_args()
    file = str(Path(os.environ["CROSSLIFT_DATA"]) / "synonyms" / "counterfitted_neighbors.json.xz")
    models = {"untrained": (xl.load_encoder(arguments.model), xl.load_tokenizer(arguments.model))}
    for name, (method, options) in SYSTEMS.items():
        run = xl.fit(
            method, model=arguments.model, data="mnli", out=arguments.runs / name, synonyms=file, evaluations=1,
            select="last", epochs=arguments.epochs, steps=arguments.steps, learning_rate=arguments.rate, **options,
        )  # fmt: skip
        models[name] = (xl.load_encoder(run.model), xl.load_tokenizer(run.model))
    numbers: dict[str, dict[str, float]] = {}

    sides = [xl.load("xnli", language=x, split="test") for x in ("en", arguments.language)]
    rows = [i for i, text in enumerate(sides[0].texts) if 5 <= len(text.split()) <= 12][: 3 * arguments.sentences : 3]
    panels = {
        title: words_of(*models[name], [sides[0].texts[i] for i in rows], "en")
        + words_of(
            *models[name], [sides[1].texts[i] for i in rows], arguments.language, language=arguments.language
        )
        for title, name in (("EAR", "ear"), ("RS-DA", "rs-da"))
    }  # fmt: skip
    draw(panels, arguments.out / "figure-3.svg", "Words of parallel sentences at the output")

    train = xl.load("mnli", language="en", split="train")
    pairs = synonym_pairs(list(train.texts), read_synonyms(file), arguments.pairs)
    panels = {title: linked(*models[name], pairs, 0) for title, name in (("untrained", "untrained"), ("EAR", "ear"))}
    draw(panels, arguments.out / "figure-4.svg", "Synonyms in the embedding layer")
    numbers["figure 4"] = {title: round(pull_together(points), 4) for title, points in panels.items()}

    source = Source(SynonymSettings(synonyms=file), train)
    short = np.array([i for i, text in enumerate(train.texts) if 6 <= len(text.split()) <= 12][: arguments.sentences])
    drawn, spans = source.draw(short, 1, 0)
    texts = [train.texts[i] for i in short]
    x = words_of(*models["ear"], texts, "x", spans=[source.spans[0][i] for i in short], linked=True)
    xa = words_of(*models["ear"], list(drawn.texts), "xᵃ", spans=spans[0], linked=True)
    draw({"EAR": x + xa}, arguments.out / "figure-5.svg", "x and xᵃ at the output")
    numbers["figure 5"] = {"EAR": round(pull_together(x + xa), 4)}
    (arguments.out / "pictures.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
