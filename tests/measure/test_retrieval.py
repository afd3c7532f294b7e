"""Sentence retrieval on vectors worked out by hand, and on a tiny encoder."""

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from crosslift.measure.retrieval import retrieval_accuracy, sentence_vectors
from tests.tiny_models import save_encoder


def test_accuracy_is_the_mean_of_both_directions():
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    assert retrieval_accuracy(source, source) == 100
    # The first two swap places: only the third sentence finds its translation, in both directions.
    assert retrieval_accuracy(source, source[[1, 0, 2]]) == pytest.approx(100 / 3)


def test_a_constant_offset_of_one_language_does_not_matter():
    source = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    assert retrieval_accuracy(source, source * 3 + 100) == 100


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_vectors_do_not_depend_on_the_batch_they_are_computed_in(tmp_path, pooling):
    folder = save_encoder(tmp_path)
    encoder, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    texts = ["the house", "a river and a stone and a bird", "cloud", "the tree is green today"]
    together = sentence_vectors(encoder, tokenizer, texts, pooling=pooling)
    assert together.shape == (3, 4, 32)
    for i, text in enumerate(texts):
        with torch.no_grad():
            states = encoder(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        for layer, state in enumerate(states):
            expected = state[0, 0] if pooling == "first" else state[0].mean(0)
            assert torch.allclose(together[layer, i], expected, atol=1e-5)
