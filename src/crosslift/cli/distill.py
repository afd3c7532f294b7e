"""`crosslift fit distill`: a teacher and unlabelled text in, a student out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, names, pairs, seeds, show_json
from crosslift.errors import BadInput

TEACHER_HELP = "Task model (folder, run), .onnx file, HTTP address, or .jsonl file of answers."


def groups() -> dict[str, type]:
    """Return the settings by heading."""
    from crosslift.runs.distill import SETTINGS
    from crosslift.tasks import TASKS

    headings = ("Settings of distill", "Student", "More text", "Optimisation", "Execution", "Selection")
    tasks = {f"For {kind}": cls for kind, cls in TASKS.items()}
    return {**dict(zip(headings, SETTINGS, strict=True)), **tasks}


def verb(
    teacher: Annotated[str, typer.Option("--teacher", help=TEACHER_HELP)],
    text: Annotated[list[str], typer.Option("--text", "-t", help="LANGUAGE=FILE, one text a line; repeat for more.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; with --bridge the folder of all runs.")],
    student: Annotated[
        str, typer.Option("--student", help="transformer, bilstm, cnn (new, small), or an encoder by name.")
    ] = "transformer",
    bridge: Annotated[
        str | None, typer.Option("--bridge", help="Two steps: first this multilingual encoder, on the source text.")
    ] = None,
    source: Annotated[str, typer.Option(help="With --bridge: which of the texts is the teacher's language.")] = "en",
    translations: Annotated[
        list[str] | None,
        typer.Option("--translations", help="LANGUAGE=FILE with ids: translations of the text, for the student."),
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Task of a black box: classification or tagging.")] = None,
    teacher_labels: Annotated[
        str | None, typer.Option("--teacher-labels", help="Labels of a black box, in order: a,b,c.")
    ] = None,
    vocabulary_text: Annotated[
        list[str] | None, typer.Option("--vocabulary-text", help="LANGUAGE=FILE: further text for a new vocabulary.")
    ] = None,
    dev: Annotated[str | None, typer.Option(help="Gold dev data in the target language; see the next option.")] = None,
    allow_target_dev: Annotated[
        bool, typer.Option("--allow-target-dev", help="Select by gold target dev data; the result says so.")
    ] = False,
    seeds_text: Annotated[str, typer.Option("--seeds", help="One run each: 1,2,3 or 1-5.")] = "1",
    limit: Annotated[int | None, typer.Option(help="Use at most so many texts of each language.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there already.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Distil a teacher into a student on unlabelled text; no labels."""
    from crosslift.data import load
    from crosslift.runs.distill import distill, distill_two_steps
    from crosslift.runs.progress import watch_screen

    texts = pairs(text, "--text")
    given: dict[str, Any] = {
        "teacher": teacher,
        "student": student,
        "out": out,
        "kind": kind,
        "labels": names(teacher_labels),
        "translations": {
            language: load(file, kind="classification", language=language, unlabelled=True)
            for language, file in pairs(translations, "--translations").items()
        },
        "vocabulary_text": pairs(vocabulary_text, "--vocabulary-text"),
        "dev": dev,
        "allow_target_dev": allow_target_dev,
        "seeds": seeds(seeds_text),
        "limit": limit,
        "overwrite": overwrite,
        "watch": watch_screen(quiet or as_json),
        **settings,
    }
    if bridge is None:
        runs = {"student": distill(text=texts, **given)}
    else:
        if source not in texts or len(texts) < 2:
            raise BadInput(
                f"Two steps need text in {source} and in at least one other language.",
                f"Say --text {source}=FILE and --text de=FILE; --source names the teacher's language.",
            )
        source_text = {source: texts.pop(source)}
        runs = distill_two_steps(bridge=bridge, source_text=source_text, target_text=texts, **given)
    if as_json:
        show_json(
            {
                name: {"run": str(run.path), "model": str(run.model), "seeds": run.summary()}
                for name, run in runs.items()
            }
        )
        return
    for name, run in runs.items():
        for folder in run.folders:
            facts: Any = folder.summary
            chosen = facts["dev"][facts["selected"]]
            typer.echo(
                f"{name:<10}seed {folder.config['seed']!s:<4}agrees with its teacher on {chosen['agreement']:.1f}%   "
                f"{facts['parameters'] / 1e6:.1f}M parameters, rate {facts['learning_rate']:.1e}"
            )
        typer.echo(f"model     {run.model}")
