"""Static augmentation: copies of labelled examples with words replaced by synonyms, written to a file."""

from __future__ import annotations

from pathlib import Path

from crosslift.data import load
from crosslift.data.augment import (
    NEIGHBOURS,
    Source,
    SynonymSettings,
    augmented_copies,
    check_suffix,
    write_examples,
)
from crosslift.data.examples import Examples
from crosslift.errors import BadInput
from crosslift.runs.progress import Watch
from crosslift.runs.settings import sort_settings


def augment(
    data: str | Path | Examples,
    *,
    out: str | Path | None = None,
    source: str = "en",
    split: str = "train",
    copies: int = 1,
    seed: int = 1,
    originals: bool = False,
    model: str | None = None,
    watch: Watch | None = None,
    **settings: object,
) -> Examples:
    """Return copies of examples with words replaced by synonyms; labels, tags and answers follow the words.

    Args:
        data: Examples, a file, or a catalog name: classification, tagging or question answering.
        out: Write them there: `.conll` for tagging, else `.jsonl`.
        source: Language of the data.
        split: Part of the data.
        copies: Copies of each example.
        seed: Another seed, other words.
        originals: Keep the examples as they are before their copies.
        model: Whose embeddings give the synonyms, where no dictionary does.
        watch: Who is told how many words have synonyms.
        settings: Anything of `SynonymSettings`, by name.
    """
    check_out(data, out)
    (own,) = sort_settings([SynonymSettings], settings)
    chosen = SynonymSettings(**own)
    examples = data if isinstance(data, Examples) else load(data, language=source, split=split)
    if examples.kind not in ("classification", "tagging", "qa"):
        raise BadInput(f"{examples.name} is a {examples.kind} set; augment takes classification, tagging or qa.")
    if out is not None:
        check_suffix(examples, Path(out))
    words = Source(chosen, examples)
    if chosen.synonyms == NEIGHBOURS:
        if model is None:
            raise BadInput(
                "Without a dictionary the synonyms come from a model's embeddings, and no model is named.",
                "Give --synonyms FILE or --model NAME.",
            )
        from crosslift.models.load import load_encoder, load_tokenizer

        matrix = load_encoder(model).get_input_embeddings().weight.detach()
        words.look_among_neighbours(load_tokenizer(model), matrix.float().numpy())
    if watch:
        watch.say(words.note())
    made = augmented_copies(words, copies, seed, originals=originals)
    if out is not None:
        write_examples(made, Path(out))
    return made


def check_out(data: str | Path | Examples, out: str | Path | None) -> None:
    """Refuse what cannot be a file, and to write over the data that is read: without `originals` it would be lost."""
    if out is None:
        return
    if Path(out).is_dir():
        raise BadInput(f"{out} is a folder.", "Name a file with --out.")
    blocking = next((parent for parent in Path(out).parents if parent.is_file()), None)
    if blocking is not None:
        raise BadInput(f"{blocking} is a file, not a folder.", "Choose another --out.")
    if isinstance(data, Examples) or not Path(data).is_file():
        return
    if Path(out).exists() and Path(out).samefile(data):
        raise BadInput(f"{out} is the data itself, and would be lost.", "Choose another --out.")
