"""Adjustment and continual learning on real data: the tables behind `benchmarks/results/adjust.json`.

    python benchmarks/experiments/adjust/transfer.py prepare --pairs FOLDER --bitext DIR      # once, on a CPU
    python benchmarks/experiments/adjust/transfer.py run --bitext DIR --encoder mini-x=FOLDER --out FILE
    python benchmarks/experiments/adjust/transfer.py table --out FILE

`prepare` aligns words and writes `SOURCE-LANGUAGE.tsv` with `SOURCE-LANGUAGE.pharaoh` (sources: `prose`, files
`pairs-*.txt.xz` of language, English and translation; `tatoeba`, the catalog's bitext). `run` has two stages, both in
parallel processes: encoders are adjusted, then tasks are learnt in English and scored in each language. Everything that
is done is in FILE and is not done again. Studies:

- main: original, adjusted, adjusted + continual (both presets) in every language
- size: adjusted with 1,000 to 20,000 pairs
- pooling, linked: what a word vector is, and what is linked
- quality: the other source of pairs, at the size of the smaller one
- control: original and adjusted, learnt and tested in English, and learnt and tested in the target language

Learning rates are those of the minis; nothing is chosen by target labels. Needs CROSSLIFT_DATA.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing as mp
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

LANGUAGES = ("es", "ru", "vi", "hi")
STUDIES = ("main", "size", "pooling", "linked", "quality", "control")
SIZES = (1000, 2000, 5000, 10000, 20000)
TASKS: dict[str, dict[str, object]] = {
    "xnli": {"data": "mnli", "test": "xnli", "epochs": 3, "mixes": (None, "sentences")},
    "panx": {"data": "panx", "test": "panx", "epochs": 5, "mixes": (None,)},
    "xquad": {
        "data": "squad", "test": "xquad", "epochs": 3, "max_length": 256, "stride": 64, "max_answer_length": 60,
        "mixes": (None, "context", "question"),
    },
}  # fmt: skip
CONTROL = {"data": "massive-intent", "test": "massive-intent", "epochs": 5, "mixes": (None,)}
MIXES = {None: "", "sentences": " mixed", "context": " q target, p en", "question": " q en, p target"}


@dataclass(frozen=True)
class Job:
    """One task learnt once.

    Attributes:
        study: What it is for.
        encoder: Name of the encoder.
        system: original, adjusted, continual, …
        language: Language the encoder was adjusted to, or "" for the original.
        task: See `TASKS`; `control` is a task learnt in `source`.
        seed: Of adjustment and fine-tuning.
        adjust: Settings of `crosslift.adjust`; empty: none.
        continual: Settings of fine-tuning with adjustment; empty: plain.
        pairs: Source of the sentence pairs.
        source: Language the task is learnt in.
    """

    study: str
    encoder: str
    system: str
    language: str
    task: str
    seed: int
    adjust: dict[str, object] = field(default_factory=dict)
    continual: dict[str, object] = field(default_factory=dict)
    pairs: str = "prose"
    source: str = "en"

    def adjusted(self) -> str:
        """Return the name of the adjusted encoder: jobs that share it share its folder."""
        words = [self.encoder, self.pairs, self.language, *(f"{k}-{v}" for k, v in sorted(self.adjust.items()))]
        return "-".join([*words, f"seed-{self.seed}"])

    def key(self) -> str:
        """Return what tells this job from others."""
        words = (self.encoder, self.system, self.language or "all", self.task, self.source, f"seed-{self.seed}")
        return "/".join(words)


def jobs(encoders: list[str], arguments: argparse.Namespace) -> Iterator[Job]:
    """Yield all jobs of the chosen studies; the original encoder serves all languages at once."""
    seeds = range(1, arguments.seeds + 1)
    pairs = {"pairs": arguments.most} if arguments.most else {}
    chosen, languages, tasks = arguments.studies, arguments.languages, arguments.tasks
    for seed in seeds:
        for encoder in encoders:
            for task in tasks:
                yield Job("main", encoder, "original", "", task, seed)
                for language in languages:
                    start = {"language": language, "task": task, "seed": seed}
                    if "main" in chosen:
                        yield Job("main", encoder, "adjusted", **start, adjust={**pairs, "preset": "paper"})
                        for preset in ("paper", "released"):
                            yield Job(
                                "main", encoder, f"continual-{preset}", **start,
                                adjust={**pairs, "preset": "paper"}, continual={"adjustment_preset": preset},
                            )  # fmt: skip
                    if "size" in chosen and language in arguments.study_languages:
                        for size in arguments.sizes:
                            yield Job("size", encoder, f"pairs-{size}", **start, adjust={"pairs": size})
                    if "pooling" in chosen and language in arguments.study_languages:
                        for how in ("first", "last", "subwords"):
                            yield Job("pooling", encoder, f"pooling-{how}", **start, adjust={**pairs, "pooling": how})
                        cao = {**pairs, "preset": "cao"}
                        yield Job("pooling", encoder, "cao", **start, adjust=cao)
                    if "linked" in chosen and language in arguments.study_languages:
                        for which in ("cls", "specials", "words"):
                            yield Job("linked", encoder, f"linked-{which}", **start, adjust={**pairs, "linked": which})
                    if "quality" in chosen:
                        size = {"pairs": arguments.quality_pairs}
                        for source in ("prose", "tatoeba"):
                            yield Job("quality", encoder, f"source-{source}", **start, adjust=size, pairs=source)
            if "control" in chosen:
                for language in languages:
                    for source in ("en", language):
                        start = {"language": language, "task": "control", "seed": seed, "source": source}
                        yield Job("control", encoder, "original", **start)
                        yield Job("control", encoder, "adjusted", **start, adjust={**pairs, "preset": "paper"})


def bitext_of(job: Job, folder: Path) -> tuple[dict[str, str], dict[str, object]]:
    """Return the sentence pairs of a job and how their words are linked."""
    stem = folder / f"{job.pairs}-{job.language}"
    links = {} if job.adjust.get("pooling") == "subwords" else {"aligner": f"{stem}.pharaoh"}
    return {job.language: f"{stem}.tsv"}, links


def adjust_encoder(job: Job, model: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Adjust one encoder and measure it on pairs that it has not seen."""
    import torch

    from crosslift.runs.adjust import adjust

    torch.set_num_threads(1)
    bitext, links = bitext_of(job, arguments.bitext)
    short = {"steps": arguments.steps} if arguments.steps else {}
    done = adjust(
        bitext=bitext, model=model, out=arguments.scratch / job.adjusted(), seed=job.seed,
        learning_rate=arguments.adjust_rate, **links, **job.adjust, **short,
    )  # fmt: skip
    facts = {name: done.summary[name] for name in ("pairs", "links", "steps", "seconds", "before", "after")}
    return {"adjusted": job.adjusted(), **facts}


def learn(job: Job, model: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Learn a task and score it; predictions stay in the scratch folder for the paired tests, weights do not."""
    import torch

    import crosslift as xl
    from crosslift.data import splits_of

    torch.set_num_threads(1)
    began = time.monotonic()
    facts = dict(CONTROL if job.task == "control" else TASKS[job.task])
    data, test, mixes = facts.pop("data"), str(facts.pop("test")), facts.pop("mixes")
    continual: dict[str, object] = {}
    if job.continual:
        bitext, links = bitext_of(job, arguments.bitext)
        pairs = {"pairs": job.adjust["pairs"]} if "pairs" in job.adjust else {}
        continual = {"with_adjustment": bitext, **links, **pairs, **job.continual}
    if arguments.steps:
        facts["steps"] = arguments.steps
        if "dev" in splits_of(str(data)):
            facts["dev"] = xl.load(data, language=job.source, split="dev").take(50)
    out = arguments.scratch / "tasks" / job.key()
    run = xl.fit(
        "finetune", model=arguments.scratch / job.adjusted() if job.adjust else model, data=data, source=job.source,
        out=out, seeds=[job.seed], learning_rate=arguments.rate, evaluations=1, select="last", max_tokens=16384,
        limit=arguments.train_limit, **facts, **continual,
    )  # fmt: skip
    languages = [job.source] if job.task == "control" else ([job.language] if job.language else arguments.languages)
    if job.task != "control":
        languages = [*languages, "en"]
    scores: dict[str, dict[str, float]] = {}
    for mix in mixes:
        wanted = [language for language in languages if mix is None or language != "en"]
        found = xl.evaluate(run, test, wanted, mix=mix, keep_unknown=True, limit=arguments.limit)
        for language, by_seed in found.rows.items():
            scores[language + MIXES[mix]] = {n: round(s.value, 2) for n, s in by_seed[job.seed].items()}
    for heavy in (out / "model", out / "variants"):
        shutil.rmtree(heavy, ignore_errors=True)
    return {**asdict(job), "key": job.key(), "scores": scores, "seconds": round(time.monotonic() - began, 1)}


def tests(rows: list[dict[str, object]], scratch: Path) -> list[dict[str, object]]:
    """Compare adjusted with original, and continual with adjusted: paired, over all seeds, as in the paper."""
    from crosslift.errors import BadInput
    from crosslift.runs.compare import compare
    from crosslift.runs.evaluate import evaluation_name

    found = []
    for row in {r["key"].rsplit("/", 1)[0]: r for r in rows if r["language"]}.values():
        base = "adjusted" if row["system"].startswith("continual") else "original"
        if row["system"] == "original":
            continue
        whose = row["language"] if base == "adjusted" or row["task"] == "control" else "all"
        mine = scratch / "tasks" / row["key"].rsplit("/", 1)[0]
        theirs = scratch / "tasks" / "/".join((row["encoder"], base, whose, row["task"], row["source"]))
        facts = CONTROL if row["task"] == "control" else TASKS[row["task"]]
        languages = [row["source"]] if row["task"] == "control" else [row["language"]]
        for mix in facts["mixes"]:
            name = evaluation_name(str(facts["test"]), mix=mix)
            try:
                compared = compare(mine, theirs, data=name, languages=languages)
            except BadInput as error:  # seeds that are still to come
                print(f"not compared: {mine} and {theirs} on {name}: {error.seen}")
                continue
            found.append({
                "system": row["system"], "against": base, "encoder": row["encoder"], "task": row["task"],
                "language": row["language"], "source": row["source"], "mix": mix, **compared.to_dict(),
            })  # fmt: skip
    return found


def table(results: dict[str, list]) -> str:
    """Return markdown tables: mean ± sd over seeds (English: over all languages' encoders as well).

    * marks a difference from the base of the paired test (p < 0.05): adjusted from original, continual from adjusted.
    """
    from statistics import fmean, stdev

    rows = results["jobs"]
    marks = {
        (t["encoder"], t["task"], t["system"], language + MIXES[t["mix"]])
        for t in results["tests"]
        for language, entry in t["languages"].items()
        if entry["p_value"] < 0.05
    }
    lines: list[str] = []
    for encoder, task in dict.fromkeys((r["encoder"], r["task"]) for r in rows):
        own = [r for r in rows if (r["encoder"], r["task"]) == (encoder, task)]
        names = list(dict.fromkeys(name for r in own for name in r["scores"]))
        lines += [f"### {encoder}, {task}", "", "| system | " + " | ".join(names) + " |"]
        lines += ["| --- |" + " --- |" * len(names)]
        for system in dict.fromkeys(r["system"] for r in own):
            cells = []
            for name in names:
                of = [r["scores"][name] for r in own if r["system"] == system and name in r["scores"]]
                values = [next(iter(scores.values())) for scores in of]
                spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
                mark = "*" if (encoder, task, system, name) in marks else ""
                cells.append(f"{fmean(values):.2f}{spread}{mark}" if values else "–")
            lines.append(f"| {system} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def prepare(arguments: argparse.Namespace) -> None:
    """Write pairs and links of every language and source, filtered and shuffled."""
    import numpy as np

    import crosslift as xl
    from crosslift.align import align_words, write_pharaoh
    from crosslift.data.bitext_filter import BitextFilter, filter_bitext
    from crosslift.data.examples import Examples

    arguments.bitext.mkdir(parents=True, exist_ok=True)
    prose: dict[str, list[tuple[str, str]]] = {language: [] for language in arguments.languages}
    for file in sorted(arguments.pairs.glob("pairs-0*.txt.xz")):
        with lzma.open(file, "rt", encoding="utf-8", newline="\n") as stream:
            for line in stream:
                language, *pair = line.rstrip("\n").split("\t")
                if language in prose:
                    prose[language].append((pair[0], pair[1]))
    for language in arguments.languages:
        tatoeba = xl.load("bitext", language=language, split="train")
        found = {"prose": prose[language], "tatoeba": list(zip(tatoeba.texts, tatoeba.pairs, strict=True))}
        for source, pairs in found.items():
            order = np.random.default_rng(0).permutation(len(pairs))
            texts, others = zip(*(pairs[i] for i in order), strict=True)
            ids = [str(i) for i in range(len(pairs))]
            bitext = Examples("bitext", "en", ids, texts, others, pair_language=language, name=f"{source}-{language}")
            bitext = filter_bitext(bitext, BitextFilter())
            aligned = align_words(bitext)
            stem = arguments.bitext / bitext.name
            lines = (f"{a}\t{b}\n" for a, b in zip(bitext.texts, bitext.pairs, strict=True))
            stem.with_suffix(".tsv").write_text("".join(lines), encoding="utf-8")
            write_pharaoh(stem.with_suffix(".pharaoh"), aligned.alignment)
            print(f"{bitext.name}: {len(bitext):,} pairs; left out: {dict(bitext.skipped)}", flush=True)


def run(arguments: argparse.Namespace) -> None:
    """Do what is not done yet: adjust, learn, compare."""
    folders = dict(item.split("=", 1) for item in arguments.encoder)
    results: dict[str, list] = {"adjusted": [], "jobs": [], "tests": []}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text())
    everything = {job.key(): job for job in jobs(list(folders), arguments)}
    done = {row["key"] for row in results["jobs"]}
    waiting = [job for key, job in everything.items() if key not in done]
    made = {row["adjusted"] for row in results["adjusted"]}
    # An encoder that was made elsewhere is made again: the file knows it, this machine does not.
    to_make = {
        job.adjusted(): job
        for job in waiting
        if job.adjust and not (job.adjusted() in made and (arguments.scratch / job.adjusted() / "model").exists())
    }
    print(f"{len(to_make)} encoders to adjust, {len(waiting)} of {len(everything)} tasks to learn", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def save() -> None:
        arguments.out.write_text(json.dumps(results, indent=1, ensure_ascii=False))

    with mp.get_context("spawn").Pool(arguments.workers, maxtasksperchild=8) as pool:
        for stage, work, queue in (("adjusted", adjust_encoder, to_make.values()), ("jobs", learn, waiting)):
            handles = [pool.apply_async(work, (job, folders[job.encoder], arguments)) for job in queue]
            for handle in handles:
                row = handle.get()
                if stage == "adjusted":
                    results[stage] = [old for old in results[stage] if old["adjusted"] != row["adjusted"]]
                results[stage].append(row)
                save()
                print(stage, row.get("key", row.get("adjusted")), row["seconds"], "s", flush=True)
    results["tests"] = tests(results["jobs"], arguments.scratch)
    save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("prepare", "run", "table"))
    parser.add_argument("--encoder", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--pairs", type=Path, help="folder of pairs-0*.txt.xz")
    parser.add_argument("--bitext", type=Path, help="folder of prepared pairs")
    parser.add_argument("--studies", type=_words, default=("main",), help=",".join(STUDIES))
    parser.add_argument("--tasks", type=_words, default=tuple(TASKS))
    parser.add_argument("--languages", type=_words, default=LANGUAGES)
    parser.add_argument("--study-languages", type=_words, default=("ru", "hi"), help="of size, pooling and linked")
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, _words(text))), default=SIZES)
    parser.add_argument("--most", type=int, default=15000, help="pairs of each language in main, pooling and linked")
    parser.add_argument("--quality-pairs", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate of fine-tuning")
    parser.add_argument("--adjust-rate", type=float, default=5e-5, help="learning rate of adjustment")
    parser.add_argument("--steps", type=int, help="stop every run after so many steps: a dry run")
    parser.add_argument("--limit", type=int, help="at most so many test examples per language")
    parser.add_argument("--train-limit", type=int, help="at most so many training examples")
    parser.add_argument("--scratch", type=Path, default=Path("runs/adjust"))
    parser.add_argument("--out", type=Path, help="results, as JSON")
    arguments = parser.parse_args()
    if arguments.action == "prepare":
        prepare(arguments)
    elif arguments.action == "run":
        run(arguments)
    if arguments.action != "prepare":
        print(table(json.loads(arguments.out.read_text())))


def _words(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


if __name__ == "__main__":
    main()
