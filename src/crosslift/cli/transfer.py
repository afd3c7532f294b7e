"""`crosslift transfer`: from what you have to a model, a choice and a report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosslift.cli.adjust import BITEXT_HELP, bitexts
from crosslift.cli.options import Json, Quiet, names, pairs, seeds, show_json, with_settings
from crosslift.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from crosslift.runs.transfer import Transferred


def command(arguments: list[str]) -> Callable[..., None]:
    """Return the verb; the settings of the fits are looked up only when it is called."""
    if arguments[:1] != ["transfer"]:
        return transfer_stub
    from crosslift.cli.reading import FileOptions
    from crosslift.runs.settings import Optimisation, Selection

    return with_settings(transfer, {"Reading files": FileOptions, "Optimisation": Optimisation, "Selection": Selection})


def transfer(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs, model and report.")] = Path(
        "runs/transfer"
    ),
    model: Annotated[str, typer.Option("--model", "-m", help="Multilingual encoder.")] = "mini-x",
    data: Annotated[str | None, typer.Option("--data", "-d", help="Labelled data: a file or a catalog name.")] = None,
    dev: Annotated[str | None, typer.Option(help="Source-language dev data (default: its dev split).")] = None,
    source: Annotated[str, typer.Option(help="Language of the labels and of the task model.")] = "en",
    bitext: Annotated[list[str] | None, typer.Option("--bitext", "-b", help=BITEXT_HELP)] = None,
    task_model: Annotated[str | None, typer.Option("--task-model", help="A trained source-language model.")] = None,
    base: Annotated[str | None, typer.Option(help="The public model that the task model was tuned from.")] = None,
    connector: Annotated[str | None, typer.Option(help="A trained connector, in place of --base and text.")] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", "-t", help="LANGUAGE=FILE of unlabelled text; repeat for more.")
    ] = None,
    synonyms: Annotated[str | None, typer.Option(help="File of source-language synonyms, for ear and robust.")] = None,
    test: Annotated[str | None, typer.Option(help="Test data to score all candidates on; {lang} in a file.")] = None,
    languages: Annotated[str | None, typer.Option("--languages", "-l", help="Of the test data: de,th,sw.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Candidates and chains: ear,adjust+ear,… (default: all that apply).")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time for training: 30m, 2h, 90s.")] = None,
    igap: Annotated[bool, typer.Option("--igap", help="Also measure random-label IGAP; with --bitext.")] = False,
    target_dev: Annotated[str | None, typer.Option("--target-dev", help="Gold target dev data; see below.")] = None,
    allow_target_dev: Annotated[
        bool, typer.Option("--allow-target-dev", help="Choose by gold target dev data; the result says so.")
    ] = False,
    seeds_text: Annotated[str, typer.Option("--seeds", help="One run each: 1,2,3 or 1-5.")] = "1",
    limit: Annotated[int | None, typer.Option(help="Use at most so many training examples.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Run the methods that apply, choose one without target labels, deliver model and report."""
    from crosslift.cli.reading import load_options, split_options
    from crosslift.report.transferred import transfer as run_transfer
    from crosslift.runs.progress import watch_screen

    reading, settings = split_options(settings)
    done = run_transfer(
        out=out,
        model=model,
        data=data,
        dev=dev,
        source=source,
        bitext=bitexts(bitext, "--bitext") if bitext else None,
        task_model=task_model,
        base=base,
        connector=connector,
        text=pairs(text, "--text"),
        synonyms=synonyms,
        test=test,
        languages=names(languages),
        methods=names(methods),
        budget=seconds(budget) if budget else None,
        igap=igap,
        target_dev=target_dev,
        allow_target_dev=allow_target_dev,
        seeds=seeds(seeds_text),
        limit=limit,
        reading=load_options(reading) if reading else None,
        watch=watch_screen(quiet or as_json),
        **settings,
    )
    if as_json:
        show_json(done.to_dict())
    else:
        show(done)


def transfer_stub() -> None:
    """Run the methods that apply, choose one without target labels, deliver model and report."""


def show(done: Transferred) -> None:
    """Print the table, what failed, the choice, and where things are."""
    typer.echo(f"\n{done.table()}\n")
    for name, reason in done.failed.items():
        typer.echo(f"failed    {name}: {reason}")
    typer.echo(f"chosen    {done.chosen} ({done.rule})")
    if done.best_in_hindsight not in (None, done.chosen):
        typer.echo(f"hindsight {done.best_in_hindsight} does better on the test data; that was not known to the choice")
    typer.echo(f"model     {done.model}        opens with transformers alone")
    if (done.path / "report.html").exists():
        typer.echo(f"report    {done.path / 'report.html'}")


def seconds(text: str) -> float:
    """Read a duration such as 90s, 30m, 1.5h; a plain number is minutes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise BadInput(f'--budget takes a time such as 90s, 30m or 2h, not "{text}".')
    return float(found[1]) * {"s": 1, "m": 60, "": 60, "h": 3600}[found[2]]
