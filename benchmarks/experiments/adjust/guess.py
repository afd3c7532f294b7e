"""What answers without a model score on XQuAD: the floor below which a run has learnt nothing.

    CROSSLIFT_DATA=… python benchmarks/experiments/adjust/guess.py adjust-transfer.json

The guess is the sentence of the paragraph that shares most words with the question. Its F1 is written into the JSON
("guesses": task -> language -> score), where `table.py` finds it.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from jobs import LANGUAGES

import crosslift as xl
from crosslift.tasks.answers import squad
from crosslift.tasks.metrics import answer_f1

SENTENCE_END = re.compile(r"(?<=[.!?।])\s+")


def likeliest_sentence(question: str, paragraph: str) -> str:
    """Return the sentence with most words of the question, the first of several."""
    words = set(squad(question))
    return max(SENTENCE_END.split(paragraph), key=lambda sentence: len(words & set(squad(sentence))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    scores = {}
    for language in ("en", *LANGUAGES):
        test = xl.load("xquad", language=language, split="test")
        answers = [likeliest_sentence(*pair) for pair in zip(test.texts, test.pairs or (), strict=True)]
        scores[language] = round(answer_f1(test.labels, answers, "squad", language).value, 2)
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    results["guesses"] = {"xquad": scores}
    arguments.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(scores)


if __name__ == "__main__":
    main()
