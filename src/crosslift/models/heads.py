"""Heads that transformers lacks: tagging and question answering on Gemma 3 (text).

Both are transformers' own generic heads (one linear layer) on the text model, registered with the Auto
classes; a model saved with one of them opens wherever `crosslift` is imported.
"""

from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification, Gemma3TextConfig
from transformers.modeling_layers import GenericForQuestionAnswering, GenericForTokenClassification
from transformers.models.gemma3.modeling_gemma3 import Gemma3PreTrainedModel


class Gemma3TextForTokenClassification(GenericForTokenClassification, Gemma3PreTrainedModel):  # type: ignore[misc]
    """Gemma 3 (text) with a linear tagging head."""

    config_class = Gemma3TextConfig


class Gemma3TextForQuestionAnswering(GenericForQuestionAnswering, Gemma3PreTrainedModel):  # type: ignore[misc]
    """Gemma 3 (text) with a linear start/end head."""

    config_class = Gemma3TextConfig


for auto, head in (
    (AutoModelForTokenClassification, Gemma3TextForTokenClassification),
    (AutoModelForQuestionAnswering, Gemma3TextForQuestionAnswering),
):
    auto.register(Gemma3TextConfig, head, exist_ok=True)
    # transformers 5.13 to 5.18 silently leave out heads for configurations of their own.
    if Gemma3TextConfig not in auto._model_mapping:
        auto._model_mapping._extra_content[Gemma3TextConfig] = head
