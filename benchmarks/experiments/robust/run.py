"""Robust fine-tuning on real data: the jobs behind `benchmarks/results/robust.json`.

    CROSSLIFT_DATA=… python benchmarks/experiments/robust/run.py --model mini-x --workers 8 --out robust.json

A job is one (task, system, seed): train on the source language, last weights, score every language of the test set.
Jobs run in parallel processes, ordered by seed, and are written as they end; started again, the script goes on. Beside
the JSON lies a folder of the same name with the statistics of every example (`.npz`), which paired tests need:
`table.py` reads both.

`--study` chooses the jobs:
    main      all methods and ablations, from English
    scale     EAR with 25, 50 and 75 % of the dictionary (the paper's Table 6)
    source    finetune, rs-da and ear from German and Russian (Table 5): SIB-200 and MASSIVE
    radius    adv and rs-rp with several radii, scored on source dev data alone: how the defaults were found
    all       main, scale and source
`--steps 2 --limit 20` is a dry run.

Needs, below CROSSLIFT_DATA: sib200/, massive/ (test, dev and train files), panx/, pawsx/, xnli/, mnli/, synonyms/; and
for `source`, in the folder that --thesauri names, synonyms-de.tsv.xz and synonyms-ru.tsv.xz.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import shutil
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

NEAR = ("es", "de", "fr", "bg", "ru", "el", "th", "pt", "it")
FAR = ("sw", "vi", "ar", "zh", "hi", "ur", "tr", "ja", "ko")
"""The paper's order by distance from English (its Table 4), upper and lower row; pt, it, ja and ko are ours."""

TASKS: dict[str, dict[str, Any]] = {
    "sib200": {"data": "sib200", "epochs": 12},
    "massive": {"data": "massive-intent", "epochs": 3},
    "panx": {"data": "panx", "epochs": 5},
    "pawsx": {"data": "pawsx", "epochs": 4},
    "xnli": {"data": "mnli", "test": "xnli", "epochs": 3},
}

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "finetune": ("finetune", {}),
    "rs-da": ("robust", {"variant": "rs-da"}),
    "ear": ("ear", {}),
    "ear without EPT": ("ear", {"push": "none"}),
    "ear without APT": ("ear", {"pull": "none"}),
    "ear without both": ("ear", {"push": "none", "pull": "none"}),
    "ear, NT for EPT": ("ear", {"push": "noise"}),
    "ear, SRPT for APT": ("ear", {"pull": "sentence"}),
    "ear, sums": ("ear", {"preset": "paper"}),
    "ear, released": ("ear", {"preset": "released"}),
    "ear, neighbours": ("ear", {"synonyms": "neighbours"}),
    "gaussian": ("robust", {"variant": "gaussian"}),
    "rs-rp": ("robust", {"variant": "rs-rp"}),
    "adv": ("robust", {"variant": "adv"}),
    "xtune": ("robust", {"variant": "xtune"}),
    "xtune, synonyms": ("robust", {"variant": "xtune", "noise_from": "synonyms"}),
}
SCALES = {f"ear, scale {scale}": ("ear", {"scale": scale}) for scale in (0.25, 0.5, 0.75)}
RADII = {
    f"{variant} {radius}": ("robust", {"variant": variant, "radius": radius})
    for variant in ("adv", "rs-rp")
    for radius in (0.01, 0.05, 0.1, 0.5, 1.0)
}


def queue(study: str, tasks: list[str], systems: list[str] | None, seeds: int) -> list[tuple[str, str, str, int]]:
    """Return (task, source language, system, seed) of every job, the first seed of everything first."""
    known = {"main": list(SYSTEMS), "scale": list(SCALES), "radius": ["finetune", *RADII]}
    pairs: list[tuple[str, str]] = []
    for name in ("main", "scale", "radius"):
        if study == name or (study == "all" and name != "radius"):
            pairs += [("en", system) for system in known[name]]
    if study in ("source", "all"):
        pairs += [(source, system) for source in ("de", "ru") for system in ("finetune", "rs-da", "ear")]
    return [
        (task, source, system, seed)
        for seed in range(1, seeds + 1)
        for source, system in pairs
        for task in tasks
        if (source == "en" or task in ("sib200", "massive")) and (systems is None or system in systems)
    ]


@cache
def examples(name: str, language: str, split: str, limit: int | None) -> Any:  # noqa: ANN401  Examples
    """Load data once per process."""
    import crosslift as xl

    found = xl.load(name, language=language, split=split)
    return found.take(limit) if limit else found


@cache
def encoded(data: str, language: str, limit: int | None, model: str, task: Any) -> Any:  # noqa: ANN401
    """Tokenise a test set once per process: all systems read the same pieces."""
    import crosslift as xl

    return task.encode(examples(data, language, "test", limit).unlabelled(), xl.load_tokenizer(model))


def job(task: str, source: str, system: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train and score one system; return its row of the JSON."""
    import torch

    import crosslift as xl

    torch.set_num_threads(1)
    began = time.monotonic()
    method, options = {**SYSTEMS, **SCALES, **RADII}[system]
    settings = dict(TASKS[task]) | options | ({"steps": arguments.steps} if arguments.steps else {})
    data, test = settings.pop("data"), settings.pop("test", None)
    if method != "finetune" and "synonyms" not in settings:
        settings["synonyms"] = dictionary(source, arguments)
    if system in arguments.radius:
        settings["radius"] = arguments.radius[system]
    name = f"{task}-{source}-{system.replace(', ', '-').replace(' ', '-')}-{seed}"
    out = Path(arguments.scratch) / name
    run = xl.fit(
        method, model=arguments.model, data=data, source=source, out=out, seeds=[seed], learning_rate=arguments.rate,
        evaluations=1, select="last", max_tokens=16384, precision=arguments.precision, **settings,
    )  # fmt: skip
    trained = time.monotonic() - began
    dev = next(iter(run.summary()[0]["dev"]["last"].values()))
    row = {"task": task, "source": source, "system": system, "seed": seed, "dev": round(dev, 2)}
    if arguments.study != "radius":
        row |= scored(run, test or data, source, name, arguments)
    shutil.rmtree(out)
    row |= {"seconds": round(time.monotonic() - began, 1), "training_seconds": round(trained, 1)}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the other processes need it
    return row


def scored(run: Any, data: str, source: str, name: str, arguments: argparse.Namespace) -> dict[str, Any]:  # noqa: ANN401
    """Score every language, and keep what each example counts; return what the row says of it."""
    import numpy as np
    import torch

    from crosslift.data import languages_of
    from crosslift.models.load import load_model, load_tokenizer, model_labels
    from crosslift.runs.evaluate import run_model
    from crosslift.runs.predictions import make_task

    (folder,) = run.folders
    known = languages_of(data, "test")
    options = {key: value for key, value in folder.config["task"].items() if key != "labels"}
    row: dict[str, Any] = {"scores": {}}
    arrays, ids = {}, {}
    model = None
    for language in dict.fromkeys((source, "en", *NEAR, *FAR)):
        if language not in known:
            continue
        texts = examples(data, language, "test", arguments.limit)
        if model is None:
            task = make_task(texts.kind, model_labels(str(folder.model)), **options)
            device = "cuda" if torch.cuda.is_available() else "cpu"
            model = load_model(str(folder.model), task).to(device)
            pad_id = int(load_tokenizer(arguments.model).pad_token_id)
        rows = encoded(data, language, arguments.limit, arguments.model, task)
        predictions = task.decode(run_model(model, task, rows, pad_id, precision=arguments.precision), rows, texts)
        main = next(iter(task.metrics(texts, predictions).values()))
        row["metric"] = main.name
        row["scores"][language] = round(main.value, 2)
        arrays[language] = main.stats.astype(np.float32)
        ids[language] = np.array(texts.ids)
        if language == source and texts.kind == "classification":
            most = Counter(texts.labels).most_common(1)[0][1]
            row["majority"] = round(100 * most / len(texts), 2)
    home = statistics(arguments.out)
    home.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(home / f"{name}.npz", **arrays)
    known_ids = home / f"{data}-{source}.ids.npz"
    if not known_ids.exists():  # the same for all systems
        draft = home / f"{name}.ids.npz"
        np.savez_compressed(draft, **ids)
        draft.replace(known_ids)
    return row | {"statistics": f"{name}.npz", "ids": known_ids.name}


def statistics(out: Path) -> Path:
    """Return the folder of per-example statistics beside the JSON."""
    return out.with_suffix("")


def dictionary(source: str, arguments: argparse.Namespace) -> str:
    """Return the synonym file of a source language."""
    if source == "en":
        return str(Path(os.environ["CROSSLIFT_DATA"]) / "synonyms" / "counterfitted_neighbors.json.xz")
    return str(Path(arguments.thesauri) / f"synonyms-{source}.tsv.xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini-x")
    parser.add_argument("--study", default="main", choices=("main", "scale", "source", "radius", "all"))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--systems", help="some systems, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="start no further job after so many minutes")
    parser.add_argument("--steps", type=int, help="stop each run after so many steps: a dry run")
    parser.add_argument("--limit", type=int, help="at most so many test examples per language")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument(
        "--precision",
        default="auto",
        help="of training and scoring; `crosslift env` says whether bf16 saves time on a CPU",
    )
    parser.add_argument(
        "--radius", type=json.loads, default={}, help='of adv and rs-rp, as {"adv": 0.1}; default: those of crosslift'
    )
    parser.add_argument("--thesauri", default=".", help="folder of synonyms-de.tsv.xz and synonyms-ru.tsv.xz")
    parser.add_argument("--scratch", default="runs/robust")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"model": Path(arguments.model).name, "learning_rate": arguments.rate, "jobs": []}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
    done = {(row["task"], row["source"], row["system"], row["seed"]) for row in results["jobs"]}
    chosen = arguments.systems.split(";") if arguments.systems else None
    waiting = [j for j in queue(arguments.study, arguments.tasks.split(","), chosen, arguments.seeds) if j not in done]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The tokenizers of many workers would fight for the cores.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    print(f"{len(waiting)} jobs to do, {len(done)} done", flush=True)
    with ProcessPoolExecutor(arguments.workers, mp_context=mp.get_context("spawn")) as pool:
        jobs = [pool.submit(_job, (*item, arguments, end)) for item in waiting]
        for finished in as_completed(jobs):
            row = finished.result()
            if row is None:
                continue
            if "error" not in row:
                results["jobs"].append(row)
                draft = arguments.out.with_suffix(".tmp")
                draft.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
                draft.replace(arguments.out)
            scored = row.get("scores", {})
            targets = [value for language, value in scored.items() if language != row["source"]]
            mean = f"targets {sum(targets) / len(targets):5.1f}  " if targets else ""
            said = row.get("error") or f"dev {row['dev']:5.1f}  {mean}{row['seconds']} s"
            print(f"{row['task']:8} {row['source']} {row['system']:20} seed {row['seed']}  {said}", flush=True)


def _job(item: tuple[Any, ...]) -> dict[str, Any] | None:
    *key, arguments, end = item
    # One clock for all processes of a machine.
    if time.monotonic() > end:
        return None
    try:
        return job(*key, arguments)
    except Exception as error:  # one job that fails must not end the others
        names = ("task", "source", "system", "seed")
        return dict(zip(names, key, strict=True)) | {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
