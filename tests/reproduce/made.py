"""A small entry with run folders made by hand: two rows, three columns, two seeds, ten examples a language."""

from pathlib import Path

from crosslift.data.examples import Examples
from crosslift.data.storage import write_json
from crosslift.reproduce.entries import Column, Entry, Row
from crosslift.reproduce.perform import Performed
from crosslift.reproduce.plan import Plan, Source, Step
from crosslift.runs.predictions import make_task, write_predictions

COLUMNS = tuple(Column(name, (name,), "nli", source=name == "en") for name in ("en", "de", "th", "sw"))
# Right answers of ten, by row, seed and language.
RIGHT = {
    "plain": {1: {"en": 9, "de": 5, "th": 4, "sw": 3}, 2: {"en": 9, "de": 7, "th": 4, "sw": 3}},
    "ours": {1: {"en": 9, "de": 8, "th": 6, "sw": 3}, 2: {"en": 9, "de": 8, "th": 6, "sw": 1}},
}
ENTRY = Entry(
    id="ear.made",
    title="Made",
    place="Table 0",
    shows="Ours is better.",
    columns=COLUMNS,
    rows=(
        Row("plain", "finetune", paper=(80.0, 70.0, 60.0, 50.0)),
        Row("ours", "ear", paper=(81.0, 74.0, 61.0, 52.0)),
        Row("quoted", quoted="of another paper", paper=(1.0, 2.0, None, 4.0)),
    ),
    baseline="plain",
)


def predictions(file: Path, right: int, language: str) -> None:
    """Write ten predictions, the first `right` of them right; gold is five times a, three times b, twice c."""
    gold = ["a"] * 5 + ["b"] * 3 + ["c"] * 2
    other = {"a": "b", "b": "c", "c": "a"}
    said = [g if place < right else other[g] for place, g in enumerate(gold)]
    ids = [str(number) for number in range(10)]
    examples = Examples(kind="classification", language=language, ids=ids, texts=[""] * 10, labels=gold, name="made")
    task = make_task("classification", ("a", "b", "c"))
    write_predictions(file, task, examples, [{"id": i, "prediction": p} for i, p in zip(ids, said, strict=True)])


def made(folder: Path) -> tuple[Plan, Performed]:
    """Write the runs of `ENTRY` and return its plan and where they lie."""
    plan, done = Plan("small", [ENTRY], {}), Performed()
    for row, seeds in RIGHT.items():
        for seed, scores in seeds.items():
            key = f"{row}-{seed}"
            home = folder / key
            results = {}
            for language, right in scores.items():
                file = home / "predictions" / f"{language}.jsonl"
                predictions(file, right, language)
                score = {"metric": "accuracy", "value": 10.0 * right}
                results[language] = {"scores": {"accuracy": score}, "predictions": f"predictions/{language}.jsonl"}
            write_json(home / "results.json", {"made/test": results})
            write_json(home / "finished.json", {"seconds": 2.0})
            evaluation = {"data": "made/test.tsv", "languages": list(scores)}
            plan.steps[key] = Step(key, seed, {"method": "finetune"}, {"on": evaluation}, tables=[ENTRY.id])
            done.folders[key] = home
    for row in RIGHT:
        for column in COLUMNS:
            plan.cells[ENTRY.id, row, column.name] = [
                Source(f"{row}-{seed}", seed, column.name, "made/test", english=True) for seed in (1, 2)
            ]
    for column in COLUMNS:
        plan.absent[ENTRY.id, "quoted", column.name] = "quoted: of another paper"
    return plan, done
