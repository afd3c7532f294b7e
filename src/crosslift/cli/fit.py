"""`crosslift fit METHOD`: train one method."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.adjust import BITEXT_HELP, bitexts
from crosslift.cli.options import Json, Quiet, seeds, show_json, with_settings
from crosslift.methods import METHODS


def app(arguments: list[str]) -> typer.Typer:
    """Return the `fit` group; a method's own options are looked up only when the method is called."""
    group = typer.Typer(help="Train one method on source-language data.", no_args_is_help=True)
    called = next((a for a in arguments[1:] if not a.startswith("-")), "") if arguments[:1] == ["fit"] else ""
    for name in METHODS:
        verb = _verb(name)
        group.command(name)(with_settings(verb, _groups(name)) if name == called else _light(verb))
    for name, home in OTHER_VERBS.items():
        module = import_module(home)
        group.command(name)(with_settings(module.verb, module.groups()) if name == called else _light(module.verb))
    return group


def _groups(method: str) -> dict[str, type]:
    from crosslift.cli.reading import FileOptions
    from crosslift.methods import method_settings
    from crosslift.runs.continual import SETTINGS
    from crosslift.runs.settings import Execution, Optimisation, Selection
    from crosslift.tasks import TASKS

    own = {f"Settings of {method}": method_settings(method)}
    tasks = {f"For {kind}": cls for kind, cls in TASKS.items()}
    common = {"Optimisation": Optimisation, "Selection": Selection, "Execution": Execution}
    adjusting = dict(zip(("With adjustment", "With adjustment: from sentences to words"), SETTINGS, strict=True))
    return {"Reading files": FileOptions, **own, **common, **tasks, **adjusting}


def _light(verb: Any) -> Any:  # noqa: ANN401  a typer command
    def stub() -> None:
        raise AssertionError("unreachable: the method that is called gets its full options")

    stub.__doc__ = verb.__doc__
    return stub


def _verb(method: str) -> Any:  # noqa: ANN401  a typer command
    def fit(
        model: Annotated[str, typer.Option("--model", "-m", help="Encoder: folder, embedded name or hub id.")],
        data: Annotated[str, typer.Option("--data", "-d", help="Training data: a file or a catalog name.")],
        out: Annotated[Path, typer.Option("--out", "-o", help="Run folder.")],
        dev: Annotated[str | None, typer.Option(help="Source-language dev data (default: its dev split).")] = None,
        source: Annotated[str, typer.Option(help="Language of the training data.")] = "en",
        seeds_text: Annotated[str, typer.Option("--seeds", help="One run each: 1,2,3 or 1-5.")] = "1",
        limit: Annotated[int | None, typer.Option(help="Use at most so many training examples.")] = None,
        average_runs: Annotated[bool, typer.Option("--average-runs", help="Also average the runs' weights.")] = False,
        with_adjustment: Annotated[
            list[str] | None, typer.Option("--with-adjustment", help=f"Sentence pairs in every step. {BITEXT_HELP}")
        ] = None,
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there already.")] = False,
        quiet: Quiet = False,
        as_json: Json = False,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        from crosslift.cli.reading import read, split_options
        from crosslift.runs.fit import fit as run_fit
        from crosslift.runs.progress import watch_screen

        reading, settings = split_options(settings)
        run = run_fit(
            method,
            model=model,
            data=read(data, source, "train", reading),
            out=out,
            dev=read(dev, source, "dev", reading) if dev else None,
            source=source,
            seeds=seeds(seeds_text),
            limit=limit,
            average_runs=average_runs,
            with_adjustment=bitexts(with_adjustment, "--with-adjustment") if with_adjustment else None,
            overwrite=overwrite,
            watch=watch_screen(quiet or as_json),
            **settings,
        )
        if as_json:
            show_json({"run": str(run.path), "model": str(run.model), "seeds": run.summary()})
        else:
            typer.echo(run.table())
            typer.echo(f"model     {run.model}        opens with transformers alone")

    fit.__doc__ = TITLES.get(method, method)
    return fit


OTHER_VERBS = {"adjust": "crosslift.cli.adjust", "distill": "crosslift.cli.distill", "plug": "crosslift.cli.plug"}
"""Methods that learn without labels -> module with their `verb` and its `groups` of settings."""

TITLES = {
    "finetune": "Plain fine-tuning on source-language labels.",
    "robust": "Training on disturbed inputs: gaussian, xtune, adv, rs-rp, rs-da.",
    "ear": "Embedding push and attention pull on synonyms (EAR).",
}
