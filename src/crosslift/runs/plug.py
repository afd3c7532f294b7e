"""Train a connector, and plug task models onto it.

As a plain command, with nothing but the core packages:  python -m crosslift.runs.plug --config FILE.json
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForMaskedLM

from crosslift.data.files import read_lines
from crosslift.data.hmlm import Frame
from crosslift.data.storage import write_json
from crosslift.data.tokenise import Workers
from crosslift.data.word_corpus import outdated, write_word_corpus
from crosslift.data.word_pieces import kept_word_pieces
from crosslift.errors import BadInput, CrossliftError, nearest
from crosslift.methods.plug import PRESETS, Adaptation, PlugPoints, Settings
from crosslift.models.anatomy import layers_of
from crosslift.models.connectors import ConnectorFacts, save_connector
from crosslift.models.load import (
    from_hub_or_folder,
    load_encoder,
    load_tokenizer,
    locate,
    quiet_transformers,
    refuse_pickle,
)
from crosslift.models.reassembled import native_obstacle
from crosslift.runs.config_file import read_arguments
from crosslift.runs.folder import RunFolder
from crosslift.runs.machine import describe, precision_for
from crosslift.runs.plug_work import HeldOutText, Translations, plug_work
from crosslift.runs.progress import Lines, Silent, Watch
from crosslift.runs.settings import Execution, Optimisation, check_evaluations, sort_settings
from crosslift.runs.timed_work import train_until
from crosslift.runs.train import make_accelerator

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel


_SCRATCH = "text"
"""In the run folder, until it is done: the text as numbers, the tables, the rows."""


@dataclass(frozen=True)
class PlugOptimisation(Optimisation):
    """How the connector's weights move; the presets set all of it."""

    learning_rate: float = field(default=2e-4, metadata={"help": "Peak learning rate."})
    epochs: float = field(default=3.0, metadata={"help": "Not here: say --steps."})
    steps: int | None = field(default=30_000, metadata={"help": "Optimiser steps."})
    batch_size: int = field(default=256, metadata={"help": "Rows per step; of lines, as many as fill so many rows."})
    weight_decay: float = field(default=0.01, metadata={"help": "Decoupled weight decay; none on biases and norms."})
    clip: float = field(default=2.0, metadata={"help": "Largest gradient norm; 0 = no clipping."})
    beta2: float = field(default=0.98, metadata={"help": "Second-moment decay of AdamW."})
    frozen_layers: int | None = field(default=None, metadata={"help": "Not here: say --encoder-layers."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is None:
            raise BadInput("A connector's training counts in steps, not epochs.", "Say --steps.")
        if self.frozen_layers is not None:
            raise BadInput(
                "--frozen-layers is for fine-tuning; all of a connector learns.",
                "How many multilingual layers stay as they are, --encoder-layers says.",
            )


@dataclass(frozen=True)
class PlugExecution(Execution):
    """How the machine is used."""

    max_tokens: int = field(default=131_072, metadata={"help": "Tokens per micro-batch; bounds the memory."})


SETTINGS = (Settings, PlugOptimisation, PlugExecution)
"""Dataclasses whose fields `fit_connector` takes by name."""


@dataclass(frozen=True)
class ConnectorRun:
    """A finished training of a connector.

    Attributes:
        path: Run folder, which `plug` takes.
        connector: Folder of the connector.
        held_out: Accuracy (%) and loss of hidden pieces of held-out text, and the distance of word vectors.
        summary: Steps, seconds, tokens per second.
    """

    path: Path
    connector: Path
    held_out: dict[str, float]
    summary: dict[str, object]


def fit_connector(
    *,
    multi: str | Path,
    mono: str | Path,
    text: Sequence[str | Path] | str | Path,
    out: str | Path,
    preset: str = "small",
    bitext: Sequence[str | Path] | str | Path = (),
    exclude: Sequence[str | Path] | str | Path = (),
    seed: int = 1,
    max_minutes: float | None = None,
    evaluations: int = 5,
    keep_steps: bool = False,
    cache: str | Path | None = None,
    processes: int | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
    **settings: object,
) -> ConnectorRun:
    """Train a connector on text of the monolingual model's language; started again, it goes on.

    Args:
        multi: Multilingual encoder by folder, embedded name or hub id.
        mono: Monolingual model, with its masked-LM head.
        text: File or files of the monolingual model's language.
        out: Run folder; `plug` takes it.
        preset: `paper` or `small`; single settings override it.
        bitext: File or files of `language TAB english TAB translation`. No longer the paper's setting, and said in the
            result.
        exclude: File or files of lines that are never trained on.
        seed: Fixes rows, masks and dropout.
        max_minutes: Stop training after so long and keep what is there; the rate is planned by steps.
        evaluations: How often held-out text is predicted.
        keep_steps: Keep the connector of every evaluation, in `steps/`.
        cache: Folder in which the text as numbers and the tables of both vocabularies are kept for other runs;
            default: in the run folder, until it is done.
        processes: For reading text; default: one per core.
        overwrite: Replace a run that is there already.
        watch: Who is told about progress.
        settings: Anything of `Settings`, `PlugOptimisation` and `PlugExecution`, by name.
    """
    watch = watch or Silent()
    if preset not in PRESETS:
        raise BadInput(f'There is no preset "{preset}".{nearest(preset, PRESETS)}', f"Presets: {', '.join(PRESETS)}.")
    if seed < 0:
        raise BadInput(f"--seed must be 0 or more, not {seed}.")
    if max_minutes is not None and not max_minutes > 0:
        raise BadInput(f"--max-minutes must be above 0, not {max_minutes:g}.", "Without it there is no limit.")
    check_evaluations(evaluations)
    if settings.get("epochs") is not None:
        raise BadInput("A connector's training counts in steps, not epochs.", "Say --steps.")
    kept = sort_settings(SETTINGS, {**PRESETS[preset], **settings})
    own, optimisation, execution = Settings(**kept[0]), PlugOptimisation(**kept[1]), PlugExecution(**kept[2])
    # A name by itself is one file, not a file for each of its letters.
    text, bitext, exclude = ([one] if isinstance(one, (str, Path)) else one for one in (text, bitext, exclude))
    files = [Path(file) for file in text]
    config: dict[str, object] = {
        "method": "plug",
        "multi": str(multi),
        "mono": str(mono),
        "text": [str(file) for file in files],
        "bitext": [str(file) for file in bitext],
        "exclude": [str(file) for file in exclude],
        "preset": preset,
        "seed": seed,
        "settings": asdict(own),
        "optimisation": asdict(optimisation),
    }
    if bitext and not own.pairs:
        raise BadInput("With --pairs 0, nothing is learnt from --bitext.", "Leave one of them out.")
    accelerator = make_accelerator(execution)
    folder = RunFolder(out)
    if accelerator.is_main_process:
        folder = RunFolder.start(out, config, overwrite=overwrite)
    accelerator.wait_for_everyone()
    if folder.done:
        watch.say(f"{folder.path} is done already.")
        return _finished(folder)
    if not accelerator.is_main_process:
        watch = Silent()
    with folder.locked() if accelerator.is_main_process else nullcontext():
        try:
            _train(folder, files, exclude, own, optimisation, execution, config, max_minutes, evaluations, keep_steps,
                   Path(cache) if cache else None, processes, accelerator, watch)  # fmt: skip
        except BadInput:
            if not folder.state.exists():  # refused before the first step: nothing of it shall stay
                shutil.rmtree(folder.path / _SCRATCH, ignore_errors=True)
            raise
    accelerator.wait_for_everyone()
    return _finished(folder)


def _train(
    folder: RunFolder,
    files: Sequence[Path],
    exclude: Sequence[str | Path],
    own: Settings,
    optimisation: PlugOptimisation,
    execution: PlugExecution,
    config: dict[str, object],
    max_minutes: float | None,
    evaluations: int,
    keep_steps: bool,
    cache: Path | None,
    processes: int | None,
    accelerator: Accelerator,
    watch: Watch,
) -> None:
    began = time.monotonic()
    device = accelerator.device
    seed = int(str(config["seed"]))
    multi, mono = load_encoder(str(config["multi"])), _monolingual(str(config["mono"]), own)
    tokenizers = load_tokenizer(str(config["multi"])), load_tokenizer(str(config["mono"]))
    scratch = folder.path / _SCRATCH
    # Before the text is read, which may take long: what cannot be is said at once.
    points = PlugPoints.of(own, multi, mono)
    longest = min(tokenizer.model_max_length for tokenizer in tokenizers)
    if own.length > longest:
        raise BadInput(f"--length {own.length} is more than the models can read ({longest}).")
    obstacle = native_obstacle(multi.config, mono.config)
    if obstacle:
        watch.say(
            f"note      task models on it will work in memory alone (crosslift.runs.plugged.reassemble): {obstacle}"
        )
    Frame.of(*tokenizers)
    left_out = {line for file in exclude for line in read_lines(Path(file))}
    pairs = [Path(file) for file in config["bitext"]]  # type: ignore[attr-defined]
    translations = Translations(pairs, *tokenizers, device, left_out) if pairs else None
    setting = f"text, and pairs of {', '.join(translations.languages)}" if translations else "English text alone"
    facts = ConnectorFacts(
        str(config["multi"]), str(config["mono"]), points.encoder, points.connector, points.plug,
        mono.config.model_type, mono.config.hidden_size, len(layers_of(mono)), setting,
    )  # fmt: skip
    rounded = precision_for(execution.precision, device.type == "cpu") == "bf16"
    frozen = torch.bfloat16 if rounded else torch.float32
    module = Adaptation(multi, mono, points, own, frozen)
    module.move(device)
    kept = (cache or scratch) / "words"
    if cache is None and folder.state.exists() and outdated(files, kept, left_out):
        watch.say("note      the text has changed since this run began: it goes on with what is there now")
    with accelerator.main_process_first():  # the others open what it has written
        with Workers(processes) as workers:
            corpus = write_word_corpus(files, kept, workers, left_out)
        watch.say(f"read      {len(corpus.numbers):,} words, {len(corpus.words):,} different   {_since(began)}")
        separate = own.packing == "corpus"
        tables = (cache or scratch) / ("separated.safetensors" if separate else "joined.safetensors")
        pieces = kept_word_pieces(tables, corpus.words, *tokenizers, separate=separate).to(device)
    watch.say(f"tables    {len(pieces.multi_starts):,} stretches   {_since(began)}")
    work, held_out_rows = plug_work(
        corpus, pieces, tokenizers, own, optimisation, execution, scratch / f"rows-{accelerator.process_index}", seed,
        translations,
    )  # fmt: skip
    work.deadline = time.monotonic() + 60 * max_minutes if max_minutes else float("inf")
    judge = HeldOutText(work, held_out_rows, tokenizers[1].model_max_length, watch)
    if keep_steps and accelerator.is_main_process:
        judge.keep = lambda step: save_connector(
            folder.path / "steps" / f"{step:06d}", facts, module.connector, multi, mono
        )
    if execution.compile:
        module.compile_parts()
        # Compiled layers keep a GPU busy by themselves: recorded as well only if asked for.
        execution = replace(execution, compile=False, cuda_graphs=bool(execution.cuda_graphs))
    layers = f"{points.encoder} + {points.connector} + {len(layers_of(mono)) - points.plug}"
    shape = f"{optimisation.batch_size} × {own.length}"
    watch.say(f"plan      {work.steps:,} steps of {shape}, layers {layers} on {device.type}")
    seconds = train_until(
        module, work, folder, optimisation, execution, minutes=max_minutes, watch=watch, seed=seed, evaluate=judge,
        evaluations=evaluations, accelerator=accelerator, label="plug",
    )  # fmt: skip
    if not accelerator.is_main_process:
        return
    module.eval()
    held_out = judge(module)
    save_connector(folder.path / "connector", facts, module.connector, multi, mono)
    summary = {
        "steps": work.at,
        "tokens": work.tokens,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(work.tokens / max(seconds, 1e-9)),
    }
    write_json(folder.results_file, {"held_out": held_out, **summary})
    shutil.rmtree(scratch, ignore_errors=True)
    folder.finish({**summary, "held_out": held_out, "setting": facts.setting, "machine": describe()})


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


def _monolingual(name: str, settings: Settings) -> PreTrainedModel:
    """Load the monolingual model, with its masked-LM head where that is needed."""
    if not settings.hmlm:
        return load_encoder(name)
    where = locate(name)
    if Path(where).is_dir():
        refuse_pickle(Path(where))
    with quiet_transformers():
        model, info = from_hub_or_folder(
            AutoModelForMaskedLM.from_pretrained,
            where,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    lost = [key for key in info["missing_keys"] if "position_ids" not in key]
    if lost:
        raise BadInput(
            f"{name} has no masked-LM head ({lost[0]} is missing).",
            "Name the public model that the task models were tuned from, or train with --hmlm 0 --align 1.",
        )
    masked: PreTrainedModel = model
    return masked


def _finished(folder: RunFolder) -> ConnectorRun:
    summary = folder.summary
    return ConnectorRun(folder.path, folder.path / "connector", summary["held_out"], summary)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a connector as a JSON file says: the arguments of `fit_connector` by name."""
    watch = Lines(every=10.0)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        given: dict[str, Any] = read_arguments(arguments, "fit_connector")
        done = fit_connector(watch=watch, **given)
    except CrossliftError as error:
        watch.say(str(error))
        return error.exit_code
    watch.say(f"connector {done.connector}   {json.dumps({k: v for k, v in done.summary.items() if k != 'machine'})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
