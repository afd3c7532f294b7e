"""Zero-shot transfer of encoders from English: the table behind `benchmarks/results/minis.json`.

    python benchmarks/experiments/minis/transfer.py --encoder mini-x=FOLDER --encoder random= --seeds 5 --out FILE

Each job is one (encoder, task, seed): plain fine-tuning on English, last weights, scores in every language of the
test set. Jobs run in parallel processes. Encoder `random` stands for random weights in the shape of the first one.
Needs CROSSLIFT_DATA.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import shutil
import time
from pathlib import Path

TARGETS = ["de", "es", "fr", "pt", "it", "ru", "bg", "el", "tr", "ar", "hi", "ur", "th", "vi", "zh", "ja", "sw"]
"""The languages that the first probe was scored on; sets that lack one leave it out."""

TASKS: dict[str, dict[str, object]] = {
    "sib200": {"data": "sib200", "epochs": 12},
    "massive-intent": {"data": "massive-intent", "epochs": 5},
    "massive-slots": {"data": "massive-slots", "epochs": 5},
    "panx": {"data": "panx", "epochs": 5},
    "demo-intent": {"data": "demo-intent", "epochs": 12},
    "xsid-intent": {"data": "xsid-intent", "epochs": 1, "limit": 12000},
    "xsid-slots": {"data": "xsid-slots", "epochs": 1, "limit": 12000},
    "xnli": {"data": "mnli", "test": "xnli", "epochs": 3},
    "xquad": {"data": "squad", "test": "xquad", "epochs": 3, "max_length": 256, "stride": 64, "max_answer_length": 60},
}
LEARNING_RATE = 3e-4


def job(encoder: str, folder: str, task: str, seed: int, arguments: argparse.Namespace) -> dict[str, object]:
    import torch

    import crosslift as xl
    from crosslift.data import languages_of

    torch.set_num_threads(1)
    began = time.monotonic()
    settings = dict(TASKS[task])
    if arguments.steps:
        settings["steps"] = arguments.steps
    data, test = str(settings.pop("data")), str(settings.pop("test", "")) or None
    out = Path(arguments.scratch) / f"{encoder}-{task}-{seed}"
    run = xl.fit(
        "finetune",
        model=folder,
        data=data,
        out=out,
        seeds=[seed],
        learning_rate=arguments.rate,
        frozen_layers=arguments.frozen,
        evaluations=1,
        select="last",
        max_tokens=16384,
        **settings,
    )
    known = languages_of(test or data, "test")
    more = ("da", "nl", "id") if task.startswith("xsid") else ()
    wanted = [language for language in (*arguments.languages.split(","), *more) if language in known]
    scores = xl.evaluate(run, test or data, wanted, keep_unknown=True, limit=arguments.limit)
    by_language = {
        language: {name: round(score.value, 2) for name, score in seeds[seed].items()}
        for language, seeds in scores.rows.items()
    }
    shutil.rmtree(out)
    seconds = round(time.monotonic() - began, 1)
    return {"encoder": encoder, "task": task, "seed": seed, "scores": by_language, "seconds": seconds}


def retrieval(folder: str, languages: list[str]) -> dict[str, object]:
    """NTREX, the first 1,000 sentences, both directions, centred: by layer and pooling, mean over languages."""
    import torch

    import crosslift as xl
    from crosslift.measure.retrieval import retrieval_accuracy, sentence_vectors

    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder, tokenizer = xl.load_encoder(folder).to(device), xl.load_tokenizer(folder)
    found: dict[str, object] = {}
    for pooling in ("first", "mean"):
        vectors = {}
        for language in ["en", *languages]:
            texts = list(xl.load("ntrex", language=language, split="test").texts)[:1000]
            found_vectors = sentence_vectors(encoder, tokenizer, texts, pooling=pooling, max_tokens=32768)
            vectors[language] = found_vectors.to(device)
        layers = len(vectors["en"])
        table = {
            language: [round(retrieval_accuracy(vectors["en"][k], vectors[language][k]), 1) for k in range(layers)]
            for language in languages
        }
        found[pooling] = {
            "by_layer": [round(sum(row[k] for row in table.values()) / len(table), 1) for k in range(layers)],
            "last_layer": {language: row[-1] for language, row in table.items()},
        }
    return found


def random_weights(folder: str, out: Path) -> str:
    """Write an encoder of the same shape and tokenizer with random weights."""
    import torch
    from transformers import AutoModel

    import crosslift as xl
    from crosslift.models.load import load_config

    torch.manual_seed(0)
    AutoModel.from_config(load_config(folder)).save_pretrained(out)
    xl.load_tokenizer(folder).save_pretrained(out)
    return str(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--tasks", default=",".join(task for task in TASKS if task != "demo-intent"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, help="stop each run after so many steps: a dry run")
    parser.add_argument("--limit", type=int, help="at most so many test examples per language")
    parser.add_argument("--rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--frozen", type=int, help="keep the embeddings and so many of the lowest layers")
    parser.add_argument("--languages", default=",".join(["en", *TARGETS]))
    parser.add_argument("--scratch", default="runs/minis")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    folders = dict(item.split("=", 1) for item in arguments.encoder)
    if "random" in folders:
        folders["random"] = random_weights(next(iter(folders.values())), Path(arguments.scratch) / "random")
    languages = arguments.languages.split(",")
    results: dict[str, object] = {
        "learning_rate": arguments.rate,
        "frozen_layers": arguments.frozen,
        "jobs": [],
        "retrieval": {},
    }
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text())
    done = {(row["encoder"], row["task"], row["seed"]) for row in results["jobs"]}
    for name, folder in folders.items():
        if name not in results["retrieval"]:
            results["retrieval"][name] = retrieval(folder, [x for x in languages if x != "en"])
            for pooling, table in results["retrieval"][name].items():
                print(name, "retrieval by layer,", pooling, table["by_layer"])
    queue = [
        (name, folder, task, seed, arguments)
        for seed in range(1, arguments.seeds + 1)
        for task in arguments.tasks.split(",")
        for name, folder in folders.items()
        if (name, task, seed) not in done
    ]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with mp.get_context("spawn").Pool(arguments.workers) as pool:
        waiting = [pool.apply_async(job, item) for item in queue]
        for item in waiting:
            row = item.get()
            results["jobs"].append(row)
            arguments.out.write_text(json.dumps(results, indent=1, ensure_ascii=False))
            main_scores = {language: next(iter(s.values())) for language, s in row["scores"].items()}
            targets = [v for k, v in main_scores.items() if k != "en"]
            mean = sum(targets) / max(1, len(targets))
            scored = f"en {main_scores.get('en', 0):5.1f}  targets {mean:5.1f}  {row['seconds']} s"
            print(f"{row['encoder']:12} {row['task']:15} seed {row['seed']}  {scored}", flush=True)


if __name__ == "__main__":
    main()
