"""How good is a choice that reads no target label? First part: candidates, and what they say about text.

    CROSSLIFT_DATA=DATA python benchmarks/experiments/selection/run.py --out FOLDER [--sets sib200] [--seeds 1,2,3]
    python benchmarks/experiments/selection/table.py FOLDER --write benchmarks/results/selection.json

Every set is learnt in English with every candidate and seed. Of each candidate FOLDER/SET/CANDIDATE.SEED.npz keeps the
probabilities it gives to the labels of English dev data, to text of the task in all languages (translations of each
other, labels not read), to general sentence pairs, to the embedded corpus, and which test examples come out right.
What is there already is not done again. `--igap de,ar` measures random-label IGAP of the candidates on general pairs of
those languages (FOLDER/igap.json), as `crosslift transfer --igap` does. `--dry` runs two steps of everything.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import crosslift as xl
from crosslift.data import load
from crosslift.data.bitext import read_bitext
from crosslift.data.examples import Examples
from crosslift.data.files import read_lines
from crosslift.data.storage import write_json
from crosslift.measure.igap import igaps
from crosslift.models.load import load_model, load_tokenizer, model_labels
from crosslift.runs.evaluate import predict_examples
from crosslift.runs.igap import igap
from crosslift.runs.predictions import make_task
from crosslift.runs.transfer_igap import SENTENCES
from crosslift.runs.transfer_igap import SETTINGS as SHORT

LANGUAGES = ("de", "ru", "ar", "hi", "sw", "th")
SETS: dict[str, dict[str, Any]] = {
    "demo-intent": {"limit": 400, "epochs": 4},
    "sib200": {"limit": 350, "epochs": 5},
    "massive-intent": {"limit": 1000, "epochs": 3},
}
CANDIDATES = ("finetune", "ear", "robust", "adjust")
DEV, TEST, TEXT, PAIRS, ADJUSTING = 200, 100, 40, 40, 400


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="mini-x")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--bitext", type=Path, help="Folder of en-LANGUAGE.tsv[.xz]; default: that of the catalog.")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--candidates", default=",".join(CANDIDATES))
    parser.add_argument("--igap", default="", help="Languages; measured once, as it knows nothing of the task.")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    pairs = {language: sentence_pairs(language, options.bitext) for language in LANGUAGES}
    for seed in map(int, options.seeds.split(",")):
        for name in options.sets.split(","):
            for candidate in filter(None, options.candidates.split(",")):
                file = options.out / name / f"{candidate}.{seed}.npz"
                if file.exists():
                    continue
                began = time.process_time()
                found = one(name, candidate, seed, pairs, options)
                file.parent.mkdir(parents=True, exist_ok=True)
                np.savez_compressed(file, **found)  # type: ignore[arg-type]
                right = float(np.mean([found[f"test.{x}"].mean() for x in LANGUAGES]))
                dev = (found["dev.probabilities"].argmax(1) == found["dev.gold"]).mean()
                print(f"{name} {candidate} {seed}: dev {100 * dev:.1f}, targets {100 * right:.1f}, "
                      f"{time.process_time() - began:.0f} s", flush=True)  # fmt: skip

    if options.igap:
        write_json(options.out / "igap.json", gaps(options.igap.split(","), pairs, options))


def gaps(languages: list[str], pairs: Mapping[str, Examples], options: argparse.Namespace) -> dict[str, object]:
    """Return candidate -> language -> random-label IGAP in points; `None` where the labels were not learnt."""
    adjusted = str(options.out / "runs" / "adjusted.1" / "model")
    ways = {"finetune": (options.model, "finetune"), "ear": (options.model, "ear")}
    ways |= {"robust": (options.model, "gaussian"), "adjust": (adjusted, "finetune")}
    found: dict[str, object] = {}
    for candidate, (model, method) in ways.items():
        one: dict[str, float | None] = {}
        for language in languages:
            some = pairs[language].select(range(SENTENCES))
            source = replace(some, kind="classification", pairs=None, pair_language=None, parallel_ids=some.ids)
            sides = {"en": source, language: replace(source, texts=list(some.pairs or ()), language=language)}
            measured = igap(model, sides, methods=method, labels="random", seeds=[1], out=options.out / "igap", **SHORT)
            (errors,) = measured.systems.values()
            expected = igaps(errors, measured.bands[0])[language].expected
            one[language] = None if expected is None else round(expected.mean, 2)
        found[candidate] = one
        print(f"igap {candidate}: {one}", flush=True)
    return found


def sentence_pairs(language: str, folder: Path | None) -> Examples:
    """Return general pairs: of the catalog's bitext, those that do not come from a task's training data."""
    file = next((folder or Path(os.environ["CROSSLIFT_DATA"]) / "bitext").glob(f"en-{language}.tsv*"))
    found = read_bitext(file, language="en", pair_language=language)
    origin = [line.split("\t")[2:3] for line in read_lines(file)]
    rows = [row for row, id_ in enumerate(found.ids) if origin[int(id_) - 1] != ["massive-train"]]
    return found.select(rows)


def one(
    name: str, candidate: str, seed: int, pairs: Mapping[str, Examples], options: argparse.Namespace
) -> dict[str, NDArray[Any]]:
    """Learn a set with a candidate, and return what it says."""
    runs = options.out / "runs"
    settings: dict[str, Any] = {"learning_rate": options.rate, "evaluations": 1, **SETS[name]}
    if options.dry:
        settings |= {"steps": 2}
    model = options.model
    if candidate == "adjust":
        some = {language: found.select(range(PAIRS, PAIRS + ADJUSTING)) for language, found in pairs.items()
                if len(found) >= PAIRS + ADJUSTING}  # fmt: skip
        length = {"steps": 2} if options.dry else {}
        model = str(xl.adjust(bitext=some, model=model, out=runs / f"adjusted.{seed}", seed=seed, **length).model)
    method = "finetune" if candidate == "adjust" else candidate
    extra = {"variant": "gaussian"} if candidate == "robust" else {}
    out = runs / name / f"{candidate}.{seed}"
    dev = load(name, language="en", split="dev").take(DEV)
    run = xl.fit(method, model=model, data=name, dev=dev, out=out, seeds=[seed], **extra, **settings)
    labels = list(model_labels(run.model))
    kept = {"labels": np.array(labels)}
    network, tokenizer = load_model(run.model, make_task("classification", labels)), load_tokenizer(run.model)
    length = min(128, int(tokenizer.model_max_length))
    task = make_task("classification", labels, max_length=length)

    def says(examples: Examples) -> NDArray[np.float32]:
        found = predict_examples(network, tokenizer, task, examples)
        rows = [[p["probabilities"].get(label, 0.0) for label in labels] for p in found]
        return np.array(rows, dtype=np.float32)

    kept["dev.probabilities"] = says(dev)
    kept["dev.gold"] = np.array([labels.index(str(x)) for x in dev.labels or ()])
    chosen = dev.take(TEXT)
    shared = set(chosen.parallel_ids or chosen.ids)
    for language in ("en", *LANGUAGES):
        text = load(name, language=language, split="dev").unlabelled()
        rows = {key: row for row, key in enumerate(text.parallel_ids or text.ids) if key in shared}
        kept[f"text.{language}"] = says(text.select([rows[key] for key in sorted(shared & rows.keys())]))
        test = load(name, language=language, split="test").take(TEST)
        said = says(test).argmax(1)
        kept[f"test.{language}"] = np.array(
            [labels[i] == gold for i, gold in zip(said, test.labels or (), strict=True)]
        )
        if name != "demo-intent":
            kept[f"embedded.{language}"] = says(
                load("demo-intent", language=language, split="dev").take(TEXT).unlabelled()
            )
    for language, found in pairs.items():
        for side, texts, code in (("source", found.texts, "en"), ("target", found.pairs or (), language)):
            rows = list(texts)[:PAIRS]
            some = found.select(range(len(rows)))
            blank = replace(some, kind="classification", language=code, texts=rows, pairs=None, pair_language=None)
            kept[f"pairs.{language}.{side}"] = says(blank)
    return kept


if __name__ == "__main__":
    main()
