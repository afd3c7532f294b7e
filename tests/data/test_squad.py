import json

import pytest

from crosslift.data import Answer, load
from tests.refusals import message


def question(id_="q1", text="When?", answers=({"text": "now", "answer_start": 3},), **more):
    return {"id": id_, "question": text, "answers": list(answers), **more}


@pytest.fixture
def write(tmp_path):
    def write(*questions, context="So now.", name="a.json"):
        path = tmp_path / name
        tree = {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}]}
        path.write_text(json.dumps(tree), encoding="utf-8")
        return path

    return write


def test_questions_contexts_and_answers_are_read(write):
    examples = load(write(question(), question("q2", "Who?", [], is_impossible=True)), language="en")
    assert examples.kind == "qa"
    assert (examples.texts, examples.pairs) == (["When?", "Who?"], ["So now."] * 2)
    assert examples.labels == [[Answer("now", 3)], []]
    assert examples.groups == ["paragraph-0001"] * 2
    assert examples.parallel_ids is None


def test_offsets_count_characters_not_bytes(write):
    answer = {"text": "мир", "answer_start": 7}
    assert load(write(question(answers=[answer]), context="Привет мир")).labels == [[Answer("мир", 7)]]


def test_questions_without_answers_are_unlabelled(write):
    assert load(write({"id": "q", "question": "Who?"})).labels is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"text": "now", "answer_start": 4},
            'a.json: question "q1": answer "now" does not stand at character 4 of its context; '
            "it stands at character 3.",
        ),
        ({"text": "then", "answer_start": 0}, "it does not occur there."),
        ({"text": "now", "answer_start": -4}, "does not stand at character -4"),
        ({"text": "now"}, 'question "q1": an answer needs a text and a whole number as answer_start.'),
        ({"text": "", "answer_start": 0}, "an answer needs a text"),
        ("now", "an answer needs a text"),
    ],
)
def test_answers_that_do_not_match_their_context_are_refused(write, answer, expected):
    assert expected in message(write(question(answers=[answer])))


def test_duplicate_question_ids_are_refused(write):
    assert 'a.json: id "q1" occurs twice.' in message(write(question(), question()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{\n  oops", "a.json, line 2: malformed JSON at column 3"),
        ('{"text": "a"}', 'a.json: is not in SQuAD\'s layout: no list "data".\n  One object a line?'),
        ('{"data": [{}]}', 'a.json: article 1 has no list "paragraphs".'),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', 'a.json: paragraph 1 has no "context".'),
        ('{"data": [{"paragraphs": [{"context": "c"}]}]}', 'a.json: paragraph 1 has no list "qas".'),
        (
            '{"data": [{"paragraphs": [{"context": "c", "qas": [{}]}]}]}',
            'a.json: a question of paragraph 1 has no "id".',
        ),
        (
            '{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "x"}]}]}]}',
            'a.json: question "x" has no "question".',
        ),
        ('{"data": []}', "a.json: no row is left."),
    ],
)
def test_other_layouts_are_refused(tmp_path, text, expected):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert message(path).startswith(expected)


def test_limit_and_kind_are_respected(write):
    path = write(question("a"), question("b"))
    assert load(path, limit=1).ids == ["a"]
    assert "holds no tagging examples" in message(path, kind="tagging")
