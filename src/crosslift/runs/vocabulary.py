"""More pieces for a language, and the masked LM that teaches them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crosslift.data.plain import read_language
from crosslift.data.storage import Json, read_json, write_json
from crosslift.errors import BadInput
from crosslift.models.vocabulary import Resized
from crosslift.models.vocabulary import extend_vocabulary as add_pieces
from crosslift.runs.pretrain import SETTINGS, Pretrained, PretrainOptimisation, pretrain
from crosslift.runs.progress import Silent, Watch
from crosslift.runs.settings import option, sort_settings

_REPORT, _ASKED = "extended.json", "asked"


@dataclass(frozen=True)
class ExtensionOptimisation(PretrainOptimisation):
    """How a trained encoder moves while it learns new pieces: more gently than a new one."""

    learning_rate: float = field(default=1e-4, metadata={"help": "Peak learning rate."})
    steps: int | None = field(default=1000, metadata={"help": "Optimiser steps of the masked LM."})


@dataclass(frozen=True)
class Extended:
    """An encoder with more pieces.

    Attributes:
        model: The trained encoder, in Hugging Face format.
        start: The encoder before training, and what the new pieces did to the text.
        trained: The masked-LM run; `None` if there was none.
    """

    model: Path
    start: Resized
    trained: Pretrained | None


def extend_vocabulary(
    model: str | Path,
    *,
    out: str | Path,
    text: Mapping[str, Sequence[str | Path] | str | Path],
    pieces: int = 5000,
    least: int = 5,
    train: bool = True,
    seed: int = 1,
    max_minutes: float | None = None,
    watch: Watch | None = None,
    **settings: object,
) -> Extended:
    """Add pieces for languages that an encoder's tokenizer cuts too fine, and train the masked LM on their text.

    The encoder before training is written beside `out`, with `-extended` after its name. Started again, it goes on.

    Args:
        model: An encoder, by folder or name.
        out: Run folder of the training; the encoder is in its `model/`. Without training: the folder of the encoder.
        text: Language -> file or files, one sentence or short run of sentences a line.
        pieces: How many pieces to add, at most.
        least: A new piece occurs at least so often.
        train: Whether to train at all; without it new rows are means of old ones.
        seed: Fixes batches and dropout.
        max_minutes: Stop training after so long.
        watch: Who is told about progress.
        settings: Of `crosslift.pretrain`: steps, learning_rate, window, …
    """
    watch = watch or Silent()
    out = Path(out)
    unused = [*settings, *(["max_minutes"] if max_minutes is not None else [])]
    if unused and not train:
        raise BadInput(f"{option(unused[0])} is a setting of the masked LM, and nothing is to be trained.", "Drop it.")
    gentle = asdict(ExtensionOptimisation())
    wanted = {name: gentle[name] for name in ("learning_rate", "steps")} | settings
    for kind, own in zip(SETTINGS, sort_settings(SETTINGS, wanted), strict=True):
        kind(**own)  # what cannot be is said before anything is written
    start = out.with_name(f"{out.name}-extended") if train else out
    report = start / _REPORT
    files = {language: [f] if isinstance(f, str | Path) else f for language, f in text.items()}
    lines = [line for language, paths in files.items() for line in read_language(paths, language)]
    digest = hashlib.blake2b("\n".join(lines).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    asked: Json = {"model": str(model), "pieces": pieces, "least": least, "text": digest}
    if report.exists():
        resized = _report(report, asked)
    else:
        resized = add_pieces(model, start, lines, pieces=pieces, least=least)
        write_json(report, {**resized.to_dict(), _ASKED: asked})
    watch.say(describe(resized))
    if not train:
        return Extended(start, resized, None)
    done = pretrain(out=out, text=text, start=start, seed=seed, max_minutes=max_minutes, watch=watch, **wanted)
    return Extended(done.model, resized, done)


def describe(found: Resized) -> str:
    """Return what the new pieces did, in words."""
    fewer = 1 - found.tokens[1] / max(found.tokens[0], 1)
    return (
        f"pieces    {found.pieces[0]:,} -> {found.pieces[1]:,}   tokens of the text {found.tokens[0]:,} -> "
        f"{found.tokens[1]:,} ({fewer:.1%} fewer)"
    )


def _report(path: Path, asked: Json) -> Resized:
    """Read what was made before; pieces chosen in another way are refused, not taken for what was asked."""
    kept = read_json(path)
    before = kept.pop(_ASKED, asked)  # older reports do not say
    if isinstance(before, dict) and before != asked:
        changes = "; ".join(f"{k}: {before.get(k)} there, {asked[k]} now" for k in asked if before.get(k) != asked[k])
        raise BadInput(f"{path.parent} holds other pieces ({changes}).", "Choose another --out, or remove that folder.")
    return Resized(**{k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()})  # type: ignore[arg-type]
