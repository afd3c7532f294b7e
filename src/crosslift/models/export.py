"""A task model as an ONNX file that says the same, and its int8 version, in a folder that works by itself.

The folder holds `model.onnx` (and `model.int8.onnx`), the tokenizer, `config.json` with the labels, and `predict.py`, a
short script that needs onnxruntime, tokenizers and numpy alone.
"""

from __future__ import annotations

import copy
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crosslift.data.storage import atomic
from crosslift.errors import BadInput, CrossliftError, MissingExtra
from crosslift.models.forward import OUTPUTS, forward
from crosslift.models.load import load_model, load_tokenizer, locate, save_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATOL = 1e-4
"""How far a logit of the exported model may lie from the original's."""

ONNX, INT8 = "model.onnx", "model.int8.onnx"
"""Names of the files."""

_SHAPES = ((1, 5), (3, 17), (4, 40), (2, 3))


class _Logits(nn.Module):
    """Ids and mask in, with token types where a model tells them apart, logits out: what the file computes."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model, self.config = _with_lstm_nodes(model), model.config

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        found = forward(self.model, {"input_ids": input_ids, "attention_mask": attention_mask, **types})
        return tuple(found[name] for name in OUTPUTS if name in found)


class _LstmNode(nn.Module):
    """One direction of an LSTM as the ONNX node of that name.

    The exporter would take a recurrence apart, and with it fix the length of its example.
    """

    read: Tensor
    recur: Tensor
    bias: Tensor

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.size = lstm.hidden_size
        with torch.no_grad():
            # Torch has the gates in the order input, forget, cell, output; ONNX input, output, forget, cell.
            parts = [part.chunk(4) for part in lstm.all_weights[0]]
            weights = [torch.cat([part[gate] for gate in (0, 3, 1, 2)]).unsqueeze(0) for part in parts]
        self.register_buffer("read", weights[0])  # (1, 4 * size, width)
        self.register_buffer("recur", weights[1])  # (1, 4 * size, size)
        self.register_buffer("bias", torch.cat(weights[2:], dim=1))  # (1, 8 * size)

    def forward(self, values: Tensor) -> tuple[Tensor]:
        rows, length, _ = values.shape
        given = (values.transpose(0, 1), self.read, self.recur, self.bias)
        found = torch.onnx.ops.symbolic(
            "LSTM", given, {"hidden_size": self.size}, dtype=values.dtype, shape=(length, 1, rows, self.size)
        )
        return (found.squeeze(1).transpose(0, 1),)


def _with_lstm_nodes(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model with ONNX nodes in the place of its LSTMs: a copy, or itself where it has none."""
    if not any(isinstance(module, nn.LSTM) for module in model.modules()):
        return model
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.LSTM):
            model.set_submodule(name, _LstmNode(module))
    return model


def export_onnx(name: str | Path, out: str | Path, *, int8: bool = True) -> dict[str, float]:
    """Write a task model as ONNX; a file that does not say the same as the model is not delivered.

    Args:
        name: Task model by folder, or a run.
        out: Folder to write; an earlier export there is replaced, anything else is not.
        int8: Also write `model.int8.onnx`, with weights in 8 bits.

    Returns:
        Megabytes of each file, the largest difference of a logit, and for int8 the share of test rows (tokens, for word
        tasks) with the same best label.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", "onnx") from None
    out = Path(out)
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / ONNX).exists())):
        raise BadInput(f"{out} holds something that is no exported model.", "Choose another --out.")
    where = locate(name)
    model = load_model(where).eval()
    tokenizer = load_tokenizer(where)
    typed = getattr(model.config, "type_vocab_size", 0) > 1
    batches = [_random_batch(shape, len(tokenizer), int(tokenizer.pad_token_id), typed) for shape in _SHAPES]
    facts: dict[str, float] = {}
    with atomic(out) as draft:
        draft.mkdir()
        file = draft / ONNX
        _write(_Logits(model).eval(), batches[2], file)
        _forget_shapes(file)
        facts["largest_difference"] = check_export(model, file, batches)
        facts["megabytes"] = round(file.stat().st_size / 1e6, 2)
        if int8:
            small = draft / INT8
            _quantise(file, small)
            facts["int8_megabytes"] = round(small.stat().st_size / 1e6, 2)
            facts["int8_agreement"] = _agreement(model, small, batches)
        model.config.save_pretrained(draft)
        save_tokenizer(tokenizer, draft)
        with resources.as_file(resources.files("crosslift.models") / "predict_onnx.py") as script:
            shutil.copyfile(script, draft / "predict.py")
    return facts


def check_export(model: nn.Module, file: Path, batches: Sequence[Mapping[str, Tensor]]) -> float:
    """Return the largest difference of a logit between model and file; more than `ATOL` is an error."""
    run = _session(file)
    largest = 0.0
    for batch in batches:
        with torch.inference_mode():
            expected = forward(model, dict(batch))
        real = batch["attention_mask"].bool().numpy()
        for name, found in run(batch).items():
            difference = np.abs(found - expected[name].numpy())
            # Of padding nobody reads anything.
            seen = difference[real] if difference.shape[:2] == real.shape else difference
            largest = max(largest, float(seen.max()))
    if not largest <= ATOL:
        raise CrossliftError(
            f"The exported model differs from the original by {largest:.2g}, more than {ATOL:g}; nothing was written.",
            "Please report it with the name of the model's architecture.",
        )
    return largest


def _write(module: nn.Module, batch: Mapping[str, Tensor], file: Path) -> None:
    names = ["start_logits", "end_logits"] if len(module(**batch)) == 2 else ["logits"]
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with _quiet():
        torch.onnx.export(
            module,
            tuple(batch.values()),
            str(file),
            input_names=list(batch),
            output_names=names,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(batch, axes),
            external_data=False,
            verbose=False,
        )


def _forget_shapes(file: Path) -> None:
    """Take the shapes between input and output out of a file: the quantiser trips over them."""
    import onnx

    graph = onnx.load(str(file))
    del graph.graph.value_info[:]
    onnx.save(graph, str(file))


def _quantise(file: Path, small: Path) -> None:
    from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Folded first: the quantiser takes only weights that are stored as such.
    folded = small.with_suffix(".folded")
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    with _quiet():  # it recommends a preparation that fails on graphs of this exporter
        quantize_dynamic(str(folded), str(small), weight_type=QuantType.QInt8)
    folded.unlink()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to themselves what exporter and quantiser would say; whether the file is right is checked afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _session(file: Path) -> Callable[[Mapping[str, Tensor]], dict[str, NDArray[np.float32]]]:
    from onnxruntime import InferenceSession

    session = InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(batch: Mapping[str, Tensor]) -> dict[str, NDArray[np.float32]]:
        given = {name: tensor.numpy() for name, tensor in batch.items()}
        return dict(zip(names, session.run(None, given), strict=True))

    return run


def _agreement(model: nn.Module, file: Path, batches: Sequence[Mapping[str, Tensor]]) -> float:
    """Return the share of rows (tokens, for word tasks) whose best label is the same."""
    run, same = _session(file), []
    for batch in batches:
        with torch.inference_mode():
            expected = forward(model, dict(batch))
        for name, found in run(batch).items():
            same.append((found.argmax(-1) == expected[name].numpy().argmax(-1)).ravel())
    return round(float(np.concatenate(same).mean()), 4)


def _random_batch(shape: tuple[int, int], pieces: int, pad_id: int, typed: bool = False) -> dict[str, Tensor]:
    """Return ids of random pieces, half of them of a second text; all rows but the first end in padding."""
    rows, length = shape
    generator = torch.Generator().manual_seed(rows * length)
    ids = torch.randint(min(5, pieces - 1), pieces, shape, generator=generator)
    lengths = torch.randint(2, length + 1, (rows, 1), generator=generator)
    lengths[0] = length
    mask = (torch.arange(length) < lengths).long()
    batch = {"input_ids": torch.where(mask == 1, ids, pad_id), "attention_mask": mask}
    return {**batch, "token_type_ids": mask * (torch.arange(length) >= length // 2)} if typed else batch
