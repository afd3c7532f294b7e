"""PlugIn-X with the minis, the jobs: English task models in other languages, with no task data.

    CROSSLIFT_DATA=… python table.py --connectors runs/plug --workers 12 --out plug-table.json
    python summary.py plug-table.json                                                   # tests and the table

Two kinds of jobs, per task and seed. One trains the English task model on `--mono` (its English score is the ceiling)
and scores it under `emb-map`, `emb-learn` (with `--learnt FILE`, see emb_learn.py) and every connector below
`--connectors`: it is trained once and never again. The other is `finetune` on `--multi`, with all layers and with six
frozen ones. A connector of seed s (`ARM-s/connector`) goes with the task model of seed s; where an arm has none of that
seed, its first one does. With `--steps` also those of earlier steps (`ARM-s/steps/*`), of each arm's first run.
Last, the distance between connector and English model on NTREX, per connector.

Jobs run in persistent processes, ordered by seed. Every row is written as it is known, beside the JSON in a folder of
its name, with the statistics of every example (`.npz`), which paired tests need. Started again, the script goes on;
`--minutes` ends it. `--dry` is a trial of a minute.

A second encoder:  --connectors runs/plug runs/plug-mlm=runs/mini-x-mlm/model  (systems `plug-mlm: ARM`).
Needs, below CROSSLIFT_DATA: massive/, sib200/, panx/, mnli/, xnli/, xquad/, ntrex/.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing as mp
import os
import shutil
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "minis"))

from transfer import LEARNING_RATE, TARGETS, TASKS

CHOSEN = ("massive-intent", "sib200", "panx", "xnli", "xquad")
FINETUNE = {"finetune": None, "finetune, 6 layers frozen": 6}
RIDGES = {"emb-map": 1e-3, "emb-map, least squares": 1e-9}
LONGEST_FIRST = ("xquad", "xnli", "massive-intent", "panx", "sib200")
SENTENCES = 500


class System(NamedTuple):
    """One line of the table: its name, and of a connector its folder, its run, and its multilingual model."""

    name: str
    folder: str = ""
    connector: str = ""
    multi: str = ""


def systems(seed: int, arguments: argparse.Namespace) -> list[System]:
    """Return what the task model of a seed is plugged into."""
    found = [System(name) for name in RIDGES]
    if arguments.learnt:
        found.append(System("emb-learn"))
    for number, given in enumerate(arguments.connectors):
        home, _, multi = given.partition("=")
        prefix = f"{Path(home).name}: " if number else ""
        arms: dict[str, dict[int, Path]] = {}
        for file in sorted(Path(home).glob("*-*/connector/connector.json")):
            arm, _, own = file.parents[1].name.rpartition("-")
            arms.setdefault(arm, {})[int(own)] = file.parents[1]
        for arm, by_seed in arms.items():
            run = by_seed.get(seed, by_seed[min(by_seed)])
            where = multi or arguments.multi
            found.append(System(prefix + arm, str(run / "connector"), run.name, where))
            kept = [run for _, run in sorted(by_seed.items()) if (run / "steps").is_dir()]
            if arguments.steps and kept:
                run = kept[0]
                for step in sorted((run / "steps").glob("*/connector.json")):
                    count = int(step.parent.name)
                    found.append(System(f"{prefix}{arm} @ {count}", str(step.parent), run.name, where))
    wanted = arguments.systems
    if wanted is None:
        return found
    chosen = [s for s in found if s.name.split(" @ ")[0] in wanted]
    return sorted(chosen, key=lambda s: wanted.index(s.name.split(" @ ")[0]))


def queue(arguments: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Return (kind of job, task, seed), the first seed of everything first."""
    tasks = [task for task in LONGEST_FIRST if task in arguments.tasks]
    jobs = []
    for seed in arguments.seeds:
        jobs += [("plug", task, seed) for task in tasks]
        for name in FINETUNE:
            if arguments.systems is None or name in arguments.systems:
                # Tagging loses by frozen layers, so that nobody would freeze them there.
                jobs += [(name, task, seed) for task in tasks if name == "finetune" or task != "panx"]
    return jobs


@cache
def examples(name: str, language: str, limit: int | None) -> Any:  # noqa: ANN401  Examples
    """Load data once per process."""
    import crosslift as xl

    found = xl.load(name, language=language, split="test")
    return found.take(limit) if limit else found


@cache
def vocabulary(name: str) -> Any:  # noqa: ANN401  a tokenizer
    import crosslift as xl

    return xl.load_tokenizer(name)


@cache
def encoded(data: str, language: str, limit: int | None, model: str, task: Any) -> Any:  # noqa: ANN401
    """Tokenise once per process: all plugged models read the same pieces."""
    return task.encode(examples(data, language, limit).unlabelled(), vocabulary(model))


@cache
def mapped(multi: str, mono: str, ridge: float) -> Any:  # noqa: ANN401  a tensor
    import crosslift as xl
    from crosslift.models.other_vocabulary import mapped_embeddings

    return mapped_embeddings(xl.load_encoder(multi), xl.load_encoder(mono), vocabulary(multi), vocabulary(mono), ridge)


def fit(model: str, task: str, seed: int, out: Path, frozen: int | None, arguments: argparse.Namespace) -> Any:  # noqa: ANN401
    """Fine-tune on English; return the run's folder."""
    import crosslift as xl

    settings = dict(TASKS[task]) | ({"steps": 2, "limit": 64} if arguments.dry else {})
    settings.pop("test", None)
    run = xl.fit(
        "finetune", model=model, out=out, seeds=[seed], learning_rate=LEARNING_RATE, frozen_layers=frozen,
        evaluations=1, select="last", max_tokens=16384, precision=arguments.precision, **settings,
    )  # fmt: skip
    return run.folders[0]


def task_of(folder: Any, kind: str) -> Any:  # noqa: ANN401
    """Return the task of a run: its labels and lengths."""
    from crosslift.models.load import model_labels
    from crosslift.runs.predictions import make_task

    options = {key: value for key, value in folder.config["task"].items() if key != "labels"}
    return make_task(kind, model_labels(str(folder.model)), **options)


class Scorer:
    """Scores models of one task model's family and writes their rows."""

    def __init__(self, task: str, seed: int, arguments: argparse.Namespace, end: float) -> None:
        from crosslift.data import languages_of

        self.name, self.seed, self.arguments, self.end = task, seed, arguments, end
        self.data = str(TASKS[task].get("test") or TASKS[task]["data"])
        known = languages_of(self.data, "test")
        self.languages = [language for language in ["en", *TARGETS] if language in known]
        self.limit = 16 if arguments.dry else arguments.limit
        self.home = statistics(arguments.out)

    def file(self, system: System) -> Path:
        """Return where a row is kept."""
        name = f"{self.name} {system.name} {system.connector} {self.seed}"
        return self.home / ("-".join(name.replace(":", "").replace(",", "").replace("@", "at").split()) + ".json")

    def missing(self, system: System) -> bool:
        """Whether a row is still to be made, and there is time."""
        return not self.file(system).exists() and time.monotonic() < self.end

    def __call__(
        self,
        system: System,
        model: Any,  # noqa: ANN401
        task: Any,  # noqa: ANN401
        vocabulary_of: str,
        languages: list[str] | None = None,
    ) -> None:
        """Score a model in every language, and keep what each example counts."""
        import numpy as np
        import torch

        from crosslift.runs.evaluate import run_model

        began = time.monotonic()
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        row: dict[str, Any] = {"task": self.name, "seed": self.seed, "system": system.name, "limit": self.limit}
        row |= {"connector": system.connector} if system.connector else {}
        arrays, ids, scores = {}, {}, {}
        pad_id = int(vocabulary(vocabulary_of).pad_token_id)
        for language in languages or self.languages:
            texts = examples(self.data, language, self.limit)
            rows = encoded(self.data, language, self.limit, vocabulary_of, task)
            outputs = run_model(model, task, rows, pad_id, precision=self.arguments.precision)
            predictions = task.decode(outputs, rows, texts)
            main = next(iter(task.metrics(texts, predictions).values()))
            row["metric"], scores[language] = main.name, round(main.value, 2)
            arrays[language], ids[language] = main.stats.astype(np.float32), np.array(texts.ids)
            if language == "en" and texts.kind == "classification":
                most = Counter(texts.labels).most_common(1)[0][1]
                row["majority"] = round(100 * most / len(texts), 2)
        self.home.mkdir(parents=True, exist_ok=True)
        file = self.file(system)
        np.savez_compressed(file.with_suffix(".npz"), **arrays)
        known_ids = self.home / f"{self.data}.ids.npz"
        if not known_ids.exists() and languages is None:  # the same for all systems
            draft = file.with_suffix(".ids.npz")
            np.savez_compressed(draft, **ids)
            draft.replace(known_ids)
        row |= {"statistics": file.with_suffix(".npz").name, "ids": known_ids.name}
        row |= {"scores": scores, "seconds": round(time.monotonic() - began, 1)}
        write(file, row)
        targets = [value for language, value in scores.items() if language != "en"]
        mean = f"targets {sum(targets) / len(targets):5.1f}  " if targets else ""
        said = f"{self.name:15} seed {self.seed}  {system.name:26} en {scores['en']:5.1f}  {mean}{row['seconds']} s"
        print(said, flush=True)


def job(kind: str, task_name: str, seed: int, arguments: argparse.Namespace, end: float) -> None:
    """Train one model, and score it or all that it is plugged into."""
    import torch

    from crosslift.models.connectors import check_descent, load_connector
    from crosslift.models.load import load_model
    from crosslift.models.other_vocabulary import with_embeddings
    from crosslift.models.reassembled import to_native

    score = Scorer(task_name, seed, arguments, end)
    scratch = Path(arguments.scratch)
    if kind != "plug":
        if score.missing(System(kind)):
            out = scratch / f"{task_name}-{kind.replace(', ', '-').replace(' ', '-')}-{seed}"
            folder = fit(arguments.multi, task_name, seed, out, FINETUNE[kind], arguments)
            task = task_of(folder, folder.config["kind"])
            score(System(kind), load_model(str(folder.model), task), task, arguments.multi)
            shutil.rmtree(out)
        return
    ceiling = System("the task model")
    wanted = [system for system in systems(seed, arguments) if score.missing(system)]
    if not wanted and not score.missing(ceiling):
        return
    folder = fit(arguments.mono, task_name, seed, scratch / f"task-{task_name}-{seed}", None, arguments)
    task = task_of(folder, folder.config["kind"])
    original = load_model(str(folder.model), task).eval()
    if score.missing(ceiling):
        score(ceiling, copy.deepcopy(original), task, arguments.mono, ["en"])
    for system in wanted:
        if not score.missing(system):
            continue
        multi = system.multi or arguments.multi
        if system.folder:
            loaded = load_connector(system.folder, multi)
            check_descent(original, str(folder.model), loaded)
            model = to_native(loaded.multi, loaded.connector, original, loaded.facts.plug_layer, task.kind)
        else:
            ridge = RIDGES.get(system.name)
            vectors = mapped(multi, arguments.mono, ridge) if ridge else learnt(arguments.learnt)
            model = with_embeddings(copy.deepcopy(original), vectors, vocabulary(multi))
        score(system, model, task, multi)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # the other processes need it


@cache
def learnt(file: str) -> Any:  # noqa: ANN401  a tensor
    from safetensors.torch import load_file

    return load_file(file)["embeddings"].float()


def alignment(system: System, arguments: argparse.Namespace) -> None:
    """Write cross-model L2 and cosine of a connector on NTREX, by language."""
    import torch

    import crosslift as xl
    from crosslift.measure.plug_alignment import cross_model_alignment
    from crosslift.models.connectors import load_connector

    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = {
        language: list(examples("ntrex", language, None).texts)[: 16 if arguments.dry else SENTENCES]
        for language in ["en", *TARGETS]
    }
    loaded = load_connector(system.folder, system.multi)
    loaded.multi.to(device)
    loaded.connector.to(device)
    mono = xl.load_encoder(arguments.mono).to(device)
    pair = vocabulary(system.multi), vocabulary(arguments.mono)
    found = cross_model_alignment(loaded, mono, pair, texts["en"], texts)
    row = {"system": system.name, "connector": system.connector, "sentences": len(texts["en"])}
    row["alignment"] = {language: each.to_dict() for language, each in found.items()}
    home = statistics(arguments.out)
    home.mkdir(parents=True, exist_ok=True)
    write(alignment_file(system, arguments), row)
    print(f"alignment of {system.name:26} {time.monotonic() - began:.1f} s", flush=True)


def alignment_file(system: System, arguments: argparse.Namespace) -> Path:
    """Return where the distances of a connector are kept."""
    name = f"alignment {system.name} {system.connector}".replace(":", "").replace("@", "at")
    return statistics(arguments.out) / f"{'-'.join(name.split())}.json"


def statistics(out: Path) -> Path:
    """Return the folder of rows and per-example statistics beside the JSON."""
    return out.with_suffix("")


def write(file: Path, found: object) -> None:
    """Write JSON, whole or not at all."""
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(file)


def collected(out: Path) -> dict[str, Any]:
    """Return the JSON with all rows that are there, and write it."""
    results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    rows = {
        (row.get("task"), row.get("seed"), row["system"], row.get("connector")): row
        for row in [
            *results.get("jobs", []),
            *results.get("alignment", []),
            *(json.loads(file.read_text(encoding="utf-8")) for file in sorted(statistics(out).glob("*.json"))),
        ]
    }
    results["jobs"] = [row for row in rows.values() if "task" in row]
    results["alignment"] = [row for row in rows.values() if "task" not in row]
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, results)
    return results


def _run(item: tuple[Any, ...]) -> str | None:
    """Run a job in a worker; return what went wrong."""
    import torch

    torch.set_num_threads(1)
    what, arguments, end = item
    # One clock for all processes of a machine.
    if time.monotonic() > end:
        return None
    try:
        if isinstance(what, System):
            alignment(what, arguments)
        else:
            job(*what, arguments, end)
    except Exception as error:  # one job that fails must not end the others
        return f"failed: {what}: {type(error).__name__}: {error}"
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connectors", nargs="+", default=["runs/plug"], metavar="FOLDER[=MULTI]")
    parser.add_argument("--multi", default="mini-x")
    parser.add_argument("--mono", default="mini-en")
    parser.add_argument("--learnt", help="embeddings.safetensors of emb-learn")
    parser.add_argument("--tasks", type=lambda given: given.split(","), default=list(CHOSEN))
    parser.add_argument(
        "--systems", type=lambda given: given.split(";"), help="some systems, in this order; with ; between"
    )
    parser.add_argument("--seeds", type=lambda given: [int(s) for s in given.split(",")], default=[1, 2, 3])
    parser.add_argument("--steps", action="store_true", help="also the connectors of earlier steps")
    parser.add_argument("--no-alignment", action="store_true", help="leave out the distances on NTREX")
    parser.add_argument("--limit", type=int, help="at most so many test examples per language")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--precision",
        default="auto",
        help="of training and scoring; `crosslift env` says whether bf16 saves time on a CPU",
    )
    parser.add_argument("--minutes", type=float, help="start nothing further after so many minutes")
    parser.add_argument("--scratch", default="runs/plug-table")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The tokenizers of many workers would fight for the cores.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    work: list[Any] = list(queue(arguments))
    if not arguments.no_alignment:
        joined = {s.folder: s for seed in arguments.seeds for s in systems(seed, arguments) if s.folder}
        work += [s for s in joined.values() if not alignment_file(s, arguments).exists()]
    with ProcessPoolExecutor(arguments.workers, mp_context=mp.get_context("spawn")) as pool:
        for finished in as_completed([pool.submit(_run, (what, arguments, end)) for what in work]):
            if finished.result():
                print(finished.result(), flush=True)
            collected(arguments.out)
    print(f"{len(collected(arguments.out)['jobs'])} rows in {arguments.out}")


if __name__ == "__main__":
    main()
