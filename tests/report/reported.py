"""Real tiny runs for the tests of the report: two methods, two seeds, real sentences in several scripts."""

from dataclasses import asdict
from pathlib import Path

from crosslift.data.examples import Examples
from crosslift.data.storage import write_json
from crosslift.measure.scores import Score
from crosslift.runs.evaluate import evaluate
from crosslift.runs.fit import fit
from crosslift.runs.folder import RunFolder
from crosslift.runs.predictions import write_predictions
from crosslift.tasks import Classification
from tests.tiny_models import save_encoder

LANGUAGES = ["en", "ar", "th", "zh"]
QUICK = {"steps": 10, "evaluations": 2, "batch_size": 8, "learning_rate": 1e-2, "log_every": 1, "limit": 80}
HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'
MARKDOWN = "|a|b [x](javascript:alert(1)) <b>`"


def make_runs(folder: Path) -> Path:
    """Fit and evaluate `finetune` and `robust` on the embedded corpus, two seeds each."""
    save_encoder(folder / "encoder")
    for method, settings in (("finetune", {}), ("robust", {"variant": "gaussian"})):
        run = fit(method, model=folder / "encoder", data="demo-intent", out=folder / method, seeds=[1, 2],
                  **QUICK, **settings)  # fmt: skip
        evaluate(run, "demo-intent", LANGUAGES, limit=40)
    return folder


def write_run(folder: Path, method: str, right: dict[str, list[bool]]) -> Path:
    """Write an evaluated run by hand: language -> which examples came out right."""
    task = Classification(labels=("no", "yes"))
    run = RunFolder.start(folder, {"method": method, "model": "m", "data": "made", "source": "en", "seed": 1,
                                   "kind": "classification"})  # fmt: skip
    results = {}
    for language, marks in right.items():
        ids = [str(row) for row in range(len(marks))]
        examples = Examples("classification", language, ids, ids, labels=["yes"] * len(marks), name="made")
        said = [{"id": id_, "prediction": "yes" if mark else "no"} for id_, mark in zip(ids, marks, strict=True)]
        write_predictions(run.predictions / f"made.{language}.jsonl", task, examples, said)
        scores = {name: asdict(Score.of(metric)) for name, metric in task.metrics(examples, said).items()}
        results[language] = {"scores": scores, "predictions": f"predictions/made.{language}.jsonl", "limit": None}
    write_json(run.results_file, {"made": results})
    run.finish({"selected": "best", "selected_on": "source dev (made, en)", "seconds": 3.0, "steps": 7})
    return run.path


def hostile(language: str, count: int = 24) -> Examples:
    """Texts, labels, ids and a name that would run in a careless page."""
    return Examples(
        kind="classification",
        language=language,
        ids=[f"{HOSTILE}{row}" for row in range(count)],
        texts=[f"{language} {HOSTILE} {MARKDOWN} {row}" for row in range(count)],
        labels=[[f"a{HOSTILE}", f"b{MARKDOWN}"][row % 2] for row in range(count)],
        name=f"set{HOSTILE}",
    )


def write_hostile(folder: Path) -> None:
    """Write hostile files: a table whose texts and labels carry markup."""
    for name, count in (("train", 48), ("test.de", 12), ("test.en", 12)):
        examples = hostile(name, count)
        rows = [f"{i}\t{t}\t{x}" for i, t, x in zip(examples.ids, examples.texts, examples.labels, strict=True)]
        (folder / f"{name}.tsv").write_text("\n".join(["id\ttext\tlabel", *rows]) + "\n")


def make_hostile_runs(folder: Path) -> Path:
    """Fit and evaluate on hostile files; the folder of one run is hostile as well."""
    save_encoder(folder / "encoder")
    write_hostile(folder)
    name = "<img src=x onerror=window.hacked=1>"
    for out in (name, "plain"):
        run = fit("finetune", model=folder / "encoder", data=folder / "train.tsv", out=folder / out,
                  **{**QUICK, "steps": 2, "evaluations": 1})  # fmt: skip
        evaluate(run, folder / "test.{lang}.tsv", ["en", "de"])
    return folder
