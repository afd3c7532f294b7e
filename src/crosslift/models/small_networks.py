"""Small recurrent and convolutional models in Hugging Face's format: BiLSTM, CNN, and a dilated CNN for words.

Padding changes nothing in any of them: the backward LSTM starts at the last real token, convolutions see zeros where
padding is, and pooling is over real tokens. Two of the pooling rules exist to repeat earlier work: `last` (the final
states of both directions, the paper's BiLSTM) and `padded` (the released code's mean or maximum over a row that is
always filled up to `padded_length`).
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from crosslift.errors import BadInput

POOLINGS = ("mean", "max", "last", "padded")


class BiLstmConfig(PretrainedConfig):  # type: ignore[misc]
    """A BiLSTM; `hidden_size` counts both directions."""

    model_type = "crosslift-bilstm"

    def __init__(
        self,
        vocab_size: int = 10_000,
        embedding_size: int = 256,
        hidden_size: int = 512,
        num_hidden_layers: int = 2,
        head_size: int = 256,
        dropout: float = 0.5,
        pooling: str = "mean",
        padded_length: int = 128,
        max_position_embeddings: int = 512,
        pad_token_id: int = 1,
        **further: Any,  # noqa: ANN401  what every configuration has
    ) -> None:
        self.vocab_size, self.embedding_size, self.hidden_size = vocab_size, embedding_size, hidden_size
        self.num_hidden_layers, self.head_size, self.dropout = num_hidden_layers, head_size, dropout
        self.pooling, self.padded_length = pooling, padded_length
        self.max_position_embeddings = max_position_embeddings
        super().__init__(pad_token_id=pad_token_id, **further)


class CnnConfig(PretrainedConfig):  # type: ignore[misc]
    """A CNN with several kernel sizes side by side or, with `dilations`, a stack of dilated convolutions."""

    model_type = "crosslift-cnn"

    def __init__(
        self,
        vocab_size: int = 10_000,
        embedding_size: int = 256,
        channels: int = 768,
        kernels: tuple[int, ...] = (3, 4, 5),
        dilations: tuple[int, ...] = (),
        repeats: int = 3,
        dropout: float = 0.5,
        pooling: str = "max",
        padded_length: int = 128,
        max_position_embeddings: int = 512,
        pad_token_id: int = 1,
        **further: Any,  # noqa: ANN401  what every configuration has
    ) -> None:
        self.vocab_size, self.embedding_size, self.channels = vocab_size, embedding_size, channels
        self.kernels, self.dilations, self.repeats = list(kernels), list(dilations), repeats
        self.dropout, self.pooling, self.padded_length = dropout, pooling, padded_length
        self.max_position_embeddings = max_position_embeddings
        self.head_size = 0
        self.hidden_size = channels if dilations else channels * len(kernels)
        self.num_hidden_layers = len(dilations) or 1
        for derived in ("head_size", "hidden_size", "num_hidden_layers"):
            further.pop(derived, None)
        super().__init__(pad_token_id=pad_token_id, **further)


def reversed_rows(values: Tensor, lengths: Tensor) -> Tensor:
    """Return (batch, length, width) with the first `lengths` entries of each row in reverse; padding stays."""
    place = torch.arange(values.shape[1], device=values.device)
    turned = lengths.unsqueeze(1) - 1 - place
    index = torch.where(turned >= 0, turned, place)
    return values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def pooled(hidden: Tensor, mask: Tensor, how: str) -> Tensor:
    """Make one vector per text from those of its tokens: (batch, length, width) -> (batch, width).

    Args:
        hidden: (batch, length, width).
        mask: (batch, length), 1 = a real token.
        how: `mean` or `max` over real tokens; `last`: the first half of the width at the last token, the second half
            at the first one, which are the final states of a BiLSTM.
    """
    inside = mask.unsqueeze(-1)
    if how == "mean":
        return (hidden * inside).sum(1) / inside.sum(1).clamp(min=1)
    if how == "max":
        return hidden.masked_fill(inside == 0, torch.finfo(hidden.dtype).min).amax(1)
    half = hidden.shape[-1] // 2
    final = (mask.sum(1) - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, half)
    return torch.cat([hidden[..., :half].gather(1, final).squeeze(1), hidden[:, 0, half:]], dim=-1)


class _Pretrained(PreTrainedModel):  # type: ignore[misc]
    base_model_prefix = "encoder"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Conv1d)):
            fan_in = module.weight[0].numel()
            nn.init.normal_(module.weight, std=math.sqrt((2.0 if isinstance(module, nn.Conv1d) else 1.0) / fan_in))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            for name, weight in module.named_parameters():
                if "bias" in name:
                    nn.init.zeros_(weight)
                else:
                    nn.init.uniform_(weight, -1 / math.sqrt(module.hidden_size), 1 / math.sqrt(module.hidden_size))

    def get_input_embeddings(self) -> nn.Module:
        return cast("nn.Module", self.base_model.words)

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.words = value


class BiLstmModel(_Pretrained):
    """Embeddings and layers of two LSTMs, one for each direction."""

    config_class = BiLstmConfig

    def __init__(self, config: BiLstmConfig) -> None:
        super().__init__(config)
        half = config.hidden_size // 2
        self.words = nn.Embedding(config.vocab_size, config.embedding_size)
        widths = [config.embedding_size] + [config.hidden_size] * (config.num_hidden_layers - 1)
        self.forwards = nn.ModuleList(nn.LSTM(width, half, batch_first=True) for width in widths)
        self.backwards = nn.ModuleList(nn.LSTM(width, half, batch_first=True) for width in widths)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: object) -> BaseModelOutput:
        """Return `last_hidden_state` (batch, length, hidden_size)."""
        lengths = attention_mask.sum(1)
        hidden = self.words(input_ids)
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            hidden = self.dropout(hidden)
            left = ahead(hidden)[0]
            right = reversed_rows(back(reversed_rows(hidden, lengths))[0], lengths)
            hidden = torch.cat([left, right], dim=-1)
        return BaseModelOutput(last_hidden_state=hidden)


class CnnModel(_Pretrained):
    """Embeddings and convolutions; one vector per token comes out."""

    config_class = CnnConfig

    def __init__(self, config: CnnConfig) -> None:
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = nn.Dropout(config.dropout)
        size = config.channels
        if config.dilations:
            self.widen = nn.Linear(config.embedding_size, size)
            self.layers = nn.ModuleList(nn.Conv1d(size, size, 3, dilation=d) for d in config.dilations)
            self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in config.dilations)
        else:
            self.layers = nn.ModuleList(nn.Conv1d(config.embedding_size, size, kernel) for kernel in config.kernels)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: object) -> BaseModelOutput:
        """Return `last_hidden_state` (batch, length, hidden_size)."""
        inside = attention_mask.unsqueeze(-1)
        words = self.dropout(self.words(input_ids)) * inside
        dilated = self._dilated(words, inside) if self.config.dilations else self._side_by_side(words)
        return BaseModelOutput(last_hidden_state=dilated)

    def _side_by_side(self, words: Tensor) -> Tensor:
        return torch.cat([convolved(words, layer) for layer in self.layers], dim=-1).relu()

    def _dilated(self, words: Tensor, inside: Tensor) -> Tensor:
        hidden = self.widen(words) * inside
        for _ in range(self.config.repeats):  # the same weights again: the view widens, the size does not
            for layer, norm in zip(self.layers, self.norms, strict=True):
                hidden = norm(hidden + self.dropout(convolved(hidden, layer).relu())) * inside
        return cast("Tensor", hidden)


def convolved(values: Tensor, layer: nn.Module) -> Tensor:
    """Return a convolution of (batch, length, width) rows as one product of matrices: (batch, length, channels).

    Position t sees the kernel's tokens around it, zeros beyond either end. On a CPU this is faster than `layer` itself
    for short rows, and as a matrix product it can be stored in 8 bits.
    """
    assert isinstance(layer, nn.Conv1d)
    assert layer.bias is not None
    kernel, dilation, length = layer.kernel_size[0], layer.dilation[0], values.shape[1]
    before = (kernel - 1) * dilation // 2
    filled = pad(values, (0, 0, before, (kernel - 1) * dilation - before))
    seen = torch.cat([filled[:, k * dilation : k * dilation + length] for k in range(kernel)], dim=-1)
    weight = layer.weight.permute(2, 1, 0).flatten(0, 1)  # (kernel * width, channels)
    return seen @ weight + layer.bias


_ENCODERS: dict[Any, Any] = {BiLstmConfig: BiLstmModel, CnnConfig: CnnModel}


class _ForSequenceClassification(_Pretrained):
    def __init__(self, config: BiLstmConfig | CnnConfig) -> None:
        super().__init__(config)
        if config.pooling not in POOLINGS or (config.pooling == "last" and not isinstance(config, BiLstmConfig)):
            raise BadInput(f'A {config.model_type} cannot pool by "{config.pooling}".', "Use mean, max or padded.")
        self.encoder = _ENCODERS[type(config)](config)
        size = config.head_size
        layers: list[nn.Module] = [nn.Dropout(config.dropout)]
        if size:
            layers += [nn.Linear(config.hidden_size, size), nn.ReLU(), nn.Dropout(config.dropout)]
        self.classifier = nn.Sequential(*layers, nn.Linear(size or config.hidden_size, config.num_labels))
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: object) -> SequenceClassifierOutput:
        """Return `logits` (batch, labels)."""
        if self.config.pooling == "padded":
            return SequenceClassifierOutput(logits=self.classifier(self._as_released(input_ids)))
        hidden = self.encoder(input_ids, attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.classifier(pooled(hidden, attention_mask, self.config.pooling)))

    def _as_released(self, input_ids: Tensor) -> Tensor:
        room = max(0, self.config.padded_length - input_ids.shape[1])
        filled = pad(input_ids, (0, room), value=self.config.pad_token_id)[:, : self.config.padded_length]
        hidden = self.encoder(filled, torch.ones_like(filled)).last_hidden_state
        return cast("Tensor", hidden.tanh().mean(1) if isinstance(self.config, BiLstmConfig) else hidden.amax(1))


class _ForTokenClassification(_Pretrained):
    def __init__(self, config: BiLstmConfig | CnnConfig) -> None:
        super().__init__(config)
        self.encoder = _ENCODERS[type(config)](config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: object) -> TokenClassifierOutput:
        """Return `logits` (batch, length, labels)."""
        hidden = self.encoder(input_ids, attention_mask).last_hidden_state
        return TokenClassifierOutput(logits=self.classifier(self.dropout(hidden)))


class _ForQuestionAnswering(_Pretrained):
    def __init__(self, config: BiLstmConfig | CnnConfig) -> None:
        super().__init__(config)
        self.encoder = _ENCODERS[type(config)](config)
        self.dropout = nn.Dropout(config.dropout)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: object) -> QuestionAnsweringModelOutput:
        """Return `start_logits` and `end_logits` (batch, length)."""
        hidden = self.encoder(input_ids, attention_mask).last_hidden_state
        start, end = self.qa_outputs(self.dropout(hidden)).unbind(-1)
        return QuestionAnsweringModelOutput(start_logits=start, end_logits=end)


class BiLstmForSequenceClassification(_ForSequenceClassification):
    """A BiLSTM with a classification head."""

    config_class = BiLstmConfig


class BiLstmForTokenClassification(_ForTokenClassification):
    """A BiLSTM with a tagging head."""

    config_class = BiLstmConfig


class BiLstmForQuestionAnswering(_ForQuestionAnswering):
    """A BiLSTM with a start/end head."""

    config_class = BiLstmConfig


class CnnForSequenceClassification(_ForSequenceClassification):
    """A CNN with a classification head."""

    config_class = CnnConfig


class CnnForTokenClassification(_ForTokenClassification):
    """A dilated CNN with a tagging head."""

    config_class = CnnConfig


class CnnForQuestionAnswering(_ForQuestionAnswering):
    """A dilated CNN with a start/end head."""

    config_class = CnnConfig


def _register() -> None:
    for config, encoder in _ENCODERS.items():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModel.register(config, encoder, exist_ok=True)
    for auto, heads in (
        (AutoModelForSequenceClassification, (BiLstmForSequenceClassification, CnnForSequenceClassification)),
        (AutoModelForTokenClassification, (BiLstmForTokenClassification, CnnForTokenClassification)),
        (AutoModelForQuestionAnswering, (BiLstmForQuestionAnswering, CnnForQuestionAnswering)),
    ):
        for head in heads:
            auto.register(head.config_class, head, exist_ok=True)


_register()
