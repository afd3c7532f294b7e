"""A model put together from two: multilingual bottom, connector, monolingual top (PlugIn-X, Chi et al. 2023).

    f_t ∘ f_c ∘ f_x :  ids ─► multilingual embeddings + k layers ─► connector ─► monolingual layers p … T + head

The connector is a stack of layers of the multilingual family, begun as copies of the layers that follow the k-th,
and, where the two models differ in width, one linear map. Its output stands where the monolingual model had the
states after its layer p. Encoder and end-task module are frozen; the connector alone learns, and serves every task
model that descends from the same monolingual one.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from crosslift.errors import BadInput
from crosslift.models.anatomy import depth_of, family_of, headed, layers_of, part
from crosslift.models.load import AUTO

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_SAME = ({"roberta", "xlm-roberta"},)
"""Families whose layers compute the same under other names."""
_SHAPE = (
    *("hidden_size", "num_attention_heads", "layer_norm_eps"),
    *("intermediate_size", "hidden_act"),
    *("hidden_dim", "activation"),  # what DistilBERT calls these two
)


class Connector(nn.Module):
    """Layers between an encoder and an end-task module, and a linear map where their widths differ.

    Args:
        multi: The multilingual encoder; layers `first`, `first` + 1, … are copied (the last one again, if it has
            no more).
        first: How many of its layers the frozen encoder has.
        depth: How many layers the connector has.
        width: Width of the monolingual model.
        dropout: In the connector's layers while it learns.
    """

    def __init__(self, multi: PreTrainedModel, first: int, depth: int, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        total = depth_of(multi)
        own = layers_of(multi)
        copies = nn.ModuleList(copy.deepcopy(own[min(first + i, total - 1)]) for i in range(depth))
        for module in copies.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
            elif isinstance(getattr(module, "attention_dropout", None), float):  # ModernBERT, Gemma 3: a number
                module.attention_dropout = dropout  # type: ignore[assignment]
        self.layers = copies
        self.first = first
        here = int(multi.config.hidden_size)
        self.project: nn.Linear | None = None
        if here != width:
            self.project = nn.Linear(here, width)
            # Drawn by itself: what was drawn before shall not decide how a run begins.
            nn.init.orthogonal_(self.project.weight, generator=torch.Generator().manual_seed(0))
            nn.init.zeros_(self.project.bias)
        if not depth and self.project is None:
            raise BadInput("A connector without layers has nothing to learn.", "Set --connector-layers to 1 or more.")
        self.requires_grad_(True)
        # Not registered: masks and positions are the multilingual model's, but its weights are not the connector's.
        self._run = (part(multi, min(first, total), total, embeddings=False, norm=False, layers=copies),)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return states (batch, length, width of the monolingual model) of the encoder's (batch, length, width)."""
        if len(self.layers):
            states = self._run[0](states, mask)
        return states if self.project is None else self.project(states)


class Reassembled(nn.Module):
    """Multilingual bottom, connector and the top of a monolingual task model; gives that model's outputs.

    Args:
        multi: The multilingual encoder.
        connector: Fitted to `multi` and to the task model's base.
        task: The monolingual task model.
        plug_layer: The layer of `task` whose output the connector's stands for.
    """

    def __init__(self, multi: PreTrainedModel, connector: Connector, task: PreTrainedModel, plug_layer: int) -> None:
        super().__init__()
        self.encoder = part(multi, 0, connector.first, embeddings=True, norm=False)
        self.connector = connector
        self.top: Any = headed(task, plug_layer)
        self.config = task.config

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **labels: Tensor,
    ) -> Any:  # noqa: ANN401  the task model's own kind of output
        """Run all three parts: multilingual ids (batch, length) in, the task model's outputs out."""
        states = self.encoder(input_ids, attention_mask, token_type_ids)
        states = self.connector(states, attention_mask)
        return self.top(inputs_embeds=states, attention_mask=attention_mask, **labels)


def native_obstacle(multi: PretrainedConfig, task: PretrainedConfig) -> str | None:
    """Return why a reassembled model is no ordinary one of the library, or `None` if it is."""
    kinds = {multi.model_type, task.model_type}
    if len(kinds) > 1 and kinds not in _SAME:
        return f'its layers are of two families, "{multi.model_type}" and "{task.model_type}"'
    if family_of(multi).norm or multi.model_type == "mpnet":
        return f'a "{multi.model_type}" model has parts that belong to its own layers alone'
    for name in _SHAPE:
        there, here = getattr(multi, name, None), getattr(task, name, None)
        if there != here:
            return f"its layers differ in {name} ({there} and {here})"
    return None


def to_native(multi: PreTrainedModel, connector: Connector, task: PreTrainedModel, plug_layer: int, kind: str) -> Any:  # noqa: ANN401
    """Return one plain Hugging Face task model of k + c + t layers that gives the reassembled model's logits.

    Args:
        multi: The multilingual encoder, whose tokenizer the new model goes with.
        connector: The trained connector.
        task: The monolingual task model.
        plug_layer: The layer of `task` whose output the connector's stands for.
        kind: Task kind: `classification`, `tagging` or `qa`.

    Raises:
        BadInput: The two models differ in family or shape, so that no one class of the library holds both.
    """
    obstacle = native_obstacle(multi.config, task.config)
    if obstacle:
        raise BadInput(
            f"The reassembled model cannot be saved as one Hugging Face model: {obstacle}.",
            "In memory it works: crosslift.runs.plugged.reassemble(TASK_MODEL, CONNECTOR).",
        )
    layers = [
        *layers_of(multi)[: connector.first],
        *connector.layers,
        *layers_of(task)[plug_layer:],
    ]
    native = AUTO[kind].from_config(_native_config(multi.config, task.config, len(layers)))
    path = family_of(native.config).layers
    state = {}
    for name, tensor in task.state_dict().items():
        inner = name.removeprefix(f"{task.base_model_prefix}.")
        of_base = inner != name
        if of_base and inner.startswith((f"{path}.", *(f"{e}." for e in family_of(task.config).embeddings))):
            continue  # layers and embeddings follow; the rest (a pooler, the head) is the task model's
        state[f"{native.base_model_prefix}.{inner}" if of_base else name] = tensor
    for name, tensor in multi.base_model.state_dict().items():
        if name.startswith(tuple(f"{e}." for e in family_of(multi.config).embeddings)):
            state[f"{native.base_model_prefix}.{name}"] = tensor
    for number, layer in enumerate(layers):
        for name, tensor in layer.state_dict().items():
            state[f"{native.base_model_prefix}.{path}.{number}.{name}"] = tensor
    missing, unexpected = native.load_state_dict(state, strict=False)
    lost = [name for name in missing if "position_ids" not in name and "token_type_ids" not in name]
    if lost or unexpected:
        raise BadInput(f"The two models do not fit together: {(lost + list(unexpected))[0]} belongs to one alone.")
    return native.to(torch.float32).eval()


def _native_config(multi: PretrainedConfig, task: PretrainedConfig, depth: int) -> PretrainedConfig:
    """Return the multilingual configuration with so many layers and the task model's head."""
    settings = multi.to_dict()
    for name in (
        "model_type",
        "architectures",
        "id2label",
        "label2id",
        "problem_type",
        "torch_dtype",
        "dtype",
        "_name_or_path",
    ):
        settings.pop(name, None)
    head = ("classifier_dropout", "seq_classif_dropout", "qa_dropout", "summary_type", "summary_activation")
    settings |= {name: getattr(task, name) for name in head if hasattr(task, name)}
    config = AutoConfig.for_model(multi.model_type, **settings)
    setattr(config, config.attribute_map.get("num_hidden_layers", "num_hidden_layers"), depth)
    config.id2label, config.label2id = dict(task.id2label), dict(task.label2id)
    config.problem_type = task.problem_type
    return config
