"""Question answering: where the answer lies in the rows, and which answer the logits mean."""

import json
import lzma
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.data.examples import Answer, Examples
from crosslift.errors import BadInput
from crosslift.tasks import QuestionAnswering
from crosslift.tasks.qa import best_pairs
from tests.tiny import bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer

TOKENIZERS = [wordpiece_tokenizer, bpe_tokenizer, lambda: bpe_tokenizer(trim_offsets=False), unigram_tokenizer]
CONTEXT = "Marie Curie, born in Warsaw in 1867, was a physicist.  Berlin is the capital of Germany. 北京是中国的首都。"
SMALL = {"max_length": 48, "stride": 14}


def questions(*golds, context=CONTEXT, question="Where was she born?"):
    """Make one question per gold answer; None = unknown, "" = no answer."""
    labels = [None if g is None else [Answer(g, context.index(g))] if g else [] for g in golds]
    ids = [str(i) for i in range(len(golds))]
    return Examples("qa", "en", ids, [question] * len(ids), pairs=[context] * len(ids), labels=labels)


def answer_logits(task, encoded):
    """Return logits that put each row's target far above everything else."""
    batch = task.collate(encoded, np.arange(len(encoded)), 0)
    length = batch["input_ids"].shape[1]
    return {
        f"{side}_logits": 9 * torch.nn.functional.one_hot(batch[f"{side}_positions"], length).float()
        for side in ("start", "end")
    }


def answers(task, encoded, examples, outputs):
    kept = task.keep(outputs, encoded, np.arange(len(encoded)))
    return task.decode(kept, encoded, examples)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("options", [{}, SMALL])
def test_gold_answers_survive_the_way_there_and_back(tokenizer, options):
    golds = ["Marie Curie", "Warsaw", "1867", "a physicist", "Germany", "首都", "北京是中国"]
    examples = questions(*golds)
    task = QuestionAnswering(**options)
    encoded = task.encode(examples, tokenizer())
    assert encoded.lengths().max() <= task.max_length
    predictions = answers(task, encoded, examples, answer_logits(task, encoded))
    assert [p["prediction"] for p in predictions] == golds
    assert [p["start"] for p in predictions] == [CONTEXT.index(gold) for gold in golds]
    assert all(p["score"] == 18 for p in predictions)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_rows_that_do_not_hold_the_whole_answer_point_at_their_first_token(tokenizer):
    examples = questions("Germany")
    encoded = QuestionAnswering(**SMALL).encode(examples, tokenizer())
    assert len(encoded) > 1
    start, end = encoded.targets["start_positions"], encoded.targets["end_positions"]
    begin = CONTEXT.index("Germany")
    for row in range(len(encoded)):
        context = encoded.maps["offsets"][row][encoded.maps["answerable"][row]]
        whole = context[:, 0].min() <= begin and context[:, 1].max() >= begin + len("Germany")
        assert (start[row] > 0) == whole
        assert (end[row] > 0) == whole
        if whole:
            offsets = encoded.maps["offsets"][row]
            text = CONTEXT[offsets[start[row], 0] : offsets[end[row], 1]]
            assert text.strip() == "Germany"
    assert (start == 0).any()
    assert (start > 0).any()


def test_unanswerable_and_unknown_questions():
    examples = questions("", None, "Warsaw")
    task = QuestionAnswering()
    encoded = task.encode(examples, wordpiece_tokenizer())
    assert encoded.targets["start_positions"][:2].tolist() == [0, -100]
    assert encoded.targets["end_positions"][:2].tolist() == [0, -100]
    assert task.units(encoded, np.arange(3)).tolist() == [1, 0, 1]
    assert task.units(task.encode(examples.unlabelled(), wordpiece_tokenizer()), np.arange(3)).tolist() == [1, 1, 1]


def test_every_context_token_is_in_some_row():
    encoded = QuestionAnswering(**SMALL).encode(questions("Warsaw"), bpe_tokenizer())
    covered = set()
    for row in range(len(encoded)):
        for begin, end in encoded.maps["offsets"][row][encoded.maps["answerable"][row]]:
            covered |= set(range(begin, end))
    assert {i for i, character in enumerate(CONTEXT) if character != " "} <= covered


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_question_longer_than_a_row_is_cut(tokenizer):
    examples = questions("Warsaw", question="Where 𓀀 was she born? " * 30)
    task = QuestionAnswering(**SMALL)
    encoded = task.encode(examples, tokenizer())
    assert encoded.lengths().max() <= 48
    predictions = answers(task, encoded, examples, answer_logits(task, encoded))
    assert predictions[0]["prediction"] == "Warsaw"


def test_an_answer_outside_its_context_is_an_error():
    wrong = Examples("qa", "en", ["q7"], ["x"], pairs=["short"], labels=[[Answer("long", 3)]])
    with pytest.raises(BadInput, match='Question "q7": the answer "long" at character 3 is not inside'):
        QuestionAnswering().encode(wrong, wordpiece_tokenizer())


def test_contexts_are_needed():
    with pytest.raises(BadInput, match="needs contexts"):
        QuestionAnswering().encode(Examples("qa", "en", ["1"], ["x"]), wordpiece_tokenizer())


def test_stride_must_leave_room():
    with pytest.raises(BadInput, match="stride 380 leaves too little of max_length 384"):
        QuestionAnswering(stride=380)


scores = st.lists(st.lists(st.integers(-5, 5), min_size=7, max_size=7), min_size=2, max_size=2)


@settings(max_examples=60, deadline=None)
@given(both=scores, blocked=st.sets(st.integers(0, 6)), longest=st.integers(1, 9), count=st.integers(1, 60))
def test_best_pairs_equal_a_search_of_all_pairs(both, blocked, longest, count):
    start, end = np.array(both, dtype=np.float32)
    start[list(blocked)] = end[list(blocked)] = -np.inf
    everything = sorted(
        (
            float(start[i] + end[j])
            for i in range(7)
            for j in range(i, min(7, i + longest))
            if i not in blocked and j not in blocked
        ),
        reverse=True,
    )
    row, first, last, score = best_pairs(start[None], end[None], longest, count)
    assert sorted(score.tolist(), reverse=True) == everything[:count]
    assert len(set(zip(first.tolist(), last.tolist(), strict=True))) == len(first)
    assert not row.any()
    np.testing.assert_array_equal(start[first] + end[last], score)


def one_row(task, start, end):
    """Decode one question with given scores at the first (start) and last (end) token of words."""
    examples = questions("Warsaw")
    encoded = task.encode(examples, wordpiece_tokenizer())
    offsets, context = encoded.maps["offsets"][0], encoded.maps["answerable"][0]
    places = {"[CLS]": (0, 0), "[SEP]": (len(offsets) - 1, len(offsets) - 1)}
    for word in ("Curie", "Warsaw", "Berlin", "Germany"):
        begin = CONTEXT.index(word)
        inside = np.flatnonzero(context & (offsets[:, 0] < begin + len(word)) & (offsets[:, 1] > begin))
        places[word] = inside[0], inside[-1]
    outputs = {}
    for number, (side, chosen) in enumerate({"start": start, "end": end}.items()):
        logits = torch.full((1, len(offsets)), -10.0)
        for word, value in chosen.items():
            logits[0, places[word][number]] = value
        outputs[f"{side}_logits"] = logits
    return answers(task, encoded, examples, outputs)[0]


def test_only_spans_inside_the_context_are_answers():
    scores = {"[SEP]": 50, "[CLS]": 50, "Berlin": 5}
    best = one_row(QuestionAnswering(), scores, scores)
    assert best["prediction"] == "Berlin"
    assert best["score"] == 10
    assert best["no_answer_score"] == 100


def test_an_end_before_its_start_is_no_answer():
    best = one_row(QuestionAnswering(), {"Berlin": 9, "Curie": 3}, {"Curie": 9})
    assert best["prediction"] == "Curie"


def test_answers_are_no_longer_than_allowed():
    scores = {"Curie": 9, "Berlin": 5}, {"Berlin": 7}
    assert one_row(QuestionAnswering(max_answer_length=20), *scores)["prediction"] == "Berlin"
    long = one_row(QuestionAnswering(max_answer_length=100), *scores)["prediction"]
    assert long.startswith("Curie")
    assert long.endswith("physicist.  Berlin")


def test_no_answer_beats_a_span_by_the_threshold():
    scores = {"[CLS]": 6, "Berlin": 5}, {"[CLS]": 6, "Berlin": 5}
    assert one_row(QuestionAnswering(), *scores)["prediction"] == "Berlin"
    assert one_row(QuestionAnswering(no_answer_threshold=2.5), *scores)["prediction"] == "Berlin"
    none = one_row(QuestionAnswering(no_answer_threshold=1.5), *scores)
    assert (none["prediction"], none["start"], none["score"]) == ("", -1, 12)
    assert none["nbest"][0]["text"] == "Berlin"


def test_the_best_answers_are_listed_once_each_and_in_order():
    task = QuestionAnswering(n_best=3, **SMALL)
    examples = questions("Warsaw")
    encoded = task.encode(examples, unigram_tokenizer())
    generator = torch.Generator().manual_seed(0)
    shape = (len(encoded), int(encoded.lengths().max()))
    outputs = {f"{side}_logits": torch.randn(shape, generator=generator) for side in ("start", "end")}
    best = answers(task, encoded, examples, outputs)[0]["nbest"]
    assert len(best) == 3
    assert [b["score"] for b in best] == sorted((b["score"] for b in best), reverse=True)
    assert len({(b["start"], b["text"]) for b in best}) == 3
    for answer in best:
        assert CONTEXT[answer["start"] :].startswith(answer["text"])
        assert answer["text"] == answer["text"].strip()


def test_an_empty_context_has_no_answer():
    examples = Examples("qa", "en", ["1"], ["Where?"], pairs=[""], labels=[[]])
    task = QuestionAnswering()
    encoded = task.encode(examples, wordpiece_tokenizer())
    outputs = {f"{side}_logits": torch.zeros(1, int(encoded.lengths()[0])) for side in ("start", "end")}
    assert answers(task, encoded, examples, outputs)[0]["prediction"] == ""


def test_loss_by_hand_and_padding_changes_nothing():
    start = torch.tensor([[math.log(3), 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    end = torch.zeros(3, 3)
    batch = {
        "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]]),
        "start_positions": torch.tensor([0, 1, -100]),
        "end_positions": torch.tensor([2, 0, -100]),
    }
    task = QuestionAnswering()
    expected = ((math.log(5 / 3) + math.log(2)) / 2 + (math.log(3) + math.log(2)) / 2) / 2
    loss = task.loss({"start_logits": start, "end_logits": end}, batch)
    assert loss.item() == pytest.approx(expected)
    pad = torch.nn.functional.pad
    longer = {"start_logits": pad(start, (0, 4), value=7.0), "end_logits": pad(end, (0, 4), value=7.0)}
    padded = batch | {"attention_mask": pad(batch["attention_mask"], (0, 4))}
    assert task.loss(longer, padded).item() == pytest.approx(expected)


def test_loss_gradient():
    start = torch.randn(2, 4, requires_grad=True)
    end = torch.randn(2, 4, requires_grad=True)
    batch = {
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
        "start_positions": torch.tensor([1, -100]),
        "end_positions": torch.tensor([3, -100]),
    }
    QuestionAnswering().loss({"start_logits": start, "end_logits": end}, batch).backward()
    target = torch.nn.functional.one_hot(torch.tensor(1), 4)
    torch.testing.assert_close(start.grad[0], (start[0].softmax(-1) - target) / 2)
    assert not start.grad[1].any()
    assert not end.grad[1].any()


def test_scores_use_the_language_of_the_context():
    gold = Examples(
        "qa", "en", ["1", "2"], ["x"] * 2, pairs=["y"] * 2, labels=[[Answer("die Spree", 0)], []], pair_language="de"
    )
    predictions = [{"prediction": "Spree"}, {"prediction": ""}]
    scores = QuestionAnswering(normaliser="mlqa").metrics(gold, predictions)
    assert list(scores) == ["f1_mlqa", "exact_match_mlqa"]
    assert scores["exact_match_mlqa"].value == 100
    assert QuestionAnswering().metrics(gold, predictions)["exact_match_squad"].value == 50


@pytest.mark.shared
@pytest.mark.parametrize("language", ["en", "ar", "zh"])
def test_gold_answers_of_xquad_survive_the_way_there_and_back(shared, language):
    """What is lost are answers that begin or end inside a piece of the tokenizer."""
    from transformers import AutoTokenizer

    with lzma.open(shared / "data" / "xquad" / f"xquad.{language}.json.xz", "rt", encoding="utf-8") as file:
        tree = json.load(file)
    rows = [
        (question["question"], part["context"], [Answer(a["text"], a["answer_start"]) for a in question["answers"]])
        for article in tree["data"]
        for part in article["paragraphs"][::2]
        for question in part["qas"]
    ]
    texts, contexts, labels = zip(*rows, strict=True)
    ids = [str(i) for i in range(len(rows))]
    examples = Examples("qa", language, ids, texts, pairs=contexts, labels=labels)
    task = QuestionAnswering(max_length=256, stride=64, max_answer_length=60)
    encoded = task.encode(examples, AutoTokenizer.from_pretrained(shared / "models" / "probe-x"))
    short = [i for i, label in enumerate(labels) if len(label[0].text) < 60]
    predictions = answers(task, encoded, examples, answer_logits(task, encoded))
    assert len(short) > 400
    assert np.mean([predictions[i]["prediction"] == labels[i][0].text for i in short]) > 0.99
