"""`crosslift translate`: text and labelled sets in another language; paraphrases in the same one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, show_json
from crosslift.errors import BadInput

NOISE = "noise"


def translate(
    data: Annotated[str, typer.Argument(help="A file or a catalog name; - reads lines of standard input.")],
    source: Annotated[str, typer.Option("--from", "-f", help="Language of the data.")],
    target: Annotated[str, typer.Option("--to", "-t", help="Language to translate into; the same: paraphrases.")],
    translator: Annotated[
        str,
        typer.Option(
            "--with",
            "-w",
            help="apertium, dictionary:FILE, dictionary-back:FILE, file:FILE, ctranslate2:FOLDER, or a seq2seq model "
            "by folder or hub id; for paraphrases also noise.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; plain text may go to the screen.")
    ] = None,
    split: Annotated[str, typer.Option(help="Part of a catalog set.")] = "train",
    label_with: Annotated[
        str | None, typer.Option(help="Label the data by this source-language model first (translate-train).")
    ] = None,
    via: Annotated[str | None, typer.Option(help="Translate through this language.")] = None,
    samples: Annotated[int, typer.Option(help="Paraphrases of each text.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    beams: Annotated[int | None, typer.Option(help="Width of the beam search (default: the model's).")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="CTranslate2: where the tokenizer is.")] = None,
    aligner: Annotated[str, typer.Option(help="Tagging: who links words.")] = "statistical",
    limit: Annotated[int | None, typer.Option(help="At most so many rows.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where translations are kept (default: the user's cache).")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **reading: Any,  # noqa: ANN401
) -> None:
    """Translate a text or a labelled set; every translation is made once and kept."""
    from crosslift.cli.reading import load_options
    from crosslift.runs.progress import watch_screen
    from crosslift.runs.translate_data import paraphrase_data, translate_data
    from crosslift.translate import cache_folder, open_paraphrasers, open_translator

    if source == target and label_with:
        raise BadInput("Paraphrases carry no labels: the teacher reads them itself.", "Leave out --label-with.")
    if translator == NOISE and source != target:
        raise BadInput("noise disturbs a text; it does not translate.", "Give --to the same language as --from.")
    if as_json and out is None:
        raise BadInput("With --json the translations need a file of their own.", "Name it with --out.")
    how: dict[str, Any] = {
        "split": split,
        "limit": limit,
        "reading": load_options(reading),
        "cache": cache or cache_folder(),
        "watch": watch_screen(quiet or as_json),
    }
    options: dict[str, Any] = {"via": via, "beams": beams, "tokenizer": tokenizer}
    if source == target:
        several = [] if translator == NOISE else open_paraphrasers(translator, source, samples=samples, **options)
        facts = paraphrase_data(data, source, several, out, samples=samples, seed=seed, **how)
    else:
        opened = open_translator(translator, source, target, **options)
        facts = translate_data(data, opened, out, label_with=label_with, aligner=aligner, **how)
    if as_json:
        show_json(facts)
