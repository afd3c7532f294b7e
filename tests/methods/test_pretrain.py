import math

import numpy as np
import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from crosslift.data.pair_rows import PairRows, pools_of
from crosslift.data.streams import Rows, Streams
from crosslift.methods.pretrain import (
    Objectives,
    Pretrainer,
    PretrainWork,
    Sampling,
    at_places,
    contrast,
    masked_loss,
    sentence_vectors,
    taught,
    word_vectors,
)
from crosslift.models.new_encoder import Architecture, new_encoder
from crosslift.models.sentence_teacher import TeacherVectors

VOCABULARY = 60


class Tokenizer:
    """The few facts that batches need of a tokenizer."""

    pad_token_id, mask_token_id, cls_token_id, sep_token_id = 1, 4, 0, 2
    bos_token_id, eos_token_id = 0, 2
    all_special_ids = (0, 1, 2, 3, 4)

    def __len__(self):
        return VOCABULARY


def tiny_model(dropout=0.0):
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        type_vocab_size=1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return XLMRobertaForMaskedLM(config)


def tiny_pairs(count=40, seed=0):
    rng = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        lengths = rng.integers(4, 9, count)
        ids = rng.integers(5, VOCABULARY, lengths.sum())
        ids[np.cumsum(lengths) - lengths] = 0
        ids[np.cumsum(lengths) - 1] = 2
        sides.append(Rows.of(ids, lengths))
    spans = np.full((count, 8, 4), -1, dtype=np.int16)
    spans[:, 0] = (1, 3, 1, 2)
    words = np.full((count, 8), -1, dtype=np.int32)
    words[:, 0] = np.arange(count)
    longest = torch.maximum(sides[0].lengths, sides[1].lengths).numpy()
    groups = {"pair/de": np.arange(0, count, 2), "pair/sw": np.arange(1, count, 2)}
    pools, weights = pools_of(groups, longest, (8, 12), {"pair": 1.0}, 0.5)
    tensors = tuple((name, length, torch.from_numpy(members)) for name, length, members in pools)
    anchors = torch.arange(count)
    return PairRows(*sides, anchors, torch.from_numpy(spans), torch.from_numpy(words), tensors, weights)


def tiny_teacher(count=40, width=6):
    vectors = torch.nn.functional.normalize(
        torch.randn(count, width, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    return TeacherVectors(vectors.half(), vectors.half())


def tiny_work(**changes):
    streams = Streams.of({"de": np.arange(5, VOCABULARY).repeat(5), "sw": np.arange(5, 40).repeat(9)})
    settings = {
        "steps": 10,
        "sampling": Sampling(window=16, window_tokens=64, pair_tokens=48, pair_lengths=(8, 12)),
        "objectives": Objectives(),
        "max_positions": 64,
        "seed": 3,
    }
    return PretrainWork(streams, tiny_pairs(), [tiny_teacher()], Tokenizer(), **settings | changes)


def test_masked_loss_is_the_mean_over_hidden_pieces_that_count():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [1 / 3, 1 / 3, 1 / 3]]))
    loss = masked_loss(logits, torch.tensor([[0, -100, 2]]))
    assert loss.item() == pytest.approx((math.log(2) + math.log(3)) / 2)


def test_masked_loss_of_nothing_is_zero():
    assert masked_loss(torch.zeros(2, 3), torch.tensor([-100, -100])).item() == 0


def test_states_are_picked_at_their_places():
    hidden = torch.arange(24.0).reshape(2, 4, 3)
    picked = at_places(hidden, torch.tensor([[3, 0], [1, 1]]))
    assert picked.tolist() == [
        hidden[0, 3].tolist(),
        hidden[0, 0].tolist(),
        hidden[1, 1].tolist(),
        hidden[1, 1].tolist(),
    ]


def test_contrast_equals_a_slow_reference_in_both_directions():
    torch.manual_seed(0)
    left, right = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    total = 0.0
    for a, b in ((left, right), (right, left)):
        for i in range(5):
            scores = [math.exp(torch.cosine_similarity(a[i], b[j], dim=0).item() / 0.05) for j in range(5)]
            total -= math.log(scores[i] / sum(scores))
    assert contrast(left, right, torch.arange(5), 0.05).item() == pytest.approx(total / 10, rel=1e-4)


def test_pairs_that_say_the_same_are_no_negatives():
    left = torch.eye(3)
    right = torch.eye(3)
    # Pairs 0 and 1 share an anchor: for them only pair 2 is a negative.
    apart = contrast(left, right, torch.tensor([7, 7, 8]), 1.0).item()
    two, three = math.log(math.e + 1) - 1, math.log(math.e + 2) - 1
    assert apart == pytest.approx((2 * two + three) / 3)


def test_taught_leaves_out_what_the_teacher_does_not_know():
    read = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    target = torch.tensor([[2.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    assert taught(read, target).item() == pytest.approx((0 + 1 - math.sqrt(0.5)) / 2)
    assert taught(read, torch.zeros(3, 2)).item() == 0


def test_word_vectors_are_means_of_their_pieces():
    hidden = torch.arange(12.0).reshape(1, 4, 3)
    spans = torch.tensor([[[1, 3], [0, 1], [-1, -1], [2, 2]]])
    vectors = word_vectors(hidden, spans)[0]
    assert vectors[0].tolist() == pytest.approx(hidden[0, 1:3].mean(0).tolist())
    assert vectors[1].tolist() == hidden[0, 0].tolist()
    assert vectors[2].tolist() == [0, 0, 0] and vectors[3].tolist() == [0, 0, 0]


def test_padding_changes_no_sentence_vector_and_no_word_vector():
    model = tiny_model().eval()
    pretrainer = Pretrainer(model, Objectives()).eval()
    ids, mask = torch.tensor([[0, 9, 8, 2]]), torch.ones(1, 4, dtype=torch.long)
    wide = torch.tensor([[0, 9, 8, 2, 1, 1, 1]])
    wide_mask = torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    spans = torch.tensor([[[1, 3]]])
    with torch.no_grad():
        narrow, padded = pretrainer.states(ids, mask, None), pretrainer.states(wide, wide_mask, None)
    for a, b in zip(sentence_vectors(narrow, mask), sentence_vectors(padded, wide_mask), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert torch.allclose(word_vectors(narrow, spans), word_vectors(padded, spans), atol=1e-6)


def test_all_terms_have_gradients_that_reach_the_embeddings():
    work = tiny_work()
    pretrainer = Pretrainer(tiny_model(), Objectives(), [6], 6)
    batch, share = next(iter(work.batches(0, 0, 1)))
    terms = work.loss(pretrainer, batch)
    assert share == 1
    assert set(terms) == {"masked", "contrast", "sentences", "words"}
    words = pretrainer.model.get_input_embeddings().weight
    for name, term in terms.items():
        (gradient,) = torch.autograd.grad(term, words, retain_graph=True)
        assert gradient.abs().sum() > 0, name


def test_a_weight_of_zero_switches_its_term_off():
    batch, _ = next(iter(tiny_work().batches(0, 0, 1)))
    pretrainer = Pretrainer(tiny_model(), Objectives(contrast=0, sentences=0, words=0), [6], 6)
    assert set(pretrainer(batch)) == {"masked"}
    batch, _ = next(iter(tiny_work(objectives=Objectives(masked=0)).batches(0, 0, 1)))
    assert "masked_ids" not in batch


def test_terms_scale_with_their_weights():
    batch, _ = next(iter(tiny_work().batches(0, 0, 1)))
    model = tiny_model().eval()
    torch.manual_seed(0)
    one = Pretrainer(model, Objectives(masked=1, contrast=1, sentences=1, words=1), [6], 6).eval()
    torch.manual_seed(0)
    two = Pretrainer(model, Objectives(masked=2, contrast=3, sentences=4, words=5), [6], 6).eval()
    for name, factor in (("masked", 2), ("contrast", 3), ("sentences", 4), ("words", 5)):
        assert two(batch)[name].item() == pytest.approx(factor * one(batch)[name].item(), rel=1e-5)


def test_batches_depend_on_seed_and_step_alone():
    one, two = tiny_work(), tiny_work()
    list(one.batches(4, 0, 1))
    a, b = next(iter(one.batches(2, 0, 1)))[0], next(iter(two.batches(2, 0, 1)))[0]
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    other = next(iter(tiny_work(seed=4).batches(2, 0, 1)))[0]
    assert not torch.equal(a["masked_ids"], other["masked_ids"])


def test_pairs_of_a_step_come_from_one_language():
    work = tiny_work()
    for step in range(20):
        anchors = next(iter(work.batches(step, 0, 1)))[0]["anchors"]
        assert len(set((anchors % 2).tolist())) == 1  # even numbers are German here, odd ones Swahili


def test_shapes_do_not_change_between_steps_of_a_length_class():
    work = tiny_work()
    shapes = {tuple(tuple(t.shape) for t in next(iter(work.batches(step, 0, 1)))[0].values()) for step in range(20)}
    assert len(shapes) <= 2


def test_two_processes_share_a_step():
    work = tiny_work()
    parts = [next(iter(work.batches(1, rank, 2))) for rank in range(2)]
    assert [share for _, share in parts] == [0.5, 0.5]
    assert len(parts[0][0]["masked_ids"]) == 2  # of 4 rows
    assert not torch.equal(parts[0][0]["masked_ids"], parts[1][0]["masked_ids"])


def test_word_targets_follow_the_links():
    work = tiny_work()
    batch, _ = next(iter(work.batches(0, 0, 1)))
    teacher = tiny_teacher()
    assert torch.equal(batch["word_targets"][:, 0], teacher.words[batch["anchors"]])
    assert batch["word_targets"][:, 1:].abs().sum() == 0
    pairs = len(batch["anchors"])
    assert batch["word_spans"][:pairs, 0].tolist() == [[1, 3]] * pairs
    assert batch["word_spans"][pairs:, 0].tolist() == [[1, 2]] * pairs


def test_training_on_the_terms_lowers_every_one_of_them():
    work = tiny_work()
    pretrainer = Pretrainer(tiny_model(), Objectives(), [6], 6)
    optimizer = torch.optim.AdamW(pretrainer.parameters(), lr=1e-2)
    batch, _ = next(iter(work.batches(0, 0, 1)))
    before = {name: term.item() for name, term in pretrainer(batch).items()}
    for _ in range(60):
        optimizer.zero_grad()
        sum(pretrainer(batch).values()).backward()
        optimizer.step()
    after = {name: term.item() for name, term in pretrainer(batch).items()}
    assert all(after[name] < 0.7 * before[name] for name in before)


def test_every_token_sees_every_other_without_a_mask():
    pretrainer = Pretrainer(tiny_model().eval(), Objectives()).eval()
    ids = torch.randint(5, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[:, 9] = 5 + (changed[:, 9] - 4) % (VOCABULARY - 5)
    with torch.no_grad():
        open_, full = pretrainer.states(ids, None, None), pretrainer.states(ids, torch.ones_like(ids), None)
        other = pretrainer.states(changed, None, None)
    assert torch.allclose(open_, full, atol=1e-6)
    assert ((open_ - other).abs().amax(-1) > 1e-6).all()  # tokens before the change, too


@pytest.mark.slow
def test_a_small_encoder_learns_repeated_sentences_by_heart():
    # If windows, masks, places, targets or positions were wrong, hidden pieces could not be told from their sentence.
    rng = np.random.default_rng(0)
    sentences = [np.append(rng.integers(5, VOCABULARY, 8), 2) for _ in range(30)]
    stream = np.concatenate([sentences[i] for _ in range(10) for i in rng.permutation(30)])
    shape = Architecture(layers=4, width=64, heads=4, feedforward=256, max_positions=64, dropout=0.0)
    objectives = Objectives(contrast=0, sentences=0, words=0, shifted=0.0, mask_rate=0.15)
    pretrainer = Pretrainer(new_encoder(shape, Tokenizer(), seed=1), objectives)
    sampling = Sampling(window=20, window_tokens=1280)
    work = PretrainWork(
        Streams.of({"en": stream}), None, [], Tokenizer(),
        steps=500, sampling=sampling, objectives=objectives, max_positions=64, seed=1,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(pretrainer.parameters(), lr=3e-3, betas=(0.9, 0.98))
    losses = []
    for step in range(500):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 50, (500 - step) / 150)
        batch, _ = next(iter(work.batches(step, 0, 1)))
        loss = work.loss(pretrainer, batch)["masked"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(pretrainer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert np.mean(losses[:10]) > 3.5
    assert np.mean(losses[-20:]) < 0.5
