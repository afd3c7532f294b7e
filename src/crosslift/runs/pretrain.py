"""Pretrain an encoder: text (and pairs, lexicons, teachers) in, a Hugging Face folder out.

As a plain command, with nothing but the core packages:  python -m crosslift.runs.pretrain --config FILE.json
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AutoModelForMaskedLM

from crosslift.data.storage import atomic, write_json
from crosslift.data.tokenise import Workers
from crosslift.errors import BadInput, CrossliftError
from crosslift.methods.pretrain import Objectives, Pretrainer, Sampling
from crosslift.models.load import load_config, load_tokenizer, locate, save_tokenizer
from crosslift.models.new_encoder import Architecture, new_encoder, take_body
from crosslift.models.tokenizer_training import TokenizerSettings, train_tokenizer
from crosslift.runs.config_file import read_arguments
from crosslift.runs.folder import RunFolder
from crosslift.runs.held_out import HeldOut, is_stuck
from crosslift.runs.machine import describe
from crosslift.runs.pretrain_data import Corpus, prepare, read_corpus
from crosslift.runs.progress import Lines, Silent, Watch
from crosslift.runs.settings import Execution, Optimisation, check_evaluations, sort_settings
from crosslift.runs.timed_work import TimedWork, train_until
from crosslift.runs.train import make_accelerator

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class PretrainOptimisation(Optimisation):
    """How the weights of a new encoder move, where that differs from fine-tuning.

    In short trials at width 256 (250 steps, one seed) a rate of 1e-3 with the usual start of the weights stayed at
    piece frequencies; 6e-4 did not.
    """

    learning_rate: float = field(default=6e-4, metadata={"help": "Peak learning rate."})
    steps: int | None = field(default=10_000, metadata={"help": "Optimiser steps."})
    warmup: float = field(default=0.06, metadata={"help": "Share of the steps in which the rate rises."})
    schedule: Literal["linear", "cosine", "constant"] = field(
        default="cosine", metadata={"help": "How the rate falls after warm-up."}
    )
    floor: float = field(default=0.02, metadata={"help": "Rate at the end, as a share of the peak."})
    weight_decay: float = field(default=0.05, metadata={"help": "Decoupled weight decay; none on biases and norms."})
    beta2: float = field(default=0.98, metadata={"help": "Second-moment decay of AdamW."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is None or self.steps < 1:
            raise BadInput("Pretraining counts in steps, not epochs.", "Say --steps, for instance --steps 10000.")


SETTINGS = (Architecture, TokenizerSettings, Objectives, Sampling, PretrainOptimisation, Execution)
"""Dataclasses whose fields `pretrain` takes by name."""

_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_ROBERTA = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl")


@dataclass(frozen=True)
class Pretrained:
    """A finished pretraining run.

    Attributes:
        model: Hugging Face folder with encoder, masked-LM head and tokenizer.
        held_out: Language -> loss and accuracy on hidden pieces of held-out text, and the same for piece
            frequencies alone.
        stuck: Whether the masked LM learnt no more than frequencies.
        summary: Steps, seconds, tokens per second.
    """

    model: Path
    held_out: dict[str, dict[str, float]]
    stuck: bool
    summary: dict[str, object]


def pretrain(
    *,
    out: str | Path,
    text: Mapping[str, Sequence[str | Path] | str | Path],
    bitext: Sequence[str | Path] = (),
    lexicons: Mapping[str, str | Path] | None = None,
    tokenizer: str | Path | None = None,
    teachers: Sequence[str | Path] = (),
    start: str | Path | None = None,
    body: str | Path | None = None,
    phrases: Mapping[str, Sequence[str | Path] | str | Path] | None = None,
    exclude: Sequence[str | Path] = (),
    seed: int = 1,
    max_minutes: float | None = None,
    evaluations: int = 5,
    processes: int | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
    **settings: object,
) -> Pretrained:
    """Train an encoder from scratch, or further; started again with the same arguments, it goes on.

    Args:
        out: Run folder; the encoder is in its `model/`.
        text: Language -> file or files, one sentence or short run of sentences a line.
        bitext: Files of `language TAB english TAB translation`.
        lexicons: Language -> file of `english TAB word`.
        tokenizer: Folder of a tokenizer; default: one is trained on the text.
        teachers: Sentence encoders (folders, for English text) or files of text vectors (`write_vectors`).
        start: Encoder to continue, with its tokenizer.
        body: Encoder of the same shape whose layers a new one starts from; its tokenizer may differ.
        phrases: Language -> files of words and phrases, one a line; they are learnt from a teacher's vectors alone.
        exclude: Files of lines that are never trained on (evaluation text that is also in the training text).
        seed: Fixes weights, batches, dropout.
        max_minutes: Stop training after so long and write what is there; the rate is planned by steps.
        evaluations: How often the held-out loss is taken.
        processes: For tokenising; default one per core.
        overwrite: Replace a run that is there already.
        watch: Who is told about progress.
        settings: Anything of `Architecture`, `TokenizerSettings`, `Objectives`, `Sampling`,
            `PretrainOptimisation` and `Execution`, by name.
    """
    watch = watch or Silent()
    kept = sort_settings(SETTINGS, settings)
    shape, pieces, objectives, sampling, optimisation, execution = (
        Architecture(**kept[0]),
        TokenizerSettings(**kept[1]),
        Objectives(**kept[2]),
        Sampling(**kept[3]),
        PretrainOptimisation(**kept[4]),
        Execution(**kept[5]),
    )
    check_evaluations(evaluations)
    files = {language: _paths(paths) for language, paths in text.items()}
    short = {language: _paths(paths) for language, paths in (phrases or {}).items()}
    config: dict[str, object] = {
        "method": "pretrain",
        "text": {language: [str(p) for p in paths] for language, paths in files.items()},
        "bitext": [str(p) for p in bitext],
        "lexicons": {language: str(p) for language, p in (lexicons or {}).items()},
        "tokenizer": _text(tokenizer),
        "teachers": [str(t) for t in teachers],
        "start": _text(start),
        "body": _text(body),
        "exclude": [str(p) for p in exclude],
        "phrases": {language: [str(p) for p in paths] for language, paths in short.items()},
        "seed": seed,
        "architecture": asdict(shape),
        "pieces": asdict(pieces),
        "objectives": asdict(objectives),
        "sampling": asdict(sampling),
        "optimisation": asdict(optimisation),
    }
    folder = RunFolder.start(out, config, overwrite=overwrite)
    if folder.done:
        watch.say(f"{folder.path} is done already.")
        return _finished(folder)
    began = time.monotonic()
    accelerator = make_accelerator(execution)
    with Workers(processes) as workers:
        dictionaries = {k: Path(v) for k, v in (lexicons or {}).items()}
        corpus = read_corpus(files, [Path(p) for p in bitext], dictionaries, [Path(p) for p in exclude], short)
        watch.say(f"read      {corpus.describe()}   {time.monotonic() - began:.0f} s")
        vocabulary = _tokenizer(folder, tokenizer or start, corpus, pieces, seed, watch)
        data = prepare(corpus, vocabulary, teachers, sampling, objectives, accelerator.device, seed, workers, watch)
    watch.say(f"prepared  {data.describe()}   {time.monotonic() - began:.0f} s")
    model = _model(shape, vocabulary, start, body, seed)
    module = Pretrainer(model, objectives, [t.sentences.shape[1] for t in data.teachers], data.word_width)
    positions = shape.max_positions if start is None else _positions_of(model)
    work = TimedWork(
        data.streams,
        data.pairs,
        data.teachers,
        vocabulary,
        steps=optimisation.steps or 0,
        sampling=sampling,
        objectives=objectives,
        max_positions=positions,
        seed=seed,
    )
    work.limit(max_minutes, watch)
    judge = HeldOut(work, data, optimisation.warmup, watch)
    if execution.compile:
        _compile_layers(model)
        execution = replace(execution, compile=False)
    seconds = train_until(
        module, work, folder, optimisation, execution, minutes=max_minutes, watch=watch, seed=seed,
        evaluate=judge if data.held_out and objectives.masked else None, evaluations=evaluations,
        accelerator=accelerator, label="pretrain",
    )  # fmt: skip
    summary = {"steps": work.at, "seconds": round(seconds, 1), "tokens_per_second": round(work.tokens / seconds)}
    held_out = judge.by_language(module) if data.held_out else {}
    stuck = bool(objectives.masked) and is_stuck(held_out)
    if stuck:
        judge.warn()
    for name in _DROPOUTS:
        if hasattr(model.config, name):
            setattr(model.config, name, shape.later_dropout)
    save_encoder(model, vocabulary, folder.model)
    write_json(folder.results_file, {"held_out": held_out, "stuck": stuck, **summary})
    folder.finish({**summary, "stuck": stuck, "machine": describe()})
    return _finished(folder)


def _compile_layers(model: PreTrainedModel) -> None:
    """Compile the layers rather than the whole: they share one graph, so it takes seconds, not minutes."""
    # A step has one of a few shapes; one fast graph for each beats one slow graph for all.
    torch._dynamo.config.automatic_dynamic_shapes = False
    torch._dynamo.config.cache_size_limit = 64
    torch.set_float32_matmul_precision("high")
    for layer in model.base_model.encoder.layer:
        layer.compile(dynamic=False)


def _tokenizer(
    folder: RunFolder, given: str | Path | None, corpus: Corpus, pieces: TokenizerSettings, seed: int, watch: Watch
) -> PreTrainedTokenizerBase:
    """Load the tokenizer, or train one and keep it in the run folder for a resume."""
    if given is not None:
        return load_tokenizer(given) if (Path(given) / "config.json").exists() else _bare_tokenizer(given)
    home = folder.path / "tokenizer"
    if not home.exists():
        watch.say(f"tokenizer training on {corpus.describe()}")
        trained = train_tokenizer(corpus.by_language(), pieces, seed)
        with atomic(home) as draft:
            trained.save_pretrained(draft)
    return _bare_tokenizer(home)


def _bare_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    if not (Path(folder) / "tokenizer.json").exists():
        raise BadInput(f"{folder} holds no tokenizer (tokenizer.json is missing).")
    return PreTrainedTokenizerFast.from_pretrained(str(folder))


def _model(
    shape: Architecture,
    tokenizer: PreTrainedTokenizerBase,
    start: str | Path | None,
    body: str | Path | None,
    seed: int,
) -> PreTrainedModel:
    if start is not None:
        config = load_config(start)
        for name in _DROPOUTS:
            if hasattr(config, name):
                setattr(config, name, shape.dropout)
        model: PreTrainedModel = AutoModelForMaskedLM.from_pretrained(locate(start), config=config, dtype=torch.float32)
        return model
    model = new_encoder(shape, tokenizer, seed)
    if body is not None:
        donor = AutoModelForMaskedLM.from_pretrained(locate(body), dtype=torch.float32)
        take_body(model, tokenizer, donor, load_tokenizer(body))
    return model


def _positions_of(model: PreTrainedModel) -> int:
    """Return the number of positions for real tokens, or 0 where a family counts them otherwise."""
    config = model.config
    return config.max_position_embeddings - config.pad_token_id - 1 if config.model_type in _ROBERTA else 0


def save_encoder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write encoder and tokenizer as a Hugging Face folder, in half precision."""
    with atomic(folder) as draft:
        draft.mkdir()
        model.to(torch.float16).save_pretrained(draft, save_original_format=False)
        save_tokenizer(tokenizer, draft)
    model.to(torch.float32)


def _finished(folder: RunFolder) -> Pretrained:
    results = json.loads(folder.results_file.read_text(encoding="utf-8"))
    return Pretrained(folder.model, results["held_out"], results["stuck"], folder.summary)


def _paths(paths: Sequence[str | Path] | str | Path) -> list[Path]:
    return [Path(paths)] if isinstance(paths, (str, Path)) else [Path(p) for p in paths]


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a pretraining described by a JSON file: the arguments of `pretrain` by name."""
    watch = Lines(every=10.0)
    try:
        given: dict[str, Any] = read_arguments(arguments, "pretrain")
        done = pretrain(watch=watch, **given)
    except CrossliftError as error:
        watch.say(str(error))
        return error.exit_code
    for language, scores in done.held_out.items():
        watch.say("  ".join([f"{language:>4}"] + [f"{name} {value:.3f}" for name, value in scores.items()]))
    watch.say(f"model     {done.model}   {json.dumps({k: v for k, v in done.summary.items() if k != 'machine'})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
