"""Models by name: a folder, an embedded name (`mini-x`), or a hub id.

Weights are read from safetensors alone; a pickle checkpoint is refused. `trust_remote_code` is never set. For a
folder or an embedded name, or with HF_HUB_OFFLINE=1, nothing touches the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.utils import logging as transformers_logging

from crosslift.errors import BadInput, nearest

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from crosslift.tasks import Task

T = TypeVar("T")

EMBEDDED = Path(__file__).parent / "minis"
AUTO = {
    "classification": AutoModelForSequenceClassification,
    "tagging": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
}


def embedded_names() -> list[str]:
    """Return the names of the encoders that ship with crosslift."""
    return sorted(path.parent.name for path in EMBEDDED.glob("*/config.json"))


def locate(name: str | Path) -> str:
    """Return the folder or hub id behind a model name.

    A run folder stands for the model it delivered.
    """
    path = Path(name)
    if path.is_dir():
        for candidate in (path, path / "model"):
            if (candidate / "config.json").exists() and _is_model(candidate):
                return str(candidate)
        raise BadInput(
            f"{path} holds no model (no config.json with a model_type).",
            "Name a Hugging Face model folder or a finished run.",
        )
    if str(name) in embedded_names():
        return str(EMBEDDED / str(name))
    if path.exists():
        raise BadInput(f"{path} is a file.", "Name the folder that holds the model.")
    if path.is_absolute() or str(name).startswith(".") or str(name).count("/") > 1:
        raise BadInput(f"There is no folder {path}.")
    if offline() and not isinstance(try_to_load_from_cache(str(name), "config.json"), str):
        raise BadInput(
            f'No model "{name}" here, and the hub is switched off.{nearest(str(name), embedded_names())}',
            f"Embedded: {', '.join(embedded_names()) or 'none'}. Or name a folder, or unset HF_HUB_OFFLINE.",
        )
    return str(name)


def offline() -> bool:
    """Whether the environment forbids the hub."""
    return any(os.environ.get(k, "") not in ("", "0") for k in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a model; word maps need its character offsets."""
    where = locate(name)
    tokenizer = from_hub_or_folder(AutoTokenizer.from_pretrained, where)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes up where there is none
        raise BadInput(f"{name} has no tokenizer (tokenizer.json is missing).", "Save the model's tokenizer there too.")
    if not tokenizer.is_fast:
        raise BadInput(f"{name} has no fast tokenizer.", "Add its tokenizer.json (AutoTokenizer can convert most).")
    if tokenizer.pad_token_id is None:
        raise BadInput(f"The tokenizer of {name} has no padding token.", "Set one and save the tokenizer again.")
    # Many saved tokenizers do not know how long a text their model can read.
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions(load_config(where)))
    # Some were saved as they padded and cut last. That is the caller's to say, each time.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer without the length and padding that its last call asked for: they are not part of it."""
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)


def positions(config: PretrainedConfig) -> int:
    """Return how many tokens a model can read at once, special tokens included."""
    most = int(getattr(config, "max_position_embeddings", 0) or 10**6)
    # These families count positions from the padding id on.
    offset = config.model_type in ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet")
    return most - config.pad_token_id - 1 if offset else most


def load_config(name: str | Path) -> PretrainedConfig:
    """Load a model's configuration."""
    return from_hub_or_folder(AutoConfig.from_pretrained, locate(name))


def load_encoder(name: str | Path) -> PreTrainedModel:
    """Load the encoder without any head."""
    where = locate(name)
    return _weights(AutoModel, where, _bidirectional(load_config(where)))


def load_model(name: str | Path, task: Task | None = None, *, head_seed: int = 0) -> PreTrainedModel:
    """Load a model for a task: its own head where the labels agree by name, else a new one.

    Args:
        name: Folder, embedded name or hub id of an encoder or a task model.
        task: Decides the head; its labels are stored in the model's configuration. `None`: a task model as it is.
        head_seed: Fixes the weights of a new head.
    """
    if task is None:
        return _as_it_is(name)
    if task.kind not in AUTO:
        raise BadInput(f"There is no model for {task.kind} data.")
    where = locate(name)
    config = _bidirectional(load_config(where))
    if task.labels:
        config.id2label = dict(enumerate(task.labels))
        config.label2id = {label: i for i, label in enumerate(task.labels)}
        config.num_labels = len(task.labels)
    torch.manual_seed(head_seed)
    return _weights(AUTO[task.kind], where, config, task_labels=task.labels)


def _as_it_is(name: str | Path) -> PreTrainedModel:
    kind = model_kind(name)
    if kind is None:
        raise BadInput(f"{name} is an encoder without a task head.", "Use load_encoder, or say which task.")
    where = locate(name)
    return _weights(AUTO[kind], where, _bidirectional(load_config(where)))


def model_labels(name: str | Path) -> tuple[str, ...]:
    """Return a task model's label names in the order of its outputs; empty for a bare encoder."""
    config = load_config(name)
    heads = [a for a in (config.architectures or []) if "For" in a and "MaskedLM" not in a]
    return tuple(config.id2label[i] for i in range(len(config.id2label))) if heads else ()


def model_kind(name: str | Path) -> str | None:
    """Return the kind of task a saved model was made for, or `None` for a bare encoder."""
    heads = " ".join(load_config(name).architectures or [])
    marks = {
        "SequenceClassification": "classification",
        "TokenClassification": "tagging",
        "QuestionAnswering": "qa",
    }
    return next((kind for mark, kind in marks.items() if mark in heads), None)


def _weights(auto: type, where: str, config: PretrainedConfig, task_labels: tuple[str, ...] = ()) -> PreTrainedModel:
    import crosslift.models.heads  # noqa: F401  registers heads that transformers lacks

    if Path(where).is_dir():
        refuse_pickle(Path(where))
    kept = load_config(where)
    # A head whose labels stand in another order, or are others, is not reused: it would be shifted silently.
    same = [kept.id2label[i] for i in sorted(kept.id2label)] == list(task_labels)
    fresh = {} if same or not task_labels else {"ignore_mismatched_sizes": True}
    with quiet_transformers():
        loaded: tuple[PreTrainedModel, dict[str, Collection[object]]] = from_hub_or_folder(
            auto.from_pretrained,  # type: ignore[attr-defined]
            where,
            config=config,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            **fresh,
        )
    model, info = loaded
    _refuse_gaps(where, model, info)
    if not same and task_labels and _has_head(kept):
        _new_head(model)
    return model


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from drawing bars and from warning that a new head is new: that is what we asked for."""
    before = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
        if bars:
            transformers_logging.enable_progress_bar()


def _refuse_gaps(where: str, model: PreTrainedModel, info: dict[str, Collection[object]]) -> None:
    """Refuse an encoder of which transformers would make up a part; only a head and a pooler may be new."""
    whole = model.base_model is model
    encoder = {name if whole else f"{model.base_model_prefix}.{name}" for name in model.base_model.state_dict()}
    reshaped = [str(next(iter(cast("Collection[object]", entry)))) for entry in info["mismatched_keys"]]
    lost = sorted(encoder.intersection([*map(str, info["missing_keys"]), *reshaped]))
    lost = [name for name in lost if "pooler" not in name]
    if lost:
        raise BadInput(
            f"{where}: {len(lost)} weights of the encoder are missing or have another shape (first: {lost[0]}).",
            "Its config.json and its weights do not belong together.",
        )


def _has_head(config: PretrainedConfig) -> bool:
    return any("Classification" in name for name in config.architectures or [])


def _new_head(model: PreTrainedModel) -> None:
    """Initialise the last layer anew: its old rows belong to other labels."""
    for name in ("classifier", "score", "sequence_summary"):  # the last one is XLM's
        head = getattr(model, name, None)
        if head is not None:
            last = [m for m in head.modules() if isinstance(m, torch.nn.Linear)][-1]
            torch.nn.init.normal_(last.weight, std=0.02)
            if last.bias is not None:
                torch.nn.init.zeros_(last.bias)
            return
    raise BadInput(f"{type(model).__name__} has other labels, and its head cannot be renewed.", "Use its base encoder.")


def _bidirectional(config: PretrainedConfig) -> PretrainedConfig:
    """Let Gemma 3 look both ways: as an encoder it must see the whole sentence."""
    if config.model_type == "gemma3_text":
        config.use_bidirectional_attention = True
    return config


def _is_model(folder: Path) -> bool:
    return '"model_type"' in (folder / "config.json").read_text(encoding="utf-8", errors="replace")


def refuse_pickle(folder: Path) -> None:
    """Refuse a folder whose only weights are pickled."""
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(p.name for p in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt*"))
    if pickles:
        raise BadInput(
            f"{folder} holds pickled weights ({pickles[0]}), which can run code when loaded.",
            "Convert them where you trust them: model.save_pretrained(folder) writes model.safetensors.",
        )
    raise BadInput(f"{folder} holds no weights (model.safetensors is missing).")


def from_hub_or_folder(load: Callable[..., T], where: str, **options: object) -> T:
    """Call a `from_pretrained`; what goes wrong there is said in one line."""
    import crosslift.models.small_networks  # noqa: F401  registers students that transformers lacks

    local = Path(where).is_dir() or offline()
    try:
        return load(where, local_files_only=local, trust_remote_code=False, **options)
    except Exception as error:  # torn files, missing packages, the network: each library has its own kinds
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        remedy = "" if local else "Is the name right, and the hub reachable? A local folder always works."
        raise BadInput(f"{where} cannot be loaded: {first}", remedy) from error
