"""What the jobs of `run.py` share, tokenised once: in memory within a process, on disk between processes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jobs import TASKS


def shared(scratch: Path, name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401  whatever was made
    """Return what another process has made, or make it."""
    file = scratch / "shared" / f"{name}.pickle"
    if file.exists():
        return pickle.loads(file.read_bytes())
    made = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_bytes(pickle.dumps(made))
    draft.replace(file)
    return made


@cache
def tokenizer_of(base: str) -> tuple[Any, str]:
    """Return the tokenizer of an encoder, and a name for all that was tokenised with it."""
    from crosslift.models.frozen import tokenizer_fingerprint
    from crosslift.models.load import load_tokenizer

    tokenizer = load_tokenizer(base)
    return tokenizer, tokenizer_fingerprint(tokenizer)[:8]


@cache
def training(name: str, source: str, base: str, scratch: Path) -> tuple[Any, Any]:
    """Return a task, and fine-tuning on its training data, tokenised."""
    import crosslift as xl
    from crosslift.data import catalog
    from crosslift.methods.finetune import Finetune, Settings
    from crosslift.tasks import task_for

    tokenizer, known = tokenizer_of(base)

    def make() -> tuple[Any, Any]:
        data = TASKS[name]["data"]
        examples = xl.load(data, language=source, split="train")
        task = task_for(examples, catalog.find(examples.name).labels or None, **TASKS[name].get("options", {}))
        return task, Finetune(Settings(), task, tokenizer, examples)

    found: tuple[Any, Any] = shared(scratch, f"train-{name}-{source}-{known}", make)
    return found


@cache
def tests(name: str, language: str, mix: str, split: str, base: str, limit: int | None, scratch: Path) -> Any:  # noqa: ANN401
    """Return test data, and the same tokenised."""
    import crosslift as xl
    from crosslift.data import cross, mixed

    tokenizer, known = tokenizer_of(base)

    def make() -> Any:  # noqa: ANN401  Examples, Encoded
        data = TASKS[name]["data" if split == "dev" else "test"]
        examples = xl.load(data, language=language, split=split)
        if mix:
            english = xl.load(data, language="en", split=split)
            if mix == "sentences":
                examples = mixed(examples, english)
            else:
                examples = cross(english, examples) if mix == "question" else cross(examples, english)
        if limit:
            examples = examples.take(limit)
        task, _ = training(name, "en", base, scratch)
        return examples, task.encode(examples.unlabelled(), tokenizer)

    return shared(scratch, f"{split}-{name}-{language}-{mix}-{limit}-{known}", make)


@cache
def pairs_of(source: str, language: str, pooling: str, linked: str, base: str, prepared: Path, scratch: Path) -> Any:  # noqa: ANN401
    """Return all pairs of a language, tokenised, with their links."""
    from crosslift.align import AlignedBitext, read_pharaoh
    from crosslift.align.aligned import word_spans
    from crosslift.align.encoded_pairs import encode_pairs, pieces_as_words
    from crosslift.data.bitext import read_bitext

    tokenizer, known = tokenizer_of(base)
    pieces = pooling == "subwords"

    def make() -> Any:  # noqa: ANN401  EncodedPairs
        stem = prepared / f"{source}-{language}"
        bitext = read_bitext(f"{stem}.tsv.xz", language="en", pair_language=language, strict=True)
        cut = pieces_as_words(bitext, tokenizer) if pieces else bitext
        kind = "spaces" if pieces else "segment"
        spans = [word_spans(texts, x, kind) for texts, x in ((cut.texts, "en"), (cut.pairs, language))]
        links = read_pharaoh(f"{stem}.{'pieces' if pieces else 'links'}.xz", *([*map(len, side)] for side in spans))
        aligned = AlignedBitext(cut, *spans, links)
        return encode_pairs(aligned, tokenizer, pieces_of=bitext if pieces else None, linked=linked)  # type: ignore[arg-type]

    return shared(scratch, f"pairs-{source}-{language}-{'pieces' if pieces else 'words'}-{linked}-{known}", make)
