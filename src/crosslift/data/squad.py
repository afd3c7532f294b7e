"""Questions on paragraphs in SQuAD's JSON layout (SQuAD 1.1 and 2.0, XQuAD, MLQA, TyDi QA)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crosslift.data.columns import checked_answer
from crosslift.data.draft import UNKNOWN_LANGUAGE, Draft, Reading
from crosslift.data.examples import Answer, Examples
from crosslift.data.files import read_text
from crosslift.data.table import parse_json
from crosslift.errors import BadFile, BadInput


def read_squad(path: Path, reading: Reading, parallel: bool = False) -> Examples:
    """Read questions, their contexts and gold answers; a group is one paragraph.

    Args:
        path: A JSON file: data -> paragraphs -> context, qas -> id, question, answers.
        reading: What the caller asked for.
        parallel: Whether the question ids are the same in all languages.
    """
    if reading.kind not in (None, "qa"):
        raise BadInput(f"{path} is in SQuAD's layout, which holds no {reading.kind} examples.")
    tree = parse_json(path, read_text(path))
    draft = Draft(path, "qa", reading)
    for number, (context, questions) in enumerate(_paragraphs(path, tree), start=1):
        for question in questions:
            if draft.full:
                break
            id_ = str(_get(path, question, "id", (str, int), f"a question of paragraph {number}"))
            text = _get(path, question, "question", (str,), f'question "{id_}"')
            answers = _answers(path, question, context, id_)
            same = id_ if parallel else None
            draft.add(None, id_, str(text), context, None, answers, same, f"paragraph-{number:04d}")
    return draft.examples(reading.language or UNKNOWN_LANGUAGE)


def _paragraphs(path: Path, tree: object) -> Iterator[tuple[str, list[object]]]:
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), list):
        raise BadFile(
            path, None, 'is not in SQuAD\'s layout: no list "data".', 'One object a line? Say format="jsonl".'
        )
    number = 0
    for place, article in enumerate(tree["data"], start=1):
        for paragraph in _list(path, article, "paragraphs", f"article {place}"):
            number += 1
            context = _get(path, paragraph, "context", (str,), f"paragraph {number}")
            yield str(context), _list(path, paragraph, "qas", f"paragraph {number}")


def _answers(path: Path, question: object, context: str, id_: str) -> list[Answer] | None:
    if isinstance(question, dict) and question.get("answers") is None and not question.get("is_impossible"):
        return None
    if isinstance(question, dict) and question.get("is_impossible"):
        return []
    found = []
    for answer in _list(path, question, "answers", f'question "{id_}"'):
        text = answer.get("text") if isinstance(answer, dict) else None
        start = answer.get("answer_start") if isinstance(answer, dict) else None
        found.append(checked_answer(str(path), None, context, text, start, f'question "{id_}": '))
    return found


def _get(path: Path, node: object, key: str, types: tuple[type, ...], of: str) -> object:
    value = node.get(key) if isinstance(node, dict) else None
    if not isinstance(value, types):
        raise BadFile(path, None, f'{of} has no "{key}".')
    return value


def _list(path: Path, node: object, key: str, of: str) -> list[object]:
    value = node.get(key) if isinstance(node, dict) else None
    if not isinstance(value, list):
        raise BadFile(path, None, f'{of} has no list "{key}".')
    return value
