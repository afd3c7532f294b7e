"""Distil: a teacher and unlabelled text in, a student out. No label is read anywhere.

`distill` is one step (one teacher, one student, one run folder); `distill_two_steps` goes from a source-language model
over a multilingual bridge to one small student per target language.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from crosslift.data import load
from crosslift.data.examples import Examples, Kind
from crosslift.errors import BadInput
from crosslift.methods.distill import Distill, Settings
from crosslift.models.frozen import FrozenCache, FrozenRows
from crosslift.models.load import load_model, load_tokenizer, model_kind, model_labels
from crosslift.models.students import (
    PIECES,
    STUDENTS,
    Pooling,
    new_student,
    save_student,
    save_with_layers,
    student_tokenizer,
)
from crosslift.models.teachers import Teacher, make_task, open_teacher, same_labels, teacher_outputs
from crosslift.runs.agreement import Agreement, refuse_dull_teacher, with_teacher_labels
from crosslift.runs.distill_data import Corpus, Text, make_corpus, read_text, vocabulary_texts
from crosslift.runs.evaluate import dev_scorer
from crosslift.runs.fit import Plan, Run, describe_plan, fingerprint, save_model
from crosslift.runs.folder import RunFolder
from crosslift.runs.machine import describe
from crosslift.runs.progress import Silent, Watch
from crosslift.runs.range_test import range_test
from crosslift.runs.settings import Execution, Optimisation, Selection, sort_settings
from crosslift.runs.train import Trained, make_accelerator, train
from crosslift.tasks import TASKS

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TeacherLike = str | Path | Run | Callable[..., object]

# Rates between which the range test looks: a student that knows nothing yet takes larger steps than a trained encoder,
# and a narrow encoder larger ones than a wide one.
_NEW, _TRAINED = (1e-4, 5e-3), (1e-5, 2e-4 * 768)


@dataclass(frozen=True)
class StudentShape:
    """What the student looks like, where that is to be decided."""

    pieces: int = field(default=PIECES, metadata={"help": "New student: size of its vocabulary."})
    pooling: Pooling = field(
        default="default",
        metadata={"help": "New BiLSTM or CNN: how a text becomes one vector; last and padded: the paper."},
    )
    layers: int | None = field(default=None, metadata={"help": "Encoder as student: keep so many of its layers."})


@dataclass(frozen=True)
class DistillOptimisation(Optimisation):
    """How the student's weights move; the paper's values."""

    learning_rate: float = field(
        default=3e-4, metadata={"help": "Peak learning rate; if not given, a range test of 100 steps finds one."}
    )
    epochs: float = field(default=50.0, metadata={"help": "Passes over the text."})
    batch_size: int = field(default=64, metadata={"help": "Texts per optimiser step, over all processes."})
    warmup: float = field(default=0.05, metadata={"help": "Share of the steps in which the rate rises."})


SETTINGS = (Settings, StudentShape, DistillOptimisation, Execution, Selection)
"""Dataclasses whose fields `distill` takes by name, beside those of the task."""


def distill(
    *,
    teacher: TeacherLike,
    text: Mapping[str, Text],
    out: str | Path,
    student: str | Path = "transformer",
    translations: Mapping[str, Examples] | None = None,
    kind: str | None = None,
    labels: Sequence[str] | None = None,
    vocabulary_text: Mapping[str, str | Path] | None = None,
    dev: Text | None = None,
    allow_target_dev: bool = False,
    seeds: Sequence[int] = (1,),
    limit: int | None = None,
    cache: str | Path | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
    **settings: object,
) -> Run:
    """Train a student on what a teacher says about text; started again with the same arguments, it goes on.

    Args:
        teacher: A task model (folder, name, run), an `.onnx` file, a callable `texts -> probabilities`, the address of
            an HTTP endpoint, or a `.jsonl` file of answers.
        text: Language -> text: a file with one text a line, a catalog name, or examples. Labels are not looked at.
        out: Run folder; with several seeds it holds `seed-1`, `seed-2`, …
        student: `transformer`, `bilstm`, `cnn` (new, small), or any encoder or task model by name.
        translations: Language -> translations of the text, which the student reads while the teacher reads the
            original: the one whose parallel id (or id) is theirs. Classification only.
        kind: Task of a black-box teacher.
        labels: Labels of a black-box teacher, in order; of a model: those it must have.
        vocabulary_text: Language -> further text for the vocabulary of a new student.
        dev: Gold dev data in the target language; refused unless `allow_target_dev`.
        allow_target_dev: Select by `dev` instead of by agreement with the teacher; the result says so.
        seeds: One run each.
        limit: Use at most so many texts of each language.
        cache: Folder of the frozen-output cache; default: the user's.
        overwrite: Replace a run that is there already.
        watch: Who is told about progress.
        settings: Anything of `Settings`, `StudentShape`, `DistillOptimisation`, `Execution`, `Selection` and the task.
    """
    watch = watch or Silent()
    if dev is not None and not allow_target_dev:
        raise BadInput(
            "Gold labels of the target language are not used to select a student.",
            "Leave out --dev, or allow it explicitly with --allow-target-dev.",
        )
    opened = open_teacher(_teacher_name(teacher), kind, labels)
    *kept, task_options = sort_settings([*SETTINGS, TASKS[opened.kind]], settings)
    own, shape, optimisation, execution, selection = (cls(**kw) for cls, kw in zip(SETTINGS, kept, strict=True))
    originals = read_text(text, opened.kind, limit, watch)
    corpus = make_corpus(originals, translations or {}, opened.kind, watch)
    names = _label_order(opened, student)
    gold = _gold_dev(dev, opened.kind, next(iter(text)))
    accelerator = make_accelerator(execution)
    out, seeds = Path(out), list(dict.fromkeys(seeds))
    folders = []
    for seed in seeds:
        folder = RunFolder(out if len(seeds) == 1 else out / f"seed-{seed}")
        folders.append(folder)
        job = _Job(
            opened, corpus, names, str(student), own, shape, optimisation, execution, selection, task_options, gold
        )
        config: dict[str, object] = {
            "method": "distill",
            "model": str(student),
            "teacher": opened.name,
            "teacher_identity": opened.identity,
            "data": originals.name,
            "languages": list(text),
            "translations": sorted(translations or {}),
            "source": next(iter(text)),
            "seed": seed,
            "limit": limit,
            "kind": opened.kind,
            "task": {"labels": list(names), **job.lengths()},
            "rate_from": "given" if "learning_rate" in settings else "range test",
            "student": asdict(shape),
            "optimisation": asdict(optimisation),
            "selection": asdict(selection),
            "settings": asdict(own),
            "target_dev": gold.name if gold else None,
            "fingerprint": fingerprint(corpus.examples),
        }
        if accelerator.is_main_process:
            folder = RunFolder.start(folder.path, config, overwrite=overwrite)
        accelerator.wait_for_everyone()
        if folder.done:
            watch.say(f"{folder.path} is done already.")
            continue
        store = FrozenCache(cache) if opened.identity else FrozenCache(folder.path / "teacher")
        search = "learning_rate" not in settings
        if accelerator.is_main_process:
            with folder.locked():
                job.run(folder, seed, store, vocabulary_text or {}, search, accelerator, watch)
        else:
            job.run(folder, seed, store, vocabulary_text or {}, search, accelerator, Silent())
        accelerator.wait_for_everyone()
    return Run(out, folders)


def distill_two_steps(
    *,
    teacher: TeacherLike,
    bridge: str | Path,
    source_text: Mapping[str, Text],
    target_text: Mapping[str, Text],
    out: str | Path,
    student: str | Path = "transformer",
    translations: Mapping[str, Examples] | None = None,
    bridge_settings: Mapping[str, object] | None = None,
    kind: str | None = None,
    labels: Sequence[str] | None = None,
    watch: Watch | None = None,
    **options: Any,  # noqa: ANN401  those of `distill`
) -> dict[str, Run]:
    """Carry a task over in two steps: teacher → multilingual bridge on source text → one student per target language.

    Args:
        teacher: The source-language task model, or a black box (see `distill`).
        bridge: Multilingual encoder by name.
        source_text: The source language -> unlabelled text.
        target_text: Target language -> unlabelled text.
        out: Folder of the runs: `bridge`, and `student-LANGUAGE` for each target.
        student: `transformer`, `bilstm`, `cnn`, or an encoder.
        translations: Language -> translations of the source text (balanced distillation; see `distill`).
        bridge_settings: Settings of the first step where they differ from those of the second (`epochs`, …).
        kind: Task of a black-box teacher.
        labels: Labels of a black-box teacher.
        watch: Who is told about progress.
        options: Further arguments and settings of `distill`, for the second step.

    Returns:
        `bridge` and each target language -> its run.
    """
    out = Path(out)
    shared: dict[str, Any] = {name: options[name] for name in ("cache", "overwrite", "limit") if name in options}
    runs = {
        "bridge": distill(
            teacher=teacher,
            text=source_text,
            student=bridge,
            out=out / "bridge",
            translations=translations,
            kind=kind,
            labels=labels,
            watch=watch,
            **{**shared, **(bridge_settings or {})},
        )
    }
    for language, target in target_text.items():
        runs[language] = distill(
            teacher=runs["bridge"],
            text={language: target},
            student=student,
            out=out / f"student-{language}",
            watch=watch,
            **options,
        )
    return runs


@dataclass(frozen=True)
class _Job:
    """One seed of a distillation."""

    teacher: Teacher
    corpus: Corpus
    labels: tuple[str, ...]
    student: str
    settings: Settings
    shape: StudentShape
    optimisation: DistillOptimisation
    execution: Execution
    selection: Selection
    task_options: Mapping[str, object]
    gold: Examples | None

    def lengths(self) -> dict[str, object]:
        """Return the lengths of the student's task: asked for, or the task's own as far as the student can read."""
        kind = self.teacher.kind
        most = 128 if self.student in STUDENTS and kind != "qa" else 384
        if self.student not in STUDENTS:
            most = load_tokenizer(self.student).model_max_length
        longest = min(int(cast("Any", TASKS[kind]).max_length), most)
        stride = {"stride": min(128, longest // 3)} if kind == "qa" else {}
        return {"max_length": longest, **stride, **self.task_options}

    def run(
        self,
        folder: RunFolder,
        seed: int,
        store: FrozenCache,
        vocabulary_text: Mapping[str, str | Path],
        search: bool,
        accelerator: Accelerator,
        watch: Watch,
    ) -> None:
        corpus, teacher = self.corpus, self.teacher
        watch.start(f"asking {Path(teacher.name).name}", len(corpus.originals))
        said = teacher_outputs(teacher, corpus.originals, store, watch.advance)
        watch.finish()
        task = make_task(teacher.kind, self.labels, self.lengths())
        held_out = corpus.examples.select(corpus.held_out.tolist())
        judged = with_teacher_labels(held_out, _of(said, corpus.original_of[corpus.held_out]), teacher.labels)
        refuse_dull_teacher(teacher.name, judged)
        start = self._start(folder, seed, vocabulary_text, accelerator, watch)
        tokenizer = load_tokenizer(start)
        model = load_model(start, task, head_seed=seed)
        order = np.array([teacher.labels.index(label) for label in self.labels], dtype=np.int64)
        train_set = corpus.examples.select(corpus.train.tolist())
        method = Distill(
            self.settings,
            task,
            tokenizer,
            train_set,
            said,
            corpus.original_of[corpus.train],
            order if len(order) else None,
        )
        plan = Plan(method, self.optimisation, self.execution.max_tokens, seed)
        for line in describe_plan(plan, model, train_set, held_out, self.execution, accelerator.device):
            watch.say(line)
            folder.note(line)
        optimisation: Optimisation = self.optimisation
        if search:
            bounds = _NEW if self.student in STUDENTS else (_TRAINED[0], _TRAINED[1] / model.config.hidden_size)
            rate = range_test(
                model, plan, folder, optimisation, self.execution, *bounds,
                seed=seed, accelerator=accelerator, watch=watch,
            )  # fmt: skip
            watch.say(f"rate      {rate:.1e}, from a range test on the training loss (range-test.svg)")
            optimisation = replace(optimisation, learning_rate=rate)
        judge = (
            dev_scorer(task, tokenizer, self.gold)
            if self.gold
            else Agreement(task, tokenizer, judged, self.selection.evaluations)
        )
        trained = train(
            model,
            plan,
            folder,
            optimisation,
            self.execution,
            seed=seed,
            evaluate=judge,
            evaluations=self.selection.evaluations,
            average_from=self.selection.average_from,
            accelerator=accelerator,
            watch=watch,
            label="distill",
        )
        if accelerator.is_main_process:
            final = Agreement(task, tokenizer, judged)
            self._deliver(folder, model, tokenizer, trained, plan.steps, final, optimisation.learning_rate)

    def _start(
        self,
        folder: RunFolder,
        seed: int,
        vocabulary_text: Mapping[str, str | Path],
        accelerator: Accelerator,
        watch: Watch,
    ) -> str:
        """Return the folder or name the student starts from; what is new is made once and kept for a resume."""
        if self.student not in STUDENTS and self.shape.layers is None:
            return self.student
        start = folder.path / "start"
        if accelerator.is_main_process and not start.exists():
            if self.student in STUDENTS:
                texts = vocabulary_texts(self.corpus.examples, vocabulary_text)
                tokenizer = student_tokenizer(texts, self.shape.pieces)
                watch.say(f"student   a new {self.student} with {len(tokenizer):,} pieces")
                encoder = new_student(self.student, tokenizer, self.teacher.kind, pooling=self.shape.pooling, seed=seed)
                save_student(encoder, tokenizer, start)
            else:
                save_with_layers(self.student, cast("int", self.shape.layers), start)
        accelerator.wait_for_everyone()
        return str(start)

    def _deliver(
        self,
        folder: RunFolder,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        trained: Trained,
        steps: int,
        judge: Agreement,
        rate: float,
    ) -> None:
        """Write the student and its variants, and mark the run as done."""
        scores = {}
        for name, weights in trained.weights.items():
            model.load_state_dict(weights)
            model.eval()
            scores[name] = judge(model)
            chosen = name == self.selection.select
            save_model(model, tokenizer, folder.model if chosen else folder.variants / name)
        texts = f"{len(self.corpus.held_out):,} held-out unlabelled texts"
        by_gold = f"gold dev data in the target language ({self.gold.name}), as allowed" if self.gold else ""
        folder.finish(
            {
                "selected": self.selection.select,
                "selected_on": by_gold or f"agreement with the teacher on {texts}; no label was read",
                "dev": scores,
                "history": trained.history,
                "steps": steps,
                "best_step": trained.best_step,
                "learning_rate": rate,
                "parameters": sum(p.numel() for p in model.parameters()),
                "seconds": round(trained.seconds, 1),
                "machine": describe(),
            }
        )
        shutil.rmtree(folder.path / "start", ignore_errors=True)


def _teacher_name(teacher: TeacherLike) -> str | Path | Callable[..., object]:
    return teacher.folders[0].path if isinstance(teacher, Run) else teacher


def _of(said: FrozenRows, texts: NDArray[np.int64]) -> FrozenRows:
    return FrozenRows(said.values, said.starts[texts], said.counts[texts])


def _label_order(teacher: Teacher, student: str | Path) -> tuple[str, ...]:
    """Return the student's label order: its own where it has a head for this task, else the teacher's."""
    if str(student) in STUDENTS or teacher.kind == "qa" or model_kind(student) != teacher.kind:
        return teacher.labels
    theirs = model_labels(student)
    same_labels(teacher.labels, theirs, f"the teacher {teacher.name}", f"the student {student}")
    return theirs


def _gold_dev(dev: Text | None, kind: str, language: str) -> Examples | None:
    if dev is None or isinstance(dev, Examples):
        return dev
    return load(dev, kind=cast("Kind", kind), language=language, split="dev")
