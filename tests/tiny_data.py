"""Small learnable data of every task kind, made in memory."""

import numpy as np

from crosslift.data.examples import Answer, Examples
from crosslift.data.segment import segment

COLOURS = ("red", "green", "blue")
THINGS = ("house", "tree", "river", "stone", "bird", "cloud")
PLACES = ("Berlin", "Lima", "Oslo", "Nairobi")


def classification(count: int = 60, seed: int = 0, pairs: bool = False, language: str = "en") -> Examples:
    """The colour that is named is the class."""
    draw = np.random.default_rng(seed)
    rows = [(draw.choice(COLOURS), draw.choice(THINGS), draw.choice(THINGS)) for _ in range(count)]
    return Examples(
        kind="classification",
        language=language,
        ids=[f"c{i}" for i in range(count)],
        texts=[f"the {thing} is {colour} today" * (1 + i % 3) for i, (colour, thing, _) in enumerate(rows)],
        pairs=[f"a {other} was there" for _, _, other in rows] if pairs else None,
        labels=[str(colour) for colour, _, _ in rows],
        parallel_ids=[f"c{i}" for i in range(count)],
        name="tiny-colours",
    )


def tagging(count: int = 60, seed: int = 0, language: str = "en") -> Examples:
    """Place names are tagged."""
    draw = np.random.default_rng(seed)
    texts, tags = [], []
    for i in range(count):
        place = str(draw.choice(PLACES))
        texts.append(f"we saw the {draw.choice(THINGS)} in {place} ," + " and slept well ." * (i % 3))
        words = [texts[-1][a:b] for a, b in segment(texts[-1], "en").tolist()]
        tags.append(["B-LOC" if word == place else "O" for word in words])
    spans = [segment(text, "en") for text in texts]
    ids = [f"t{i}" for i in range(count)]
    return Examples("tagging", language, ids, texts, spans=spans, labels=tags, name="tiny-places")


def qa(count: int = 40, seed: int = 0, language: str = "en") -> Examples:
    """The answer is the place in the context."""
    draw = np.random.default_rng(seed)
    questions, contexts, answers = [], [], []
    for i in range(count):
        thing, place = str(draw.choice(THINGS)), str(draw.choice(PLACES))
        contexts.append("It was late . " * (i % 4) + f"the {thing} stands in {place} and nobody moves it")
        questions.append(f"where is the {thing} ?")
        answers.append([Answer(place, contexts[-1].index(place))])
    ids = [f"q{i}" for i in range(count)]
    return Examples("qa", language, ids, questions, contexts, labels=answers, name="tiny-qa")


MAKERS = {"classification": classification, "tagging": tagging, "qa": qa}
