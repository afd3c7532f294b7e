"""The baselines of PlugIn-X: a monolingual task model under a multilingual vocabulary.

`emb_map` maps embeddings by a linear map and needs no training; `emb_learn` trains new ones under the frozen body,
on text of the target languages, and `plug_embeddings` puts them under any task model of the same base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForMaskedLM

from crosslift.data.files import read_lines
from crosslift.data.storage import atomic
from crosslift.data.streams import Streams
from crosslift.data.tokenise import Workers, tokenise_lines
from crosslift.errors import BadInput
from crosslift.methods.pretrain import Objectives, Pretrainer, PretrainWork, Sampling
from crosslift.models.load import AUTO, load_encoder, load_tokenizer, locate, model_kind, quiet_transformers
from crosslift.models.other_vocabulary import mapped_embeddings, with_embeddings
from crosslift.runs.deliver import save_model
from crosslift.runs.folder import RunFolder
from crosslift.runs.progress import Silent, Watch
from crosslift.runs.settings import Execution, Optimisation, sort_settings
from crosslift.runs.train import make_accelerator, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def emb_map(task_model: str | Path, multi: str | Path, mono: str | Path, out: str | Path) -> Path:
    """Write a task model whose word embeddings are the multilingual ones, mapped; return its folder.

    Args:
        task_model: Monolingual task model.
        multi: Multilingual encoder.
        mono: The model that the task model was tuned from.
        out: Folder of the new model.
    """
    vectors = mapped_embeddings(load_encoder(multi), load_encoder(mono), load_tokenizer(multi), load_tokenizer(mono))
    return plug_embeddings(task_model, vectors, multi, out)


def plug_embeddings(
    task_model: str | Path, embeddings: Tensor | str | Path, multi: str | Path, out: str | Path
) -> Path:
    """Put embeddings (vocabulary of `multi`, width), or the file that `emb_learn` wrote, under a task model.

    An earlier model in `out` is replaced, anything else is refused.
    """
    out = Path(out)
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / "config.json").exists())):
        raise BadInput(f"{out} holds something that is no model.", "Choose another folder.")
    kind = model_kind(task_model)
    if kind is None:
        raise BadInput(f"{task_model} is an encoder without a task head.", "Tune it for a task first.")
    vectors = embeddings if isinstance(embeddings, Tensor) else load_file(embeddings)["embeddings"].float()
    tokenizer = load_tokenizer(multi)
    with quiet_transformers():
        task: PreTrainedModel = AUTO[kind].from_pretrained(locate(task_model), dtype=torch.float32)
    save_model(with_embeddings(task, vectors, tokenizer), tokenizer, out)
    return out


def emb_learn(
    mono: str | Path,
    multi: str | Path,
    text: Mapping[str, Sequence[str | Path]],
    out: str | Path,
    *,
    seed: int = 1,
    window: int = 128,
    processes: int | None = 1,
    watch: Watch | None = None,
    **settings: object,
) -> Path:
    """Train multilingual word embeddings under a frozen monolingual body; return the file that holds them.

    Args:
        mono: Monolingual model with its masked-LM head.
        multi: Model whose vocabulary is used.
        text: Language -> files of the languages that the task is to work in.
        out: Run folder.
        seed: Fixes batches.
        window: Tokens per row.
        processes: For tokenising.
        watch: Who is told about progress.
        settings: Anything of `Optimisation` (`steps`, `batch_size` in rows, `learning_rate`, …) and `Execution`.
    """
    defaults: dict[str, object] = {"steps": 3_000, "batch_size": 512, "learning_rate": 2e-4, "beta2": 0.98, "clip": 2.0}
    kept = sort_settings((Optimisation, Execution), {**defaults, **settings})
    optimisation, execution = Optimisation(**kept[0]), Execution(**kept[1])
    files = {language: [str(path) for path in paths] for language, paths in text.items()}
    config: dict[str, object] = {"method": "emb-learn", "mono": str(mono), "multi": str(multi), "text": files}
    config |= {"seed": seed, "window": window, "optimisation": asdict(optimisation)}
    folder = RunFolder.start(out, config)
    file = folder.path / "embeddings.safetensors"
    if folder.done:
        return file
    tokenizer, mono_tokenizer = load_tokenizer(multi), load_tokenizer(mono)
    with quiet_transformers():
        model: PreTrainedModel = AutoModelForMaskedLM.from_pretrained(locate(mono), dtype=torch.float32)
    # A mapped start is kinder than a random one: the baseline should be as good as it can be.
    start = mapped_embeddings(load_encoder(multi), model, tokenizer, mono_tokenizer)
    with_embeddings(model, start, tokenizer)
    model.requires_grad_(False)
    model.get_input_embeddings().weight.requires_grad_(True)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and len(parameter) == len(start) and "bias" in name:
            parameter.requires_grad_(True)  # one output bias per new piece
    accelerator = make_accelerator(execution)
    lines = {language: [line for p in paths for line in read_lines(Path(p))] for language, paths in files.items()}
    with Workers(processes) as workers:
        streams = Streams.of(tokenise_lines(lines, tokenizer.backend_tokenizer, workers)).to(accelerator.device)
    objectives = Objectives(masked=1.0, contrast=0.0, sentences=0.0, words=0.0, mask_rate=0.15, shifted=0.0)
    module = Pretrainer(model, objectives)
    work = PretrainWork(
        streams,
        None,
        [],
        tokenizer,
        steps=optimisation.steps or 0,
        sampling=Sampling(window=window, window_tokens=window * optimisation.batch_size),
        objectives=objectives,
        max_positions=0,
        seed=seed,
    )
    train(
        module, work, folder, optimisation, execution,
        seed=seed, accelerator=accelerator, watch=watch or Silent(), label="emb-learn",
    )  # fmt: skip
    with atomic(file) as draft:
        save_file({"embeddings": model.get_input_embeddings().weight.detach().half().cpu().contiguous()}, draft)
    folder.finish({"steps": work.steps})
    return file
