"""How much of its bridge a small student keeps on MASSIVE intents: one CPU core, a few minutes a student.

    CROSSLIFT_DATA=… python benchmarks/experiments/distill/keep.py --out runs/keep --bridges frozen --students cnn

English labels of one half of the training ids teach the source model; the text of the other half, English for the
bridge and of the target language for the student, is all that the two steps read. The command can be given again with
further bridges, students and languages: what is done is not done again, and the JSON holds everything so far.

Bridges (mini-x, taught by the source model): `plain` (every layer learns), `frozen` (the six lowest layers stay),
`balanced` (frozen, with word-by-word translations of the English text into the languages).
Students: `cnn`, and after a `+` what is different: `noise` (two disturbed copies of each text), `vocabulary` (its
pieces come from other text of the language, too), `long` (twice the epochs), `soft` (temperature 2).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import crosslift as xl
from crosslift.models.load import load_model, load_tokenizer, model_labels
from crosslift.runs.distill import distill
from crosslift.runs.evaluate import predict_examples
from crosslift.runs.fit import open_run
from crosslift.runs.predictions import make_task
from crosslift.translate import open_translator
from crosslift.translate.balanced import balanced

SET = "massive-intent"
CUT = 15  # a seed of its own: crosslift cuts dev and held-out parts by the same hash with other seeds


def half(language: str, part: str) -> xl.Examples:
    """Return one half of the training set by parallel id."""
    found = xl.load(SET, language=language, split="train")
    return found.split({"annotated": 0.5, "unannotated": 0.5}, seed=CUT)[part]


def scored(run: Any, languages: list[str]) -> dict[str, float]:  # noqa: ANN401  Run
    """Return the accuracy in each language's test set."""
    (folder,) = run.folders
    options = {key: value for key, value in folder.config["task"].items() if key != "labels"}
    task = make_task("classification", model_labels(str(folder.model)), **options)
    model, tokenizer = load_model(str(folder.model), task), load_tokenizer(str(folder.model))
    found = {}
    for language in languages:
        texts = xl.load(SET, language=language, split="test")
        metrics = task.metrics(texts, predict_examples(model, tokenizer, task, texts))
        found[language] = round(next(iter(metrics.values())).value, 2)
    return found


def source(arguments: argparse.Namespace) -> Path:
    """Teach the source model, a small one of English, from nothing."""
    from crosslift.models.students import new_student, save_student, student_tokenizer

    home = arguments.out / "source"
    if not (home / "start").exists():
        tokenizer = student_tokenizer({"en": list(half("en", "unannotated").texts)})
        save_student(new_student("cnn", tokenizer, "classification"), tokenizer, home / "start")
    dev = xl.load(SET, language="en", split="dev")
    xl.fit(
        "finetune", model=home / "start", data=half("en", "annotated"), dev=dev, out=home / "run", batch_size=64,
        epochs=arguments.source_epochs, learning_rate=1e-3, evaluations=5,
    )  # fmt: skip
    return home / "run"


def bridge(name: str, teacher: Path, arguments: argparse.Namespace) -> Any:  # noqa: ANN401  Run
    """Teach the bridge on English text."""
    text = half("en", "unannotated")
    settings: dict[str, Any] = {} if name == "plain" else {"frozen_layers": 6}
    epochs = arguments.bridge_epochs
    if name == "balanced":
        languages = arguments.balanced.split(",")
        into = {x: open_translator(f"dictionary:{arguments.text}/lexicon-{{lang}}.tsv.xz", "en", x) for x in languages}
        settings["translations"] = balanced(text, into)
        epochs *= 1.5 / (1 + len(languages))
    return distill(
        teacher=teacher, text={"en": text}, student="mini-x", out=arguments.out / f"bridge-{name}",
        cache=arguments.out / "cache", learning_rate=3e-4, batch_size=16, epochs=epochs, evaluations=5, **settings,
    )  # fmt: skip


def student(name: str, language: str, taught_by: str, arguments: argparse.Namespace) -> Any:  # noqa: ANN401  Run
    """Teach a student on the text of its language."""
    shape, *changes = name.split("+")
    settings: dict[str, Any] = {"epochs": arguments.epochs, "learning_rate": 1e-3, "evaluations": 5, "batch_size": 32}
    if "long" in changes:
        settings["epochs"] *= 2
    if "noise" in changes:
        settings |= {"augment": "noise", "paraphrases": 2, "epochs": settings["epochs"] / 3}
    if "vocabulary" in changes:
        settings["vocabulary_text"] = {language: sample(language, arguments)}
    if "soft" in changes:
        settings["temperature"] = 2.0
    return distill(
        teacher=arguments.out / f"bridge-{taught_by}", text={language: half(language, "unannotated")}, student=shape,
        out=arguments.out / f"student-{taught_by}-{name}-{language}", cache=arguments.out / "cache", **settings,
    )  # fmt: skip


def sample(language: str, arguments: argparse.Namespace) -> Path:
    """Return a file with 20,000 lines of other text of a language."""
    import itertools
    import lzma

    file = arguments.out / f"text-{language}.txt"
    if not file.exists():
        with lzma.open(f"{arguments.text}/text-{language}.txt.xz", "rt", encoding="utf-8") as lines:
            file.write_text("".join(itertools.islice(lines, 20_000)), encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/distill-students.json"))
    parser.add_argument("--bridges", default="frozen")
    parser.add_argument("--students", default="cnn")
    parser.add_argument("--languages", default="de,es,th")
    parser.add_argument("--balanced", default="de,es,th", help="languages into which `balanced` translates")
    parser.add_argument("--source-epochs", type=float, default=10)
    parser.add_argument("--bridge-epochs", type=float, default=5)
    parser.add_argument("--epochs", type=float, default=10, help="of the students")
    parser.add_argument("--text", default="../shared/pretraining", help="folder of lexicon-LANGUAGE and text-LANGUAGE")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"set": SET, "bridge": "mini-x", "rows": []}
    if arguments.results.exists():
        results = json.loads(arguments.results.read_text(encoding="utf-8"))
    languages = arguments.languages.split(",")

    def keep(key: dict[str, Any], run: Any, began: float, tested: list[str], against: dict[str, float]) -> None:  # noqa: ANN401
        facts = run.summary()[0]
        row = {**key, "scores": scored(run, tested), "steps": facts["steps"]}
        row["dev"] = round(next(iter(facts["dev"]["best"].values())), 2)
        if against:
            row["kept"] = {x: round(100 * row["scores"][x] / against[x], 1) for x in tested}
        row["minutes"] = round((time.monotonic() - began) / 60, 1)
        results["rows"] = [*results["rows"], row]
        draft = arguments.results.with_suffix(".tmp")
        draft.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(arguments.results)
        print(json.dumps(row), flush=True)

    def find(**key: object) -> dict[str, Any] | None:
        return next((row for row in results["rows"] if all(row.get(k) == v for k, v in key.items())), None)

    began = time.monotonic()
    teacher = source(arguments)
    if not find(role="source"):
        keep(
            {"role": "source", "model": "cnn", "epochs": arguments.source_epochs}, open_run(teacher), began, ["en"], {}
        )
    for name in arguments.bridges.split(","):
        began = time.monotonic()
        run = bridge(name, teacher, arguments)
        known = find(role="bridge", bridge=name)
        if not known or not all(x in known["scores"] for x in languages):
            results["rows"] = [row for row in results["rows"] if row is not known]
            tested = list(dict.fromkeys(["en", *(known or {"scores": []})["scores"], *languages]))
            keep({"role": "bridge", "bridge": name, "epochs": arguments.bridge_epochs}, run, began, tested, {})
            known = find(role="bridge", bridge=name)
        assert known is not None
        for how in arguments.students.split(","):
            for language in languages:
                key = {"role": "student", "bridge": name, "student": how, "language": language}
                if not find(**key):
                    began = time.monotonic()
                    run = student(how, language, name, arguments)
                    keep(key | {"epochs": arguments.epochs}, run, began, [language], known["scores"])


if __name__ == "__main__":
    main()
