"""What a translator alone can do on MASSIVE intents: zero-shot, translate-test, translate-train with pseudo-labels.

The source model learns from one half of the English training data; the other half is only text (its labels are not
read), and its translations, with the source model's predictions, train the target-language model. No target label is
read except by the scorer.

    CROSSLIFT_DATA=… python benchmarks/experiments/translate_baselines.py --lexicons DIR [--model mini-x]
        [--languages es,de,…] [--seeds 1-3] [--rows 4000] [--epochs 10] [--out runs/translate-baselines]
"""

import argparse
import json
import shutil
from pathlib import Path

import crosslift as xl
from crosslift.cli.options import seeds
from crosslift.data import halves
from crosslift.runs.translate_baselines import translate_test, translate_train
from crosslift.translate import cache_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini-x")
    parser.add_argument("--lexicons", type=Path, required=True, help="folder of lexicon-LANGUAGE.tsv.xz")
    parser.add_argument("--languages", default="es,de,fr,ru,ar,hi,zh,th,sw")
    parser.add_argument("--seeds", default="1-3")
    parser.add_argument("--rows", type=int, default=4000, help="sentences of each half")
    parser.add_argument("--test-rows", type=int, help="at most so many test rows per language")
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--only-test", action="store_true", help="leave translate-train out")
    parser.add_argument("--out", type=Path, default=Path("runs/translate-baselines"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/translate-baselines.json"))
    arguments = parser.parse_args()

    languages = arguments.languages.split(",")
    lexicon = f"{arguments.lexicons}/lexicon-{{lang}}.tsv.xz"
    annotated, text = halves(xl.load("massive-intent", language="en", split="train"))
    text = text.take(arguments.rows)
    dev = xl.load("massive-intent", language="en", split="dev")
    how = {"seeds": seeds(arguments.seeds), "epochs": arguments.epochs, "learning_rate": arguments.learning_rate}
    taught = {"data": annotated, "dev": dev, "limit": arguments.rows}  # rare classes stay in the label list
    english = xl.fit("finetune", model=arguments.model, **taught, out=arguments.out / "english", **how)
    limit = {"limit": arguments.test_rows}
    found = {"zero-shot": xl.evaluate(english, "massive-intent", ["en", *languages], **limit)}
    compared = {}
    for name, back, forward in (
        ("dictionary", f"dictionary-back:{lexicon}", f"dictionary:{lexicon}"),
        ("apertium", "apertium", "apertium"),
    ):
        chosen = languages if name == "dictionary" else [x for x in languages if x == "es" and shutil.which("apertium")]
        if not chosen:
            continue
        out = arguments.out / f"translate-test-{name}"
        options = {"translator": back, "out": out, "cache": cache_folder(), **limit}
        found[f"translate-test, {name}"] = translate_test(english, "massive-intent", chosen, **options)
        comparison = xl.compare(out, english, data="massive-intent/test", languages=chosen)
        compared[f"translate-test, {name}, against zero-shot"] = comparison.to_dict()
        for language in [] if arguments.only_test else chosen:
            options = {"translator": forward, "cache": cache_folder(), "model": arguments.model, **how}
            run = translate_train(
                english, text, target=language, out=arguments.out / f"train-{name}-{language}", **options
            )
            scores = xl.evaluate(run, "massive-intent", [language], **limit)
            found[f"translate-train, {name}, {language}"] = scores
    for name, scores in found.items():
        print(f"{name}\n{scores.table()}\n")
    facts = {key: str(value) for key, value in vars(arguments).items() if key not in ("out", "results", "lexicons")}
    result = {"settings": facts | {"model": Path(arguments.model).name}}
    result |= {"scores": {name: scores.to_dict() for name, scores in found.items()}, "comparisons": compared}
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
