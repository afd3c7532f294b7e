"""Static augmentation: copies that load as they were made, with labels on their words."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import crosslift as xl
from crosslift import cli
from crosslift.data.augment import Source, SynonymSettings, augmented_copies, copy_numbers, write_examples
from crosslift.data.examples import Answer, Examples
from crosslift.errors import BadInput
from crosslift.runs.augment import augment
from tests.tiny import wordpiece_tokenizer
from tests.tiny_data import MAKERS, classification
from tests.tiny_models import save_encoder

SYNONYMS = str(Path(__file__).parents[1] / "methods" / "synonyms.tsv")


def source(kind="classification", **settings):
    return Source(SynonymSettings(synonyms=SYNONYMS, **settings), MAKERS[kind](12, seed=1))


@pytest.mark.parametrize("kind", list(MAKERS))
def test_what_is_written_loads_as_it_was_made(kind, tmp_path):
    made = augmented_copies(source(kind, rate=1.0), 2, seed=1, originals=True)
    file = tmp_path / ("copies.conll" if kind == "tagging" else "copies.jsonl")
    write_examples(made, file)
    columns = {"id": "id"} if kind == "tagging" else None
    again = xl.load(file, language="en", columns=columns)
    assert (again.kind, list(again.ids), list(again.texts)) == (kind, list(made.ids), list(made.texts))
    assert [list(label) for label in again.labels] == [list(label) for label in made.labels]
    if kind == "tagging":
        assert all(np.array_equal(a, b) for a, b in zip(again.spans, made.spans, strict=True))
    else:
        assert again.pairs == made.pairs


def test_copies_follow_their_originals_and_differ_by_seed():
    examples = source().examples
    made = augmented_copies(source(rate=0.5), 3, seed=1, originals=True)
    assert list(made.ids[:12]) == list(examples.ids)
    assert list(made.ids[12:14]) == ["c0-1", "c1-1"]
    assert len(made) == 48
    assert list(made.labels) == 4 * list(examples.labels)
    assert made.texts[12:24] != made.texts[24:36]
    assert augmented_copies(source(rate=0.5), 3, seed=1).texts == made.texts[12:]
    assert augmented_copies(source(rate=0.5), 3, seed=2).texts != made.texts[12:]


def test_ids_of_copies_are_never_those_of_originals(tmp_path):
    names = ["a", "a-1", "a--1", *(f"b{i}" for i in range(9))]
    words = Source(SynonymSettings(synonyms=SYNONYMS), replace(classification(12), ids=names))
    made = augmented_copies(words, 2, seed=1, originals=True)
    write_examples(made, tmp_path / "more.jsonl")
    assert list(xl.load(tmp_path / "more.jsonl", language="en").ids) == list(made.ids)
    assert list(made.ids[12:14]) == ["a---1", "a-1---1"]
    assert list(augmented_copies(words, 2, seed=1).ids[:2]) == ["a-1", "a-1-1"]


def test_a_copy_number_is_one_of_the_copies_and_all_come_up():
    rows = np.arange(1000)
    numbers = copy_numbers(rows, seed=1, step=5, copies=4)
    assert np.bincount(numbers, minlength=4).min() > 200
    assert numbers.max() == 3
    assert (numbers != copy_numbers(rows, seed=1, step=6, copies=4)).any()


def test_stored_copies_are_the_texts_of_the_static_file():
    words = source(rate=0.5)
    rows, numbers = np.array([0, 3, 5]), np.array([2, 0, 1])
    drawn, _ = words.draw(rows, 1, numbers)
    made = augmented_copies(words, 3, seed=1)
    assert list(drawn.texts) == [made.texts[12 * copy + row] for row, copy in zip(rows, numbers, strict=True)]


def test_equal_texts_of_a_pair_are_drawn_apart():
    texts = [f"the house {i}" for i in range(40)]
    examples = Examples("classification", "en", texts, texts, texts, labels=["x"] * 40, name="twins")
    drawn, _ = Source(SynonymSettings(synonyms=SYNONYMS), examples).draw(np.arange(40), 1, 0)
    assert sum(a != b for a, b in zip(drawn.texts, drawn.pairs, strict=True)) > 10


def test_an_answer_that_is_none_stays_none():
    examples = Examples("qa", "en", ["q"], ["where is the house ?"], ["the house is red"], labels=[[]], name="none")
    drawn, _ = Source(SynonymSettings(synonyms=SYNONYMS, rate=1.0), examples).draw(np.array([0]), 1, 0)
    assert drawn.labels == [[]]


def test_all_answers_of_a_question_are_kept_and_move():
    context = "the house stands in Berlin and a tree stands in Lima"
    answers = [Answer("Berlin", 20), Answer("tree", 33), Answer("stands in Lima", 38)]
    examples = Examples("qa", "en", ["q"], ["where is it ?"], [context], labels=[answers], name="three")
    drawn, _ = Source(SynonymSettings(synonyms=SYNONYMS, rate=1.0), examples).draw(np.array([0]), 1, 0)
    assert "house" not in drawn.pairs[0]
    (moved,) = drawn.labels
    assert [answer.text for answer in moved] == ["Berlin", "tree", "stands in Lima"]
    assert all(drawn.pairs[0][a.start :].startswith(a.text) for a in moved)


@pytest.mark.parametrize("originals", [False, True])
def test_a_split_of_the_file_keeps_the_copies_of_an_example_on_one_side(originals, tmp_path):
    examples = replace(classification(60), parallel_ids=None)
    words = Source(SynonymSettings(synonyms=SYNONYMS, rate=0.5), examples)
    write_examples(augmented_copies(words, 3, seed=1, originals=originals), tmp_path / "more.jsonl")
    parts = xl.load(tmp_path / "more.jsonl", language="en").split({"train": 0.8, "dev": 0.2})
    sides = [{id_.split("-")[0] for id_ in part.ids} for part in parts.values()]
    assert all(sides)
    assert not sides[0] & sides[1]


def test_a_split_of_the_file_keeps_groups_on_one_side(tmp_path):
    examples = replace(classification(60), groups=[f"premise-{row // 3}" for row in range(60)])
    words = Source(SynonymSettings(synonyms=SYNONYMS, rate=0.5), examples)
    write_examples(augmented_copies(words, 2, seed=1, originals=True), tmp_path / "more.jsonl")
    found = xl.load(tmp_path / "more.jsonl", language="en")
    assert found.groups == examples.groups * 3
    sides = [set(part.groups) for part in found.split({"train": 0.8, "dev": 0.2}).values()]
    assert all(sides)
    assert not sides[0] & sides[1]


def pieces(*vocabulary):
    """Like XLM-R's tokenizer, with just these pieces beside single unknown characters."""
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in vocabulary)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@pytest.mark.parametrize(
    ("language", "texts", "vocabulary", "wanted"),
    [
        # No word mark stands inside a text without spaces, and an ideograph is a word.
        ("zh", ["我们喜欢北京", "他们喜欢上海", "大"], ["▁", "北京", "上海", "大", "喜欢"], {"北京", "上海", "大"}),
        # Vowel signs are no letters to Unicode, yet part of the word.
        ("hi", ["और और हिन्दी", "और और भाषा"], ["▁और", "▁हिन्दी", "▁भाषा"], {"हिन्दी", "भाषा"}),
        ("fa", ["که که که کتاب‌ها", "که که خانه"], ["▁که", "▁کتاب‌ها", "▁خانه"], {"کتاب‌ها", "خانه"}),
        # "able" alone is the end of other words; what has no piece is nothing's neighbour.
        ("en", ["the the house", "the able tree zzz qqq"], ["▁", "▁the", "able", "▁house", "▁tree"], {"house", "tree"}),
    ],
)
def test_words_among_which_neighbours_are_looked_for(language, texts, vocabulary, wanted):
    if language == "zh":
        pytest.importorskip("jieba")
    examples = Examples("classification", language, [str(i) for i in range(len(texts))], texts, name="few")
    tokenizer = pieces(*vocabulary)
    words = Source(SynonymSettings(), examples)
    words.look_among_neighbours(tokenizer, np.random.default_rng(0).normal(size=(len(tokenizer), 4)))
    (column,) = words.columns
    found = {choice for choices in column.choices for choice in choices}
    assert found == wanted


def test_of_two_words_with_one_piece_the_first_has_neighbours():
    # Lower-cased and without accents both are "cafe": the other would be its nearest neighbour, and nothing else.
    tokenizer = wordpiece_tokenizer()
    vectors = np.random.default_rng(0).normal(size=(len(tokenizer), 4))
    texts = ["and and and and dog dóg capital capital"]
    words = Source(SynonymSettings(), Examples("classification", "en", ["a"], texts, name="accents"))
    words.look_among_neighbours(tokenizer, vectors)
    assert {choice for choices in words.columns[0].choices for choice in choices} == {"dog", "capital"}


def test_too_few_whole_words_and_a_misspelt_source_say_what_to_do():
    examples = Examples("classification", "en", ["a"], ["the house zzz"], name="few")
    with pytest.raises(BadInput, match=r"keeps too few words of few whole.*\n.*--synonyms"):
        Source(SynonymSettings(), examples).look_among_neighbours(pieces("▁the"), np.ones((2, 4)))
    with pytest.raises(BadInput, match=r'neighbors: there is no such file\. Did you mean "neighbours"'):
        Source(SynonymSettings(synonyms="neighbors"), examples)


def test_how_many_words_have_synonyms_is_said():
    examples = Examples("classification", "en", ["a"], ["the tree is green today ."], ["a bird was there"], name="one")
    assert Source(SynonymSettings(synonyms=SYNONYMS), examples).note().startswith("synonyms  for 20.0% of the words")


def test_neighbours_need_a_model_and_take_its_embeddings(tmp_path):
    texts = ["the dog is over the fox", "the capital of the dog", "in the fox was the capital"]
    examples = Examples("classification", "en", ["a", "b", "c"], texts, labels=["x", "y", "x"], name="whole-words")
    with pytest.raises(BadInput, match="--synonyms FILE or --model NAME"):
        augment(examples)
    made = augment(examples, model=str(save_encoder(tmp_path / "bert", "bert")), rate=1.0)
    assert list(made.texts) != texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"copies": 0}, "--copies must be at least 1"),
        ({"out": "here.tsv"}, r"written as .jsonl.\n  Name it here.jsonl"),
        ({"rate": 2.0}, "--rate is a chance"),
        ({"scael": 0.5}, 'no setting "scael". Did you mean "scale"'),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments, message):
    with pytest.raises(BadInput, match=message):
        augment(classification(6), synonyms=SYNONYMS, **arguments)


@pytest.mark.parametrize("options", [[], ["--format", "jsonl"]])
def test_the_data_is_not_written_over(options, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    write_examples(classification(6), data)
    before = data.read_bytes()
    words = ["augment", "--data", str(data), "--out", str(tmp_path / "." / "data.jsonl"), "--synonyms", SYNONYMS]
    assert cli.run([*words, *options]) == 2
    assert "is the data itself" in capsys.readouterr().err
    assert data.read_bytes() == before


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("folder.jsonl", "folder.jsonl is a folder"),
        ("file/more.jsonl", "file is a file, not a folder"),
        ("more.tsv", "are written as .jsonl"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_dictionary_is_read(out, message, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=message):
        augment(classification(6), out=tmp_path / out, synonyms=str(tmp_path / "missing.tsv"))


def test_a_share_of_the_dictionary_that_has_no_word_of_the_data_says_so():
    with pytest.raises(BadInput, match=r"in the 0\.001 of .*synonyms\.tsv\.\n.*larger --scale"):
        augment(classification(6), synonyms=SYNONYMS, scale=0.001)


def test_text_without_labels_of_a_task_is_refused():
    with pytest.raises(BadInput, match="augment takes classification, tagging or qa"):
        augment(Examples("text", "en", ["a"], ["the house"], name="lines"), synonyms=SYNONYMS)


def test_the_command_writes_the_file(tmp_path, capsys):
    data = tmp_path / "data.tsv"
    data.write_text("text\tlabel\nthe house is red\tred\nthe tree is green\tgreen\n", encoding="utf-8")
    out = tmp_path / "more.jsonl"
    words = ["augment", "--data", str(data), "--out", str(out), "-k", "3", "--synonyms", SYNONYMS, "--rate", "1"]
    assert cli.run(words) == 0
    said = capsys.readouterr()
    assert "6 × classification (en)" in said.out
    assert "synonyms  for 25.0% of the words" in said.err
    assert xl.load(out, language="en").labels == ["red", "green"] * 3
