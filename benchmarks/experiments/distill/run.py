"""The distillation table: source model, bridge and student per language, variants and baselines, on four public sets.

    CROSSLIFT_DATA=… python benchmarks/experiments/distill/run.py --out DIR [--sets massive-intent,sib200] [--workers 4]
    python benchmarks/experiments/distill/table.py DIR > table.md

The English training set is cut into halves by parallel id: the source model learns from the labels of one, and only the
text of the other, in every language, is seen by bridges and students. So no translation of a labelled sentence is ever
distilled on. Every job writes one JSON file to DIR/results; a job whose file is there is not run again, so that the
command can be stopped and started at will. Jobs run in stages (source, bridge, student), several at a time. `--dry`
runs everything once, with a few texts and steps, to see that it works.
"""

import argparse
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

ARCHITECTURES = ("transformer", "bilstm", "cnn")


@dataclass(frozen=True)
class Set:
    """A public set.

    Attributes:
        targets: Languages with text for a student.
        text: Split that holds it; its labels are not read.
        bridge_only: Further languages in which source model and bridge are scored.
        translated: Whether the training set is parallel (upper bounds with human translations).
    """

    targets: tuple[str, ...]
    text: str = "train"
    bridge_only: tuple[str, ...] = ()
    translated: bool = False


MASSIVE = ("de", "es", "fr", "pt", "it", "ru", "tr", "ar", "hi", "th", "vi", "id", "zh", "ja", "sw")
SETS = {
    "massive-intent": Set(MASSIVE, translated=True),
    "massive-slots": Set(MASSIVE, translated=True),
    "sib200": Set(("de", "es", "fr", "ru", "tr", "ar", "hi", "th", "vi", "zh", "sw"), translated=True),
    "xsid-intent": Set(("da",), "projected-train", ("de", "id", "it", "ja", "nl", "tr", "zh", "ar", "sr", "lt")),
    "xsid-slots": Set(("da",), "projected-train", ("de", "id", "it", "ja", "nl", "tr", "zh", "ar", "sr", "lt")),
    "panx": Set(("de", "es", "fr", "ru", "tr", "ar", "hi", "vi", "id", "sw"), "dev"),
}


CLASSES = ("massive-intent", "sib200", "xsid-intent")
"""Sets whose text can be translated and paraphrased: the words of tagged text do not carry over."""


@dataclass(frozen=True)
class Job:
    """One model of the table; what is empty does not apply."""

    set: str
    role: str  # source, bridge, student, gold, translate-test, translate-train
    seed: int
    source: str  # architecture of the source model
    bridge: str = ""
    variant: str = ""  # of the bridge's text: plain, balanced, human
    student: str = ""
    augmented: bool = False
    language: str = ""

    @property
    def name(self) -> str:
        """The job as a file name."""
        parts = (self.set, self.role, self.source, Path(self.bridge).name, self.variant, self.student)
        more = ("augmented" if self.augmented else "", self.language, f"seed{self.seed}")
        return "_".join(part for part in (*parts, *more) if part)


@dataclass(frozen=True)
class Plan:
    """What the whole table is made with."""

    out: Path
    bridges: tuple[str, ...]
    architectures: tuple[str, ...]
    lexicons: str
    seeds: tuple[int, ...]
    epochs: float
    bridge_epochs: float
    limit: int | None
    steps: int | None
    grid: bool

    def folder(self, job: Job) -> Path:
        """Where a job's run lies."""
        return self.out / "runs" / job.name

    def source_of(self, job: Job) -> Job:
        """The source model that a job builds on."""
        return Job(job.set, "source", job.seed, job.source)

    def bridge_of(self, job: Job) -> Job:
        """The bridge that a student learns from."""
        return Job(job.set, "bridge", job.seed, job.source, job.bridge, job.variant)

    def pace(self, epochs: float) -> dict[str, object]:
        """Epochs, or in a dry run steps."""
        return {"steps": self.steps, "evaluations": 1, "learning_rate": 1e-3} if self.steps else {"epochs": epochs}


def jobs(plan: Plan, sets: list[str], targets: list[str] | None) -> Iterator[list[Job]]:
    """Return the stages of the table, each a list of jobs that do not need one another."""
    chosen = [(name, [x for x in SETS[name].targets if targets is None or x in targets]) for name in sets]
    yield [Job(s, "source", seed, a) for (s, _), seed, a in itertools.product(chosen, plan.seeds, plan.architectures)]
    yield [
        Job(s, "bridge", seed, a, bridge, variant)
        for (s, _), seed, a, bridge in itertools.product(chosen, plan.seeds, plan.architectures, plan.bridges)
        for variant in variants(s)
    ]
    last = []
    for (s, languages), seed in itertools.product(chosen, plan.seeds):
        for language, a in itertools.product(languages, plan.architectures):
            last.append(Job(s, "gold", seed, "", student=a, language=language))
            for how in ("translate-test", "translate-train") if can_translate(plan, language) else ():
                last.append(Job(s, how, seed, a, student=a if how == "translate-train" else "", language=language))
            # The grid source × student on plain text with the first bridge; otherwise like teaches like.
            for b in plan.architectures if plan.grid else (a,):
                last.append(Job(s, "student", seed, a, plan.bridges[0], "plain", b, language=language))
            for bridge, variant in itertools.product(plan.bridges, variants(s)):
                if (bridge, variant) != (plan.bridges[0], "plain"):
                    last.append(Job(s, "student", seed, a, bridge, variant, a, language=language))
            if s in CLASSES:
                last.append(Job(s, "student", seed, a, plan.bridges[0], "plain", a, True, language))
    yield last


def variants(name: str) -> list[str]:
    """Return the texts a bridge can learn from; there is no dictionary for xSID's Danish."""
    return ["plain", "balanced", "human"] if name in CLASSES and SETS[name].translated else ["plain"]


def half(name: str, language: str, part: str, limit: int | None) -> object:
    """Return one half of a training set by parallel id; text that is no training set has no labelled half."""
    import crosslift as xl

    split = "train" if language == "en" else SETS[name].text
    found = xl.load(name, language=language, split=split)
    if split != "dev":
        # A seed of its own: crosslift cuts dev and held-out parts by the same hash with other seeds.
        found = found.split({"annotated": 0.5, "unannotated": 0.5}, seed=15)[part]
    return found.take(limit) if limit else found


def label_names(name: str) -> list[str]:
    """Return the labels of a set: rare ones may be in one half only."""
    import crosslift as xl

    names = {x for split in ("train", "dev") for x in xl.load(name, language="en", split=split).label_names()}
    return sorted(names, key=lambda x: (x != "O", x))


def translator(plan: Plan, language: str) -> str:
    """Return who translates: Apertium where it can, a dictionary elsewhere."""
    return "apertium" if language == "es" else f"dictionary:{plan.lexicons}"


def can_translate(plan: Plan, language: str) -> bool:
    """Whether there is a translator for a language: Danish has none here."""
    return language == "es" or Path(plan.lexicons.replace("{lang}", language)).exists()


def start_folder(plan: Plan, name: str, language: str, architecture: str) -> Path:
    """Return a new small model of a language, its vocabulary trained on the unlabelled half; made once."""
    from crosslift.models.students import new_student, save_student, student_tokenizer

    home = plan.out / "starts" / f"{name}_{language}_{architecture}"
    if not home.exists():
        text = half(name, language, "unannotated", None)
        tokenizer = student_tokenizer({language: list(text.texts)})
        save_student(new_student(architecture, tokenizer, text.kind), tokenizer, home)
    return home


def work(plan: Plan, job: Job) -> None:
    """Train and score one job, and write its result."""
    import crosslift as xl
    from crosslift.runs import agreement

    if plan.steps:
        agreement._FEW = 10**9  # after two steps every student has collapsed
    began = time.monotonic()
    run, languages, scores = None, [job.language], None
    common = {"out": plan.folder(job), "seeds": [job.seed]}
    if job.role == "source":
        data, dev = half(job.set, "en", "annotated", plan.limit), xl.load(job.set, language="en", split="dev")
        model = start_folder(plan, job.set, "en", job.source)
        pace = plan.pace(30) if plan.steps else {"epochs": 30, "learning_rate": 1e-3}
        labels = label_names(job.set)
        run = xl.fit("finetune", model=model, data=data, dev=dev, labels=labels, batch_size=64, **pace, **common)
        languages = ["en"]
    elif job.role == "bridge":
        run, languages = bridge(plan, job, common)
    elif job.role == "student":
        run = student(plan, job, common)
    elif job.role == "gold":
        data = half(job.set, job.language, "annotated", plan.limit)
        model = start_folder(plan, job.set, job.language, job.student)
        pace = plan.pace(30) if plan.steps else {"epochs": 30, "learning_rate": 1e-3}
        given = {"model": model, "data": data, "source": job.language, "labels": label_names(job.set)}
        run = xl.fit("finetune", **given, batch_size=64, **pace, **common)
    else:
        run, scores = translated(plan, job, common)
    scores = scores or xl.evaluate(run, job.set, languages, limit=plan.limit, keep_unknown=True)
    found = {x: main_score(scores, x) for x in languages}
    facts = run.summary()[0] if run is not None else {}
    result = {**asdict(job), "scores": found, "seconds": round(time.monotonic() - began, 1)}
    result |= {k: facts[k] for k in ("selected_on", "learning_rate", "dev") if k in facts}
    file = plan.out / "results" / f"{job.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".tmp").write_text(json.dumps(result, indent=1) + "\n")
    file.with_suffix(".tmp").rename(file)


def main_score(scores: object, language: str) -> float:
    """Return the main score of a language, of the only seed."""
    by_seed = scores.rows[language]
    return next(iter(next(iter(by_seed.values())).values())).value


def bridge(plan: Plan, job: Job, common: dict) -> tuple[object, list[str]]:
    from crosslift.runs.distill import distill
    from crosslift.translate import open_translator
    from crosslift.translate.balanced import balanced

    text = half(job.set, "en", "unannotated", plan.limit)
    targets = SETS[job.set].targets
    translations = None
    if job.variant == "balanced":
        # Balanced text leaves out languages without a dictionary.
        there = [x for x in targets if can_translate(plan, x)]
        translations = balanced(text, {x: open_translator(translator(plan, x), "en", x) for x in there})
    elif job.variant == "human":
        translations = {x: half(job.set, x, "unannotated", None) for x in targets}
    run = distill(
        teacher=plan.folder(plan.source_of(job)), text={"en": text}, student=job.bridge, translations=translations,
        cache=plan.out / "cache", **plan.pace(plan.bridge_epochs), **common,
    )  # fmt: skip
    return run, ["en", *targets, *SETS[job.set].bridge_only]


def student(plan: Plan, job: Job, common: dict) -> object:
    from crosslift.runs.distill import distill
    from crosslift.translate.augment import noise

    text = half(job.set, job.language, "unannotated", plan.limit)
    if job.augmented:
        text, _ = noise(text.unlabelled(), samples=5)
    return distill(
        teacher=plan.folder(plan.bridge_of(job)), text={job.language: text}, student=job.student,
        cache=plan.out / "cache", **plan.pace(plan.epochs), **common,
    )  # fmt: skip


def translated(plan: Plan, job: Job, common: dict) -> tuple[object, object]:
    from crosslift.runs.fit import open_run
    from crosslift.runs.translate_baselines import translate_test, translate_train

    source = open_run(plan.folder(plan.source_of(job)))
    if job.role == "translate-test":
        back = "apertium" if job.language == "es" else f"dictionary-back:{plan.lexicons}"
        scores = translate_test(
            source, job.set, [job.language], translator=back, out=plan.folder(job), limit=plan.limit, keep_unknown=True
        )
        return source, scores
    pace = plan.pace(30) if plan.steps else {"epochs": 30, "learning_rate": 1e-3}
    run = translate_train(
        source, half(job.set, "en", "unannotated", plan.limit), target=job.language,
        translator=translator(plan, job.language), model=start_folder(plan, job.set, job.language, job.student),
        batch_size=64, **pace, **common,
    )  # fmt: skip
    return run, None


def attempt(plan: Plan, job: Job) -> str:
    """Run one job; what goes wrong is written beside the results and stops no other job."""
    if (plan.out / "results" / f"{job.name}.json").exists():
        return ""
    try:
        work(plan, job)
        return f"done    {job.name}"
    except Exception:
        file = plan.out / "failed" / f"{job.name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(traceback.format_exc())
        return f"FAILED  {job.name} ({file})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--targets", help="languages, such as de,th (default: all)")
    parser.add_argument("--bridges", default="mini-x", help="multilingual encoders, the main one first")
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES), help="of source models and students")
    parser.add_argument("--lexicons", default="../shared/pretraining/lexicon-{lang}.tsv.xz", help="English TAB word")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--epochs", type=float, default=50, help="of the students")
    parser.add_argument("--bridge-epochs", type=float, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--no-grid", action="store_true", help="students of the source model's architecture only")
    parser.add_argument("--dry", action="store_true", help="one seed, one target, a few texts and steps")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    dry = arguments.dry
    plan = Plan(
        out=arguments.out,
        bridges=tuple(arguments.bridges.split(",")),
        architectures=tuple(arguments.architectures.split(",")),
        lexicons=arguments.lexicons,
        seeds=(1,) if dry else tuple(map(int, arguments.seeds.split(","))),
        epochs=arguments.epochs,
        bridge_epochs=arguments.bridge_epochs,
        limit=80 if dry else None,
        steps=2 if dry else None,
        grid=not arguments.no_grid,
    )
    targets = arguments.targets.split(",") if arguments.targets else None
    # Processes of their own, begun fresh: a fork would share the state of a GPU.
    pool = ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the workers are told, too
    try:
        for stage in jobs(plan, arguments.sets.split(","), targets):
            for line in pool.map(attempt, itertools.repeat(plan), stage):
                if line:
                    print(line, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
