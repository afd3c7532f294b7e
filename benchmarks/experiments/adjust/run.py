"""Adjustment and continual learning on real data: the jobs behind `benchmarks/results/adjust-transfer.json`.

    CROSSLIFT_DATA=… python benchmarks/experiments/adjust/run.py --prepared prepared --encoder mini-x=mini-x \
        --workers 12 --minutes 6 --out adjust-transfer.json

A job learns one task in one language with one seed, from an encoder as it is or adjusted, and scores the last weights.
Adjusted encoders are made once, as jobs of their own, and shared. Jobs run in parallel processes, in the order of
--part (STUDY:TASKS:SEEDS[:ENCODERS]) and of seeds, and are written as they end; started again, the script goes on.
Beside the JSON lies a folder of the same name with the statistics of every example, which paired tests need: `table.py`
reads both.

Training is that of `crosslift fit` (same batches, same loop, same head, last weights); what all jobs share is
tokenised once per machine, and no dev data are scored. `prepare.py` has linked the words before.

Studies:
    main        original, adjusted, adjusted + continual in every language
    released    continual with the weights of the released code
    size        adjusted with 1,000 to 20,000 pairs (the paper's Table 5)
    pooling     what a word vector is (Table 6), and targets pulled to frozen vectors (Cao et al.)
    linked      which links count (Table 7)
    quality     three sources of pairs at one size
    control     MASSIVE intents, learnt and tested in English, and in the target language (Table 8); also across
    vocabulary  the encoder with more Hindi pieces, adjusted at two sizes (Table 9)
    rate        learning rates of adjustment, by held-out pairs and English dev data: how --adjust-rate was found
`--steps 2 --limit 20` is a dry run. Nothing is chosen by target labels.

Needs, below CROSSLIFT_DATA: mnli/, xnli/, panx/, xquad/, massive/; for `vocabulary` also --text.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobs import CONTINUAL_BATCH, LANGUAGES, PAIRS, PARTS, SYSTEMS, TASKS, Job, Part, best_rate, wanted
from shared import pairs_of, tests, tokenizer_of, training


def adjustment(job: Job, base: str, settings: Any, arguments: argparse.Namespace) -> Any:  # noqa: ANN401
    """Return the pairs of a job with their anchors, as the method that draws batches from them."""
    from crosslift.methods.adjust import Adjust
    from crosslift.models.load import load_encoder
    from crosslift.runs.adjust import anchor_rows, drawn

    options = SYSTEMS[job.system][0] or {}
    tokenizer, _ = tokenizer_of(base)
    pooling = options.get("pooling", "")
    places = (arguments.prepared, arguments.scratch)
    everything = pairs_of(options.get("source", "prose"), job.language, pooling, settings.linked, base, *places)
    count = options.get("pairs", arguments.pairs)
    pairs = drawn(everything, min(count, 200) if arguments.steps else count, job.seed)
    anchors = anchor_rows(load_encoder(base).to(device()), tokenizer, pairs, settings, execution())
    return Adjust(settings, pairs, anchors, int(tokenizer.pad_token_id))


def execution() -> Any:  # noqa: ANN401  Execution
    """Return how every job is run."""
    from crosslift.runs.settings import Execution

    return Execution(max_tokens=16384, checkpoint_every=10**9, log_every=10**6)


def device() -> str:
    """Return where to compute."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def base_of(job: Job, arguments: argparse.Namespace) -> str:
    """Return the encoder before any adjustment, as a name or folder."""
    name, _, language = job.encoder.partition("+")
    return str(arguments.scratch / f"{name}-{language}" / "model") if language else arguments.encoder[name]


def home_of(job: Job, arguments: argparse.Namespace) -> Path:
    """Return where the encoder is that a job makes."""
    if job.system == "extended":
        return Path(base_of(job, arguments))
    return arguments.scratch / f"encoders-{arguments.adjust_rate:g}" / job.key()  # type: ignore[no-any-return]


def make_encoder(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Adjust an encoder, or give it more pieces; return what is worth knowing of it."""
    from crosslift.methods.adjust import Settings
    from crosslift.models.load import load_encoder
    from crosslift.runs.adjust import AdjustOptimisation, AdjustPlan, distances
    from crosslift.runs.deliver import save_model

    if job.system == "extended":
        return more_pieces(job, arguments)
    options = dict(SYSTEMS[job.system][0] or {})
    rate = options.pop("rate", arguments.adjust_rate)
    settings = Settings(**{k: v for k, v in options.items() if k in ("preset", "pooling", "linked")})
    base = base_of(job, arguments)
    tokenizer, _ = tokenizer_of(base)
    method = adjustment(job, base, settings, arguments)
    optimisation = AdjustOptimisation(learning_rate=rate, steps=arguments.steps)
    plan = AdjustPlan(method, optimisation, execution().max_tokens, job.seed)
    encoder = load_encoder(base).to(device())
    row: dict[str, Any] = {"pairs": len(method.pairs), "links": len(method.pairs.links.source), "steps": plan.steps}
    for moment in ("before", "after"):
        if moment == "after":
            row["training_seconds"] = round(looped(encoder, plan, optimisation, job.seed), 1)
        encoder.eval()
        row[moment] = distances(method, encoder, execution(), arguments.limit or 256) | {
            "retrieval": retrieval(encoder, job, base, arguments)
        }
    save_model(encoder, tokenizer, home_of(job, arguments))
    return row


def more_pieces(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Add pieces of a language, and train the masked LM on its text."""
    from crosslift.runs.vocabulary import extend_vocabulary

    name, _, language = job.encoder.partition("+")
    files = {language: [arguments.text[language]]}
    steps = {"steps": arguments.steps or arguments.extension_steps, "window_tokens": arguments.extension_tokens}
    folder = arguments.scratch / f"{name}-{language}"
    done = extend_vocabulary(arguments.encoder[name], out=folder, text=files, pieces=arguments.pieces, **steps)
    return {"extended": done.start.to_dict()}


def retrieval(encoder: Any, job: Job, base: str, arguments: argparse.Namespace) -> float:  # noqa: ANN401
    """Return the share of held-out sentences whose translation is their nearest neighbour, both ways, in percent."""
    from crosslift.data.bitext import read_bitext
    from crosslift.measure.retrieval import retrieval_accuracy, sentence_vectors

    file = arguments.prepared / f"held-{job.language}.tsv.xz"
    held = read_bitext(file, language="en", pair_language=job.language).take(arguments.limit or 10**6)
    tokenizer, _ = tokenizer_of(base)
    sides = [sentence_vectors(encoder, tokenizer, texts)[-1] for texts in (held.texts, held.pairs or ())]
    return round(retrieval_accuracy(*sides), 2)


def looped(model: Any, plan: Any, optimisation: Any, seed: int) -> float:  # noqa: ANN401
    """Train with the one loop; return its seconds."""
    from crosslift.runs.folder import RunFolder
    from crosslift.runs.train import train

    with tempfile.TemporaryDirectory() as folder:
        return train(model, plan, RunFolder(folder), optimisation, execution(), seed=seed).seconds


def learn(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Learn a task from an encoder, and score it."""
    import torch

    from crosslift.models.load import load_model
    from crosslift.runs.continual import Continual, ContinualPlan, padding_on
    from crosslift.runs.plan import Plan
    from crosslift.runs.settings import Optimisation

    base = base_of(job, arguments)
    task, method = training(job.task, job.source, base, arguments.scratch)
    epochs, steps = TASKS[job.task]["epochs"], arguments.steps
    optimisation = Optimisation(learning_rate=arguments.rate, epochs=epochs, steps=steps)
    plan = Plan(method, optimisation, execution().max_tokens, job.seed)
    adjusted, preset = SYSTEMS[job.system]
    if preset:
        settings = Continual(adjustment_preset=preset).adjust()  # type: ignore[arg-type]
        pairs = adjustment(job, base, settings, arguments)
        plan = ContinualPlan(plan, pairs, CONTINUAL_BATCH, *padding_on(torch.device(device()), 512))
    before = job.start()
    start = base if adjusted is None or before is None else str(home_of(before, arguments))
    model = load_model(start, task, head_seed=job.seed)
    seconds = looped(model.to(device()), plan, optimisation, job.seed)
    return {"steps": plan.steps, "training_seconds": round(seconds, 1), **scored(model, job, base, arguments)}


def scored(model: Any, job: Job, base: str, arguments: argparse.Namespace) -> dict[str, Any]:  # noqa: ANN401
    """Score the languages of a job, and keep what each example counts."""
    import numpy as np

    from crosslift.runs.evaluate import run_model

    task, _ = training(job.task, job.source, base, arguments.scratch)
    tokenizer, _ = tokenizer_of(base)
    model.eval()
    row: dict[str, Any] = {"scores": {}}
    arrays, ids = {}, {}
    for language, mix in wanted(job, arguments):
        split = "dev" if job.dev else "test"
        examples, encoded = tests(job.task, language, mix, split, base, arguments.limit, arguments.scratch)
        kept = run_model(model, task, encoded, int(tokenizer.pad_token_id))
        main = next(iter(task.metrics(examples, task.decode(kept, encoded, examples)).values()))
        name = f"{language}+{mix}" if mix else language
        row["metric"] = main.name
        row["scores"][name] = round(main.value, 2)
        arrays[name] = main.stats.astype(np.float32)
        ids[name] = np.array(examples.parallel_ids or examples.ids)
        if language == job.source and examples.kind == "classification":
            row["majority"] = round(100 * Counter(examples.labels).most_common(1)[0][1] / len(examples), 2)
    home = statistics(arguments.out)
    home.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(home / f"{job.key()}.npz", **arrays)
    for name, column in ids.items():  # the same for all systems
        file = home / f"ids.{job.task}.{name}.npz"
        if not file.exists():
            draft = home / f"{os.getpid()}.npz"
            np.savez_compressed(draft, ids=column)
            draft.replace(file)
    return row


def statistics(out: Path) -> Path:
    """Return the folder of per-example statistics beside the JSON."""
    return out.with_suffix("")


def _work(job: Job, arguments: argparse.Namespace, end: float) -> dict[str, Any] | None:
    if time.monotonic() > end:  # one clock for all processes of a machine
        return None
    import torch

    torch.set_num_threads(1)
    began = time.monotonic()
    try:
        row = learn(job, arguments) if job.task else make_encoder(job, arguments)
    except Exception as error:  # one job that fails must not end the others
        row = {"error": f"{type(error).__name__}: {error}"}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the other processes need it
    return {"key": job.key(), **asdict(job), **row, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", action="append", default=[], metavar="NAME=FOLDER", required=True)
    parser.add_argument("--prepared", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--part", action="append", metavar="STUDY:TASKS:SEEDS[:ENCODERS]", help=" ".join(PARTS))
    parser.add_argument("--languages", type=_words, default=LANGUAGES)
    parser.add_argument("--study-languages", type=_words, default=("ru", "hi"))
    parser.add_argument("--text", action="append", default=[], metavar="LANGUAGE=FILE", help="of `vocabulary`")
    parser.add_argument("--pieces", type=int, default=3000, help="new pieces of `vocabulary`")
    parser.add_argument("--extension-steps", type=int, default=1000, help="masked-LM steps with the new pieces")
    parser.add_argument("--extension-tokens", type=int, default=65_536, help="tokens of such a step")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of each language, where a study says nothing")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="start no further job after so many minutes")
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate of fine-tuning")
    parser.add_argument("--adjust-rate", type=float, default=2e-4, help="learning rate of adjustment")
    parser.add_argument("--adjust-rate-from", type=Path, help="choose it by this file of study `rate`, if there is one")
    parser.add_argument("--steps", type=int, help="stop every training after so many steps: a dry run")
    parser.add_argument("--limit", type=int, help="at most so many test examples per language")
    parser.add_argument("--scratch", type=Path, default=Path("runs/adjust"))
    parser.add_argument("--list", action="store_true", help="say which jobs there are, and stop")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.encoder = dict(item.split("=", 1) for item in arguments.encoder)
    arguments.text = dict(item.split("=", 1) for item in arguments.text)
    if arguments.adjust_rate_from and arguments.adjust_rate_from.exists():
        found = json.loads(arguments.adjust_rate_from.read_text(encoding="utf-8"))
        arguments.adjust_rate = best_rate(found, arguments.adjust_rate)
    results: dict[str, Any] = {"adjust_rate": arguments.adjust_rate, "rate": arguments.rate, "encoders": [], "jobs": []}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
        if results["adjust_rate"] != arguments.adjust_rate:
            parser.error(f"{arguments.out} was made with --adjust-rate {results['adjust_rate']:g}")
    done = {row["key"] for row in results["jobs"]}
    parts = [Part.read(text, tuple(arguments.encoder)) for text in arguments.part or PARTS]
    everything = dict.fromkeys(job for part in parts for job in part.jobs(arguments))
    tasks = [job for job in everything if job.key() not in done]
    # An encoder that the file knows may lie on another machine: those that are needed and not here are made.
    waiting: dict[str, Job] = {}
    for job in tasks:
        chain = [job]
        while (before := chain[-1].start()) is not None and not home_of(before, arguments).exists():
            chain.append(before)
        waiting |= {item.key(): item for item in reversed(chain) if item.key() not in waiting}
    counts = f"{len(waiting) - len(tasks)} encoders to make, {len(tasks)} tasks to learn, {len(done)} done"
    print(f"{counts}; rate of adjustment {arguments.adjust_rate:g}", flush=True)
    if arguments.list:
        print("\n".join(waiting))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The tokenizers of many workers would fight for the cores.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("CROSSLIFT_CACHE", str(arguments.scratch / "cache"))
    os.environ.setdefault("CROSSLIFT_CACHE_LIMIT", str(32 << 30))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes is not None else float("inf")

    def take(row: dict[str, Any]) -> None:
        if "error" not in row:
            part = "jobs" if row["task"] else "encoders"
            results[part] = [*(old for old in results[part] if old["key"] != row["key"]), row]
            draft = arguments.out.with_suffix(".tmp")
            draft.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            draft.replace(arguments.out)
        said = row.get("error") or row.get("scores") or {k: row[k] for k in ("before", "after") if k in row}
        print(f"{row['seconds']:6.1f} s  {row['key']}  {said}", flush=True)

    with ProcessPoolExecutor(arguments.workers, mp_context=mp.get_context("spawn")) as pool:
        run_all(waiting, lambda job: pool.submit(_work, job, arguments, end), arguments, take)


def run_all(
    waiting: dict[str, Job],
    submit: Callable[[Job], Future[dict[str, Any] | None]],
    arguments: argparse.Namespace,
    take: Callable[[dict[str, Any]], None],
) -> None:
    """Do jobs in their order, each after the one that makes its encoder; of one that failed, the followers are left."""
    running: dict[Future[dict[str, Any] | None], str] = {}
    lost: set[str] = set()
    while waiting or running:
        for key, job in list(waiting.items()):
            before = job.start()
            needed = before.key() if before else ""
            if needed in lost:
                print(f"left out: {key}, without {needed}", flush=True)
                lost.add(key)
                del waiting[key]
            elif needed not in waiting and needed not in running.values() and len(running) < arguments.workers:
                running[submit(waiting.pop(key))] = key
            if len(running) == arguments.workers:
                break
        if not running:
            continue
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            key = running.pop(future)
            row = future.result()
            if row is None or "error" in row:
                lost.add(key)
            if row is not None:
                take(row)
            else:  # the time is over
                waiting.clear()


def _words(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


if __name__ == "__main__":
    main()
