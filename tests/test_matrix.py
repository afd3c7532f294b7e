"""Method × model family × task kind: adding a method is one row in `METHOD_ROWS`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import crosslift as xl
from crosslift.models.load import AUTO
from tests.tiny_data import MAKERS
from tests.tiny_models import FAMILIES, save_encoder

SYNONYMS = str(Path(__file__).parent / "methods" / "synonyms.tsv")

METHOD_ROWS = {
    "finetune": {},
    "robust": {"synonyms": SYNONYMS},
    "ear": {"synonyms": SYNONYMS},
}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """One encoder folder per family, made when first asked for."""
    made = {}

    def encoder(family):
        if family not in made:
            made[family] = save_encoder(tmp_path_factory.mktemp(family), family)
        return made[family]

    return encoder


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", list(METHOD_ROWS))
def test_a_method_trains_and_delivers_a_model_that_transformers_opens(method, family, kind, encoders, tmp_path):
    data, dev = MAKERS[kind](24, seed=1), MAKERS[kind](8, seed=2)
    run = xl.fit(
        method, model=encoders(family), data=data, dev=dev, out=tmp_path / "run", steps=3, batch_size=8, evaluations=1,
        learning_rate=1e-3, **METHOD_ROWS[method],
    )  # fmt: skip
    (summary,) = run.summary()
    assert all(np.isfinite(score) for scores in summary["dev"].values() for score in scores.values())
    predictions = xl.predict(run, dev)
    assert [p["id"] for p in predictions] == list(dev.ids)

    # The delivered folder, with transformers alone, one text at a time and without padding, says the same.
    model = AUTO[kind].from_pretrained(run.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    if kind == "classification":
        for text, prediction in zip(dev.texts, predictions, strict=True):
            inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
            with torch.no_grad():
                probabilities = model(**inputs).logits[0].softmax(-1)
            said = prediction["probabilities"]
            ours = {model.config.id2label[i]: p for i, p in enumerate(probabilities.tolist())}
            assert ours == pytest.approx(said, abs=2e-4)
    if kind == "tagging":
        assert [len(p["prediction"]) for p in predictions] == [len(spans) for spans in dev.spans]
    if kind == "qa":
        for context, prediction in zip(dev.pairs, predictions, strict=True):
            start = prediction["start"]
            assert context[start : start + len(prediction["prediction"])] == prediction["prediction"]
