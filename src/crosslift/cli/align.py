"""`crosslift align`: which word translates which, in sentence pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, show_json, with_settings
from crosslift.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crosslift.align import AlignedBitext
    from crosslift.data.examples import Examples


def command(arguments: list[str]) -> Any:  # noqa: ANN401  a typer command
    """Return the verb; its settings are looked up only when it is called."""
    return with_settings(align, _groups()) if arguments[:1] == ["align"] else _light


def _groups() -> dict[str, type]:
    from crosslift.align.embedding import EmbeddingSettings
    from crosslift.align.statistical import Settings
    from crosslift.data.bitext_filter import BitextFilter

    return {
        "Pairs to leave out (with --filter, or one of these)": BitextFilter,
        "The statistical aligner": Settings,
        "An encoder": EmbeddingSettings,
    }


def _light() -> None:
    raise AssertionError("unreachable: the verb that is called gets its full options")


_DOC = "Link the words of sentence pairs; writes one line of links a pair (Pharaoh format)."
_light.__doc__ = _DOC


def align(
    bitext: Annotated[
        list[Path] | None, typer.Argument(help="A file of pairs (tabs, |||, .tmx), or two files, a sentence a line.")
    ] = None,
    languages: Annotated[str, typer.Option("--languages", "-l", help="Of both sides, as in en-de.")] = "und-und",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write links there; default: the screen.")] = None,
    aligner: Annotated[
        str,
        typer.Option("--aligner", "-a", help="statistical, eflomal, a saved aligner, a Pharaoh file, or an encoder."),
    ] = "statistical",
    symmetrise: Annotated[
        str, typer.Option(help="intersection, grow-diag-final-and, union, forward or backward.")
    ] = "intersection",
    words: Annotated[
        str, typer.Option(help="segment: crosslift's own words; spaces: the text is cut into words already.")
    ] = "segment",
    save: Annotated[Path | None, typer.Option(help="Keep the trained aligner (.safetensors) for new text.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write i-j:0.93, how sure each link is.")] = False,
    why: Annotated[
        Path | None, typer.Option("--explain", help="Write a table of every word's likeliest partner there.")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Align and score these pairs; the bitext, if any, is learnt from.")
    ] = None,
    filtered: Annotated[bool, typer.Option("--filter", help="Leave out unfit pairs; they get an empty line.")] = False,
    dropped: Annotated[
        Path | None, typer.Option("--dropped", help="Write the pairs left out there, with reasons.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read at most so many pairs.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Link the words of sentence pairs; writes one line of links a pair (Pharaoh format)."""
    from crosslift.align import align_words
    from crosslift.align.aligned import check_directions
    from crosslift.align.embedding import EmbeddingSettings
    from crosslift.align.statistical import Settings
    from crosslift.data.bitext_filter import BitextFilter, dropped_pairs, without_pairs
    from crosslift.runs.settings import sort_settings

    wanted, statistical, embedding = sort_settings((BitextFilter, Settings, EmbeddingSettings), settings)
    pairs = _read(bitext, languages, limit) if bitext else None
    gone: dict[str, NDArray[np.int64]] = {}
    whole = pairs
    if pairs is not None and (filtered or wanted or dropped):
        gone = dropped_pairs(pairs, BitextFilter(**wanted))
        pairs = without_pairs(pairs, gone)
    chosen: dict[str, Any] = {"aligner": aligner, "symmetrise": symmetrise, "words": words, **statistical, **embedding}
    check_directions(aligner, symmetrise, str(embedding.get("method", "argmax")))
    if "threshold" in embedding and embedding.get("method") != "softmax":
        raise BadInput("--threshold is of --method softmax alone.", "Leave it out, or say --method softmax.")
    if gold is not None:
        if scores:
            raise BadInput("--scores writes nothing with --gold, which scores an aligner.", "Leave out one of them.")
        for name, path in (("--out", out), ("--save", save), ("--explain", why), ("--dropped", dropped)):
            if path is not None:
                raise BadInput(f"{name} writes nothing with --gold, which scores an aligner.", "Leave out one of them.")
        _score(gold, pairs, chosen, as_json)
        return
    if pairs is None or whole is None:
        raise BadInput("There is nothing to align.", "Name a file of sentence pairs, or --gold FILE.")
    if save is not None and aligner != "statistical" and not aligner.endswith(".safetensors"):
        raise BadInput(f'The aligner "{aligner}" is not trained here, so it cannot be saved.', "Leave out --save.")
    if save is not None and save.suffix != ".safetensors":
        raise BadInput(f"--save {save}: a saved aligner is known by its ending.", "Name a .safetensors file.")
    found = align_words(pairs, scores=scores or why is not None, **chosen)
    if scores and found.alignment.scores is None:
        raise BadInput(f'"{aligner}" gives no scores.', "The statistical aligner and encoders do.")
    lines = _lines(found, scores)
    if out is not None or not as_json:
        _write(out, lines)
    if save is not None and found.aligner is not None:
        found.aligner.save(save)
    if why is not None:
        _write_table(why, found)
    if dropped is not None:
        _write_dropped(dropped, whole, gone)
    summary = _summary(found)
    if as_json:
        show_json(summary if out is not None else {**summary, "alignment": lines})
    elif not quiet:
        _show(summary)


def _read(files: list[Path], languages: str, limit: int | None) -> Examples:
    from crosslift.data.bitext import read_bitext

    codes = languages.split("-")
    if len(codes) != 2 or not all(codes):
        raise BadInput(f'--languages takes two codes such as en-de, not "{languages}".')
    first, second = (None if code == "und" else code for code in codes)
    return read_bitext(files[0] if len(files) == 1 else files, language=first, pair_language=second, limit=limit)


def _score(gold: Path, bitext: Examples | None, chosen: dict[str, Any], as_json: bool) -> None:
    from crosslift.align import align_gold, score_alignment
    from crosslift.data.wordalign import read_gold

    pairs = read_gold(gold)
    scores = score_alignment(align_gold(pairs, bitext, **chosen).alignment, pairs)
    if as_json:
        show_json({"pairs": len(pairs), **scores.to_dict()})
        return
    typer.echo(
        f"{gold.name}: {len(pairs):,} pairs, {scores.links:,} links   "
        f"AER {scores.aer:.1f}   precision {scores.precision:.1f}   recall {scores.recall:.1f}   F1 {scores.f1:.1f}"
    )


def _lines(found: AlignedBitext, scores: bool) -> list[str]:
    """Return one line per line of the input; pairs that were left out have an empty one."""
    from crosslift.align.pharaoh import pharaoh_lines

    whole = [""] * (len(found) + sum(found.bitext.skipped.values()))
    for number, line in zip(found.bitext.ids, pharaoh_lines(found.alignment, scores=scores), strict=True):
        whole[int(number) - 1] = line
    return whole


def _write(out: Path | None, lines: list[str]) -> None:
    from crosslift.data.storage import write_text

    text = "".join(f"{line}\n" for line in lines)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)


def _write_table(path: Path, found: AlignedBitext) -> None:
    from crosslift.align import explain
    from crosslift.data.storage import write_text

    names = ("pair", "side", "number", "word", "linked", "likeliest", "score", "none")
    rows = ("\t".join(str(row[name]) for name in names) for row in explain(found))
    write_text(path, "\n".join(["\t".join(names), *rows]) + "\n")


def _write_dropped(path: Path, whole: Examples, gone: dict[str, NDArray[np.int64]]) -> None:
    from crosslift.data.storage import write_text

    rows = sorted((int(row), reason) for reason, places in gone.items() for row in places.tolist())
    # A sentence may hold a tab where bars, or two files, keep the sides apart.
    cells = ((whole.ids[row], reason, whole.texts[row], (whole.pairs or ())[row]) for row, reason in rows)
    lines = ["\t".join(cell.replace("\t", " ") for cell in row) for row in cells]
    write_text(path, "\n".join(["line\treason\tsource\ttarget", *lines]) + "\n")


def _summary(found: AlignedBitext) -> dict[str, Any]:
    links = found.alignment
    words = [sum(map(len, side)) for side in (found.source, found.target)]
    return {
        "pairs": len(found),
        "links": len(links.source),
        "source_words": words[0],
        "target_words": words[1],
        "left_out": {**found.bitext.skipped, **found.left_out},
    }


def _show(summary: dict[str, Any]) -> None:
    typer.echo(
        f"{summary['pairs']:,} pairs, {summary['links']:,} links between {summary['source_words']:,} "
        f"and {summary['target_words']:,} words",
        err=True,
    )
    for reason, count in summary["left_out"].items():
        typer.echo(f"  left out: {reason}: {count:,}", err=True)
