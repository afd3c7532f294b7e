"""`crosslift reproduce`: any table or figure of the five papers, ours beside theirs."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosslift.cli.options import Json, Quiet, seeds, show_json
from crosslift.errors import BadInput, CrossliftError, Unfinished, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crosslift.reproduce.entries import Entry
    from crosslift.reproduce.plan import Choice

SHOW = "runs/reproduce"


def reproduce(
    entry: Annotated[list[str] | None, typer.Argument(help="Tables and figures (ear.table1), or papers (ear).")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List them: what each needs and costs.")] = False,
    scale: Annotated[str, typer.Option(help="smoke (seconds), small (the minis), paper (its own settings).")] = "small",
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Encoder; PLACE=MODEL for a further one (xlm-r=FOLDER, mono=FOLDER)."),
    ] = None,
    translator: Annotated[str | None, typer.Option(help="Translator, as in crosslift translate.")] = None,
    resources: Annotated[Path | None, typer.Option(help="Folder with text-LANG.txt and like files.")] = None,
    seed: Annotated[str | None, typer.Option("--seeds", help="In place of the scale's, such as 1-5.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the runs (runs/reproduce/SCALE).")] = None,
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path(f"{SHOW}/results"),
    docs: Annotated[Path | None, typer.Option(help="Write pages from the records into this folder.")] = None,
    engine: Annotated[str, typer.Option("--engine", "-e", help="local, ray, or here (this process).")] = "local",
    workers: Annotated[int | None, typer.Option(help="Runs at once (default: as many as fit).")] = None,
    cores: Annotated[int, typer.Option(help="Cores for each run.")] = 1,
    gpus: Annotated[float | None, typer.Option(help="Share of a GPU for each run, such as 0.125.")] = None,
    address: Annotated[str | None, typer.Option(help="Ray cluster, HOST:PORT (default: the one here).")] = None,
    light: Annotated[bool, typer.Option("--light", help="Keep no weights that nobody needs any more.")] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no run after so many; 0: records of what is there.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run tables and figures of the five papers at a scale that fits, and print ours beside theirs."""
    from crosslift.cli.sweep import Board
    from crosslift.reproduce import records
    from crosslift.reproduce.collect import NOT_YET
    from crosslift.reproduce.comparison import rows_of
    from crosslift.reproduce.entries import entries, find

    known = list(entries().values())
    chosen = known if every or not entry else [one for name in entry for one in find(name)]
    choice = _choice(scale, model, translator, resources, seed)
    if not quiet and not as_json:
        for place in _idle(chosen, choice):
            typer.echo(f"no table here has an encoder in the place of {place}: it stays idle", err=True)
    if listed:
        _list(chosen, choice, as_json)
        return
    if docs is not None:
        if entry or every:
            raise BadInput("--docs writes the pages of all records and runs nothing.", "Leave the tables out.")
        if not results.is_dir():  # pages without a record would take the place of those that have some
            raise BadInput(f"There is no folder of records {results}.", "Name it with --results.")
        from crosslift.reproduce.pages import write_pages

        for page in write_pages(results, docs):
            typer.echo(f"written   {page}")
        return
    if not entry and not every:
        raise BadInput("Which table or figure?", "Name some (ear.table1), a paper (ear), or --all. See --list.")
    with Board(quiet or as_json) as board, redirect_stdout(sys.stderr):
        found = records.reproduce(
            chosen, choice, out or Path(SHOW) / scale, results,
            show=board.show, say=lambda text: None if quiet or as_json else print(text, file=sys.stderr),
            light=light, minutes=minutes, engine=engine, workers=workers, cores=cores, gpus=gpus, address=address,
        )  # fmt: skip
    if as_json:
        show_json(found)
    else:
        for one, record in zip(chosen, found, strict=True):
            typer.echo(records.as_text(one, record) + "\n")
        typer.echo(f"results   {results / scale}")
    reasons = [reason for record in found for row in rows_of(record) for reason in row.missing.values()]
    failed = {reason for reason in reasons if reason.startswith("failed")}
    if failed:
        raise CrossliftError(
            f"{len(failed)} kinds of runs failed; the first: {sorted(failed)[0]}",
            "The others are done. Start the same command again to try the failed ones.",
        )
    left = sum(reason.endswith(NOT_YET) for reason in reasons)
    if left and minutes:
        raise Unfinished(f"{left} cells lack runs: time was up.", "The same command goes on.")


def _choice(
    scale: str, model: list[str] | None, translator: str | None, resources: Path | None, seed: str | None
) -> Choice:
    from crosslift.reproduce.entries import paper, papers
    from crosslift.reproduce.plan import MAIN, Choice

    places = sorted({place for name in papers() for place in paper(name).encoders})
    models: dict[str, str] = {}
    for given in model or []:
        place, sign, name = given.partition("=")
        if not sign or Path(given).exists():  # folders of runs have = in their names, too
            place, name = MAIN, given
        if place not in places:
            raise BadInput(
                f'--model {given}: there is no place "{place}".{nearest(place, places)}', f"It is {', '.join(places)}."
            )
        if place in models:
            raise BadInput(f"--model names two encoders for {place}: {models[place]} and {name}.")
        models[place] = name
    if resources is not None and not resources.is_dir():
        raise BadInput(f"--resources: there is no folder {resources}.")
    chosen = tuple(seeds(seed)) if seed else None
    if chosen == ():
        raise BadInput(f'--seeds "{seed}" names no seed.', "It takes whole numbers such as 1,2,3 or 1-5.")
    return Choice(scale, models, translator, str(resources) if resources else None, chosen)


def _idle(chosen: Sequence[Entry], choice: Choice) -> list[str]:
    """Return the places that models were named for and no chosen table's paper has."""
    from crosslift.reproduce.entries import paper

    known = {place for one in chosen for place in paper(one.paper).encoders}
    return [place for place in choice.models if place not in known]


def _list(chosen: Sequence[Entry], choice: Choice, as_json: bool) -> None:
    from crosslift.reproduce.plan import make_plan
    from crosslift.runs.progress import clock

    rows = []
    for one in chosen:
        plan = make_plan([one], choice)
        empty = dict.fromkeys(plan.absent.values())
        rows.append(
            {
                "entry": one.id, "place": one.place, "title": one.title, "runs": len(plan.steps),
                "seconds": round(plan.seconds), "data": _data(plan.steps.values()), "cells": len(plan.cells),
                "empty": len(plan.absent), "why": list(empty), "substitute": one.substitute,
            }
        )  # fmt: skip
    whole = make_plan(chosen, choice)
    if as_json:
        show_json({"entries": rows, "runs": len(whole.steps), "seconds": round(whole.seconds)})
        return
    typer.echo(f"{'entry':<24}{'runs':>5}{'about':>11}{'cells':>7}{'empty':>7}  title; data; what would fill more")
    for row in rows:
        about = clock(float(str(row["seconds"])))
        counts = f"{row['entry']:<24}{row['runs']:>5}{about:>11}{row['cells']:>7}{row['empty']:>7}"
        more = [", ".join(part) for part in (row["data"], _wanted(row["why"])) if part]  # type: ignore[arg-type]
        typer.echo(f"{counts}  {'; '.join([str(row['title']), *more])}")
    typer.echo(
        f"\n{len(chosen)} tables and figures, {len(whole.steps)} runs at scale {choice.scale} (what several share is "
        f"done once), about {clock(whole.seconds)} one after another."
    )


def _wanted(reasons: Sequence[str]) -> list[str]:
    """Return the options that the reasons for empty cells name."""
    return list(dict.fromkeys(option for reason in reasons for option in re.findall(r"--[a-z]+ \S+", reason)))


def _data(steps: object) -> list[str]:
    """Return the data sets that steps read."""
    found: dict[str, None] = {}
    for step in steps:  # type: ignore[attr-defined]
        for block in (step.config, *step.evaluations.values()):
            for name in ("data", "extra"):
                if isinstance(block.get(name), str):
                    found[block[name]] = None
            for name in ("bitext", "text", "translations"):
                if isinstance(block.get(name), dict):
                    found |= dict.fromkeys(map(str, block[name].values()))
    return list(found)
