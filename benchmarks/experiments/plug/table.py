"""The table of PlugIn-X with the minis: English task models in other languages, with no task data.

    python table.py --connectors runs/plug --multi mini-x --mono mini-en --out benchmarks/results/plug.json
    python table.py --out benchmarks/results/plug.json --show

Per task and seed: an English task model on `--mono` (its English score is the ceiling), the same task model on every
connector under `--connectors` (`ARM-SEED/connector`, and with `--steps` also `ARM-SEED/steps/*`), `emb-map`,
`emb-learn` (with `--learnt FILE`, see emb_learn.py), and `finetune` on `--multi`. A connector of seed s goes with the
task model of seed s. Jobs run in parallel processes; a job that is done is not run again. `--dry` is a trial on a CPU.
Needs CROSSLIFT_DATA.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "minis"))

from transfer import LEARNING_RATE, TARGETS, TASKS

CHOSEN = ("massive-intent", "sib200", "panx", "xnli", "xquad")
CHANCE = {"massive-intent": 100 / 60, "sib200": 100 / 7, "panx": 0.0, "xnli": 100 / 3, "xquad": 0.0}
"""Accuracy of guessing a class evenly; F1 of saying nothing."""


def fit(model: str, task: str, seed: int, out: Path, arguments: argparse.Namespace) -> object:
    import crosslift as xl

    settings = dict(TASKS[task])
    if arguments.dry:
        settings |= {"steps": 2, "limit": 64}
    settings.pop("test", None)
    return xl.fit(
        "finetune", model=model, out=out, seeds=[seed], learning_rate=LEARNING_RATE, evaluations=1, select="last",
        max_tokens=16384, **settings,
    )  # fmt: skip


def scores(
    model: object, task: str, languages: list[str], arguments: argparse.Namespace, out: Path
) -> dict[str, float]:
    """Language -> main score on the test set."""
    import crosslift as xl
    from crosslift.data import languages_of

    data = str(TASKS[task].get("test") or TASKS[task]["data"])
    known = languages_of(data, "test")
    wanted = [language for language in languages if language in known]
    limit = 16 if arguments.dry else arguments.limit
    found = xl.evaluate(model, data, wanted, keep_unknown=True, limit=limit, out=out)
    return {
        language: round(next(iter(next(iter(seeds.values())).values())).value, 2)
        for language, seeds in found.rows.items()
    }


def job(kind: str, task: str, seed: int, arguments: argparse.Namespace) -> dict[str, object]:
    """Run one cell of the table: `task`, `finetune`, `emb-map`, `emb-learn`, or a connector's folder."""
    import torch

    torch.set_num_threads(1)
    began = time.monotonic()
    scratch = Path(arguments.scratch)
    languages = arguments.languages.split(",")
    task_model = scratch / f"task-{task}-{seed}"
    out = scratch / f"{kind.replace('/', '-')}-{task}-{seed}"
    if kind == "task":
        found = scores(fit(arguments.mono, task, seed, task_model, arguments), task, ["en"], arguments, out)
    elif kind == "finetune":
        found = scores(
            fit(arguments.multi, task, seed, out / "run", arguments), task, languages, arguments, out / "scores"
        )
    else:
        from crosslift.runs.plug_baselines import emb_map, plug_embeddings
        from crosslift.runs.plugged import plug

        model = out / "model"
        if kind == "emb-map":
            emb_map(task_model, arguments.multi, arguments.mono, model)
        elif kind == "emb-learn":
            plug_embeddings(task_model, Path(arguments.learnt), arguments.multi, model)
        else:
            plug(task_model, Path(arguments.connectors) / kind, model, multi=arguments.multi)
        settings = {
            key: value for key, value in TASKS[task].items() if key in ("max_length", "stride", "max_answer_length")
        }
        with_task_settings(model, settings, task, task_model)
        found = scores(out, task, languages, arguments, out / "scores")
    if kind != "task":
        shutil.rmtree(out, ignore_errors=True)
    return {"system": kind, "task": task, "seed": seed, "scores": found, "seconds": round(time.monotonic() - began, 1)}


def with_task_settings(model: Path, settings: dict[str, object], task: str, task_model: Path) -> None:
    """Make the plugged model's folder a run, so that it is scored with the task model's lengths."""
    config = json.loads((task_model / "config.json").read_text())
    config |= {"method": "plug", "model": str(model)}
    (model.parent / "config.json").write_text(json.dumps(config))
    finished = json.loads((task_model / "finished.json").read_text())
    (model.parent / "finished.json").write_text(json.dumps(finished))


def alignment(kind: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Cross-model L2 and cosine of a connector on NTREX, by language."""
    import crosslift as xl
    from crosslift.measure.plug_alignment import cross_model_alignment
    from crosslift.models.connectors import load_connector

    count = 16 if arguments.dry else 500
    texts = {}
    for language in arguments.languages.split(","):
        texts[language] = list(xl.load("ntrex", language=language, split="test").texts)[:count]
    loaded = load_connector(Path(arguments.connectors) / kind, arguments.multi)
    tokenizers = xl.load_tokenizer(arguments.multi), xl.load_tokenizer(arguments.mono)
    found = cross_model_alignment(loaded, xl.load_encoder(arguments.mono), tokenizers, texts["en"], texts)
    return {"system": kind, "alignment": {language: each.to_dict() for language, each in found.items()}}


def connectors(arguments: argparse.Namespace) -> list[tuple[str, int]]:
    """Return (folder under --connectors, seed) of everything that was trained."""
    found = []
    for file in sorted(Path(arguments.connectors).glob("*/connector/connector.json")):
        name = file.parents[1].name
        found.append((f"{name}/connector", int(name.rsplit("-", 1)[1])))
        if arguments.steps:
            steps = sorted((file.parents[1] / "steps").glob("*/connector.json"))
            found += [(f"{name}/steps/{step.parent.name}", int(name.rsplit("-", 1)[1])) for step in steps]
    return found


def run(
    queue: list[tuple[object, ...]], function: object, results: dict[str, list[object]], arguments: argparse.Namespace
) -> None:
    kept = "alignment" if function is alignment else "jobs"
    with mp.get_context("spawn").Pool(arguments.workers) as pool:
        for waiting in [pool.apply_async(function, item) for item in queue]:  # type: ignore[arg-type]
            try:
                row = waiting.get()
            except Exception as error:  # one cell must not take the others down
                print(f"failed: {error}", flush=True)
                continue
            results[kept].append(row)
            arguments.out.write_text(json.dumps(results, indent=1, ensure_ascii=False))
            if kept == "jobs":
                targets = [value for language, value in row["scores"].items() if language != "en"]
                mean = sum(targets) / max(1, len(targets))
                said = f"en {row['scores'].get('en', 0):5.1f}  targets {mean:5.1f}  {row['seconds']} s"
                print(f"{row['system']:28} {row['task']:15} seed {row['seed']}  {said}", flush=True)


def show(results: dict[str, list[dict[str, object]]]) -> None:
    """Print the mean over target languages by system and task, its share of fine-tuning, and the transfer gap."""
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    english: dict[str, list[float]] = defaultdict(list)
    for row in results["jobs"]:
        system = str(row["system"]).replace(f"-{row['seed']}/", "/").removesuffix("/connector")
        targets = [value for language, value in row["scores"].items() if language != "en"]  # type: ignore[attr-defined]
        if system == "task":
            english[str(row["task"])].append(row["scores"]["en"])  # type: ignore[index]
        elif targets:
            cells[system, str(row["task"])].append(sum(targets) / len(targets))
    tasks = [task for task in CHOSEN if any(key[1] == task for key in cells)]
    print(f"{'mean over target languages':28}" + "".join(f"{task:>26}" for task in tasks))
    means = {key: sum(values) / len(values) for key, values in cells.items()}
    print(f"{'the task model, in English':28}" + "".join(f"{_mean(english[task]):26.1f}" for task in tasks))
    print(f"{'chance':28}" + "".join(f"{CHANCE[task]:26.1f}" for task in tasks))
    for system in dict.fromkeys(key[0] for key in cells):
        line = f"{system:28}"
        for task in tasks:
            mean, best = means.get((system, task)), means.get(("finetune", task))
            share = f"{100 * mean / best:4.0f}%" if mean is not None and best else "    "
            gap = f"gap {_mean(english[task]) - mean:5.1f}" if mean is not None else ""
            line += f"{'' if mean is None else f'{mean:.1f} {share} {gap}':>26}"
        print(line)
    for row in results["alignment"]:
        each = row["alignment"]
        l2, cosine = ([v[k]["mean"] for v in each.values()] for k in ("l2", "cosine"))  # type: ignore[attr-defined]
        print(f"{row['system']:28} L2 {_mean(l2):.2f}  cosine {_mean(cosine):.3f}  (NTREX, mean over languages)")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connectors", default="runs/plug", help="folder that train.py wrote")
    parser.add_argument("--multi", default="mini-x")
    parser.add_argument("--mono", default="mini-en")
    parser.add_argument("--learnt", help="embeddings.safetensors of emb-learn")
    parser.add_argument("--tasks", default=",".join(CHOSEN))
    parser.add_argument("--systems", default="all", help="comma-separated parts of names: emb-map,mixed,finetune")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help="also the connectors of earlier steps")
    parser.add_argument("--languages", default=",".join(["en", *TARGETS]))
    parser.add_argument("--limit", type=int, help="at most so many test examples per language")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", default="runs/plug-table")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, object]]] = {"jobs": [], "alignment": []}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text())
    if arguments.show:
        show(results)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    done = {(row["system"], row["task"], row["seed"]) for row in results["jobs"]}
    tasks = arguments.tasks.split(",")
    seeds = range(1, arguments.seeds + 1)
    found = connectors(arguments)
    first = [
        ("task", task, seed, arguments)
        for seed in seeds
        for task in tasks
        if ("task", task, seed) not in done
        or not (Path(arguments.scratch) / f"task-{task}-{seed}" / "finished.json").exists()
    ]
    run(first, job, results, arguments)
    systems = [("finetune", seed) for seed in seeds] + [("emb-map", seed) for seed in seeds]
    systems += [("emb-learn", seed) for seed in seeds] if arguments.learnt else []
    systems += [(name, seed) for name, seed in found if seed in seeds]
    if arguments.systems != "all":
        systems = [item for item in systems if any(part in item[0] for part in arguments.systems.split(","))]
    queue = [
        (name, task, seed, arguments) for name, seed in systems for task in tasks if (name, task, seed) not in done
    ]
    run(queue, job, results, arguments)
    aligned = {row["system"] for row in results["alignment"]}
    run([(name, arguments) for name, _ in found if name not in aligned], alignment, results, arguments)
    show(results)


if __name__ == "__main__":
    main()
