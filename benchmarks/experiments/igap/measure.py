"""Transferability of encoders: IGAP with random and with real labels, matrices, memorisation, ranking.

    python benchmarks/experiments/igap/measure.py --model mini-x=mini-x --model mini-x-mlm=FOLDER \
        --workers 8 --out benchmarks/results/igap.json

A job is one run (part, model, method, source, seed); jobs run in parallel processes and leave one small file each in
`--scratch`, so that a stopped experiment goes on. `--dry` shortens everything for a CPU. `tables.py` turns the result
into markdown. Needs CROSSLIFT_DATA.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import time
from pathlib import Path
from typing import Any

LANGUAGES = ["de", "es", "fr", "it", "pt", "ru", "bg", "el", "tr", "ar", "hi", "ur", "th", "vi", "zh", "ja", "sw"]
XNLI = ["ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"]
PAWSX = ["de", "en", "es", "fr", "ja", "ko", "zh"]
CURVE = [0.2, 0.175, 0.15, 0.125, 0.1, 0.075, 0.05, 0.025, 0.0]
NOISE = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]

RANDOM: dict[str, Any] = {"labels": "random", "epochs": 32, "errors": [0.0], "epsilon": 0.005, "every": 5}
PARTS: dict[str, dict[str, Any]] = {
    "random-ntrex": {"data": "ntrex", "split": "test", "targets": LANGUAGES, "limit": 997, **RANDOM},
    "random-flores": {"data": "sib200", "split": "train", "targets": LANGUAGES, **RANDOM},
    "sib200": {"data": "sib200", "split": "train", "targets": LANGUAGES, "held_out": "test", "epochs": 20, "every": 5},
    "xnli": {"data": "xnli", "split": "dev", "targets": XNLI, "held_out": "test", "epochs": 40, "every": 10},
    "pawsx": {"data": "pawsx", "split": "dev", "targets": PAWSX, "held_out": "test", "epochs": 60, "every": 10},
    "mnli": {"data": "xnli", "split": "dev", "targets": XNLI, "held_out": "test", "epochs": 5, "every": 50,
             "extra": "mnli", "errors": [0.03], "epsilon": 0.025},
    "memorisation": {"data": "sib200", "split": "train", "targets": LANGUAGES, "epochs": 40, "every": 5,
                     "errors": [0.0], "epsilon": 0.005, "noise": NOISE, "candidates": 10},
    "matrix-random": {"data": "ntrex", "split": "test", "sources": ["en", *LANGUAGES], "targets": ["en", *LANGUAGES],
                      "limit": 500, "candidates": 10, **RANDOM},
    "matrix-sib200": {"data": "sib200", "split": "train", "sources": ["en", *LANGUAGES], "held_out": "test",
                      "targets": ["en", *LANGUAGES], "epochs": 20, "every": 5, "errors": [0.0], "epsilon": 0.005,
                      "candidates": 10},
    "matrix-xnli": {"data": "xnli", "split": "dev", "sources": XNLI, "targets": XNLI, "held_out": "test", "epochs": 40,
                    "every": 10, "errors": [0.0], "epsilon": 0.001, "candidates": 10},
    "matrix-pawsx": {"data": "pawsx", "split": "dev", "sources": PAWSX, "targets": PAWSX, "held_out": "test",
                     "epochs": 60, "every": 10, "errors": [0.0], "epsilon": 0.001, "candidates": 10},
}  # fmt: skip
METHODS = {"xnli": ["finetune", "gaussian", "xtune"], "pawsx": ["finetune", "gaussian", "xtune"]}
"""Parts that also compare fine-tuning methods (with the first model alone)."""


def settings(part: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `crosslift.runs.igap.igap` for a part; a part without bands has the paper's figure 1."""
    from crosslift.measure.igap import Band

    found = dict(PARTS[part])
    found.setdefault("errors", [Band(0.0, 0.001), *(Band(error, 0.025) for error in CURVE)])
    found |= {"rates": arguments.rates, "max_tokens": 16384}
    if arguments.limit:
        found["limit"] = min(arguments.limit, found.get("limit", arguments.limit))
    if arguments.epochs:
        found["epochs"] = arguments.epochs
    if arguments.languages:
        wanted = arguments.languages.split(",")
        for name in ("sources", "targets"):
            if name in found:
                found[name] = [language for language in found[name] if language in wanted]
    if arguments.max_length:
        found["max_length"] = arguments.max_length
    return found


def run(part: str, model: str, method: str, source: str, seed: int, noise: float, arguments: argparse.Namespace) -> str:
    """Do one run; what is found stays in its file."""
    import torch

    from crosslift.data import load
    from crosslift.runs.igap import igap

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")  # errors are counted, not logits compared: TF32 will do on a GPU
    began = time.monotonic()
    found = settings(part, arguments) | {"sources": source, "methods": method, "seeds": [seed], "noise": noise}
    if "extra" in found:
        found["extra"] = load(found["extra"], language=source, split="train").take(arguments.limit or 10**9)
    result = igap(model, out=Path(arguments.scratch) / part, **found)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the other processes need it
    return f"{part} {Path(model).name} {method} {source} seed {seed} noise {noise:g}: {_since(began)} s\n{result}"


def _job(item: tuple[tuple[Any, ...], float]) -> str:
    job, end = item
    if time.monotonic() > end:  # one clock for all processes of a machine
        return ""
    try:
        return run(*job)
    except Exception as error:  # one run that fails must not end the others
        return f"{' '.join(map(str, job[:6]))}: {type(error).__name__}: {error}"


def collect(part: str, models: dict[str, str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Put the runs of a part together; all of them lie in files now."""
    from crosslift.data import load
    from crosslift.measure.igap_result import merge
    from crosslift.runs.igap import igap

    seeds = list(range(1, arguments.seeds + 1))
    found = settings(part, arguments) | {"seeds": seeds, "out": Path(arguments.scratch) / part}
    if "extra" in found:
        found["extra"] = load(found["extra"], language="en", split="train").take(arguments.limit or 10**9)
    noises = found.pop("noise", [0.0])
    if part.startswith("matrix"):
        tables = {}
        for name, folder in models.items():
            result = igap(folder, **found)
            whats = ("igap", "score", "gap") if "held_out" in found else ("igap",)
            tables[name] = {what: result.matrix(what).to_dict()["values"] for what in whats}
        return {"matrices": tables}
    if part == "memorisation":
        folder = next(iter(models.values()))
        return {"noise": {f"{noise:g}": igap(folder, noise=noise, **found).to_dict() for noise in noises}}
    by_model = merge([_named(igap(folder, **found), name) for name, folder in models.items()])
    content = {"models": by_model.to_dict(), "intervals": _intervals(by_model)}
    if part in METHODS:
        content["methods"] = igap(next(iter(models.values())), methods=METHODS[part], **found).to_dict()
    return content


def similarities(folder: str, languages: list[str], limit: int) -> dict[str, Any]:
    """Alignment of sentence vectors on NTREX: retrieval from English, and similarities of every direction."""
    import torch

    import crosslift as xl
    from crosslift.measure.ranking import best_layer
    from crosslift.measure.ranking import similarities as alike
    from crosslift.measure.retrieval import retrieval_accuracy, sentence_vectors
    from crosslift.runs.igap_data import parallel_sets

    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder, tokenizer = xl.load_encoder(folder).to(device), xl.load_tokenizer(folder)
    layer = best_layer(int(encoder.config.num_hidden_layers), None)
    sets = parallel_sets("ntrex", languages, "test", limit, labelled=False)
    vectors = {x: sentence_vectors(encoder, tokenizer, sets[x].texts, max_length=64)[layer] for x in sets}
    directions = {a: {b: alike(vectors[a], vectors[b]) for b in sets if b != a} for a in sets}
    retrieval = {x: retrieval_accuracy(vectors["en"], vectors[x]) for x in sets if x != "en"}
    return {"layer": layer, "retrieval": retrieval, "directions": directions}


def _named(result: Any, name: str) -> Any:  # noqa: ANN401  an IgapResult
    from dataclasses import replace

    (errors,) = result.systems.values()
    return replace(result, systems={name: replace(errors, system=name)})


def _intervals(result: Any) -> dict[str, Any]:  # noqa: ANN401  an IgapResult
    from crosslift.measure.igap import gap_resamples, interval

    band = result.bands[0]
    found = {}
    for name, errors in result.systems.items():
        drawn = gap_resamples(errors, band, result.candidates(band))
        found[name] = {target: interval(values) for target, values in drawn.items()}
    return found


def main() -> None:
    """Run what is missing, then collect every part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=lambda text: [float(x) for x in text.split(",")], default=[3e-4])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", default="runs/igap")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="at most so many items")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--languages", help="only these of each part")
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--runs", action="store_true", help="do the runs and leave collecting to another call")
    parser.add_argument("--collect", action="store_true", help="collect what was run, perhaps elsewhere")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no further run after so many")
    parser.add_argument("--dry", action="store_true", help="40 items, two targets, 2 epochs, 1 seed")
    arguments = parser.parse_args()
    if arguments.dry:
        arguments.limit, arguments.epochs, arguments.seeds, arguments.max_length = 40, 2.0, 1, 24
        arguments.languages = arguments.languages or "en,de,zh"
    models = dict(item.split("=", 1) for item in arguments.model)
    parts = arguments.parts.split(",")
    jobs = []
    for part in parts:
        sources = settings(part, arguments).get("sources", ["en"])
        noises = PARTS[part].get("noise", [0.0])
        for seed in range(1, arguments.seeds + 1):
            for number, folder in enumerate(models.values()):
                methods = METHODS.get(part, ["finetune"]) if number == 0 else ["finetune"]
                if part == "memorisation" and number:
                    continue
                jobs += [
                    (part, folder, m, s, seed, noise, arguments) for m in methods for s in sources for noise in noises
                ]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not arguments.collect:
        end = time.monotonic() + 60 * arguments.minutes
        with mp.get_context("spawn").Pool(arguments.workers) as pool:
            for said in pool.imap_unordered(_job, [(job, end) for job in jobs]):
                if said:
                    print(said, flush=True)
    if arguments.runs:
        return
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"parts": {}, "alignment": {}}
    results["settings"] = {"seeds": arguments.seeds, "rates": arguments.rates, "limit": arguments.limit}
    for part in parts:
        results["parts"][part] = collect(part, models, arguments)
        arguments.out.write_text(json.dumps(results, ensure_ascii=False))
    languages = ["en", *LANGUAGES] if not arguments.languages else arguments.languages.split(",")
    for name, folder in models.items():
        results["alignment"][name] = similarities(folder, languages, arguments.limit or 997)
    arguments.out.write_text(json.dumps(results, ensure_ascii=False))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


if __name__ == "__main__":
    main()
