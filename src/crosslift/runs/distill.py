"""Distil: a teacher and unlabelled text in, a student out. No label is read anywhere.

`distill` is one step (one teacher, one student, one run folder); `distill_two_steps` goes from a source-language model
over a multilingual bridge to one small student per target language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

from crosslift.data import load
from crosslift.data.examples import Examples, Kind
from crosslift.errors import BadInput
from crosslift.methods.distill import Settings
from crosslift.models.frozen import FrozenCache
from crosslift.models.load import model_kind, model_labels
from crosslift.models.students import STUDENTS
from crosslift.models.teachers import Teacher, open_teacher, same_labels
from crosslift.runs.distill_data import MoreText, Text, make_corpus, read_text
from crosslift.runs.distill_work import DistillOptimisation, Job, StudentShape
from crosslift.runs.fit import Run, fingerprint
from crosslift.runs.folder import RunFolder
from crosslift.runs.progress import Silent, Watch
from crosslift.runs.settings import Execution, Selection, sort_settings
from crosslift.runs.train import make_accelerator
from crosslift.tasks import TASKS

TeacherLike = str | Path | Run | Callable[..., object]

SETTINGS = (Settings, StudentShape, MoreText, DistillOptimisation, Execution, Selection)
"""Dataclasses whose fields `distill` takes by name, beside those of the task."""

# What both of two steps go by; the shape of the student, paraphrases of its text and its rate are its own.
_BOTH = {"cache", "overwrite", "limit"} | {
    setting.name
    for cls in (Settings, DistillOptimisation, Execution, Selection, *TASKS.values())
    for setting in fields(cls)
    if setting.name not in ("learning_rate", "labels")
}


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
        cache: Folder of the frozen-output cache, and of translations; default: the user's.
        overwrite: Replace a run that is there already.
        watch: Who is told about progress.
        settings: Anything of `Settings`, `StudentShape`, `MoreText` (translations and paraphrases that are made here),
            `DistillOptimisation`, `Execution`, `Selection` and the task.
    """
    watch = watch or Silent()
    if dev is not None and not allow_target_dev:
        raise BadInput(
            "Gold labels of the target language are not used to select a student.",
            "Leave out --dev, or allow it explicitly with --allow-target-dev.",
        )
    opened = open_teacher(_teacher_name(teacher), kind, labels)
    *kept, task_options = sort_settings([*SETTINGS, TASKS[opened.kind]], settings)
    own, shape, more, optimisation, execution, selection = (cls(**kw) for cls, kw in zip(SETTINGS, kept, strict=True))
    corpus = make_corpus(read_text(text, opened.kind, limit, watch), translations or {}, more, watch, cache)
    names = _label_order(opened, student)
    gold = _gold_dev(dev, opened.kind, next(iter(text)))
    accelerator = make_accelerator(execution)
    out, seeds = Path(out), list(dict.fromkeys(seeds))
    folders = []
    for seed in seeds:
        folder = RunFolder(out if len(seeds) == 1 else out / f"seed-{seed}")
        folders.append(folder)
        job = Job(
            opened, corpus, names, str(student), own, shape, optimisation, execution, selection, task_options, gold
        )
        config: dict[str, object] = {
            "method": "distill",
            "model": str(student),
            "teacher": opened.name,
            "teacher_identity": opened.identity,
            "data": corpus.originals.name,
            "languages": list(text),
            "translations": sorted({*(translations or {}), *more.into}),
            **({"more_text": asdict(more)} if more != MoreText() else {}),
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
    translator: str | None = None,
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
        translator: Who translates the source text into the targets for which there are no translations.
        bridge_settings: Settings of the first step where they differ from those of the second (`epochs`, …). A learning
            rate of the second is not that of the first.
        kind: Task of a black-box teacher.
        labels: Labels of a black-box teacher.
        watch: Who is told about progress.
        options: Further arguments and settings of `distill`: those of the student (its shape, seeds, learning rate,
            `augment`) for the second step, others for both.

    Returns:
        `bridge` and each target language -> its run.
    """
    out = Path(out)
    first: dict[str, Any] = {name: value for name, value in options.items() if name in _BOTH}
    into = options.pop("into", None) or tuple(target_text)
    if translator is not None:
        first |= {"translator": translator, "into": into}
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
            **{**first, **(bridge_settings or {})},
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


def _teacher_name(teacher: TeacherLike) -> str | Path | Callable[..., object]:
    return teacher.folders[0].path if isinstance(teacher, Run) else teacher


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
