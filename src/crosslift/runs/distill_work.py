"""One seed of a distillation: from what the teacher says to a student in its run folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Examples
from crosslift.methods.distill import Distill, Settings
from crosslift.models.frozen import FrozenCache, FrozenRows
from crosslift.models.load import load_model, load_tokenizer
from crosslift.models.students import (
    PIECES,
    STUDENTS,
    Pooling,
    new_student,
    save_student,
    save_with_layers,
    student_tokenizer,
)
from crosslift.models.teachers import Teacher, make_task, teacher_outputs
from crosslift.runs.agreement import Agreement, refuse_dull_teacher, with_teacher_labels
from crosslift.runs.deliver import deliver
from crosslift.runs.distill_data import Corpus, vocabulary_texts
from crosslift.runs.evaluate import dev_scorer
from crosslift.runs.folder import RunFolder
from crosslift.runs.plan import Plan, describe_plan
from crosslift.runs.progress import Watch
from crosslift.runs.range_test import range_test
from crosslift.runs.settings import Execution, Optimisation, Selection
from crosslift.runs.train import train
from crosslift.tasks import TASKS

if TYPE_CHECKING:
    from accelerate import Accelerator

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


@dataclass(frozen=True)
class Job:
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
        """Ask the teacher, make or load the student, find a rate, train, and deliver what agrees best.

        Args:
            folder: The run.
            seed: Of a new student and head, and of the batches.
            store: Where the teacher's answers are kept.
            vocabulary_text: Language -> further text for the vocabulary of a new student.
            search: Whether a range test finds the learning rate.
            accelerator: Processes and device.
            watch: Who is told about progress.
        """
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
            texts = f"{len(corpus.held_out):,} held-out unlabelled texts"
            by_gold = f"gold dev data in the target language ({self.gold.name}), as allowed" if self.gold else ""
            deliver(
                folder,
                model,
                tokenizer,
                trained,
                Agreement(task, tokenizer, judged),
                select=self.selection.select,
                selected_on=by_gold or f"agreement with the teacher on {texts}; no label was read",
                steps=plan.steps,
                learning_rate=optimisation.learning_rate,
                parameters=sum(p.numel() for p in model.parameters()),
            )
            shutil.rmtree(folder.path / "start", ignore_errors=True)

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


def _of(said: FrozenRows, texts: NDArray[np.int64]) -> FrozenRows:
    return FrozenRows(said.values, said.starts[texts], said.counts[texts])
