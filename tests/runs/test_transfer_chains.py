"""The main job with methods in a row, without labels, and with files that need options."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from crosslift.cli import run
from crosslift.errors import BadInput
from crosslift.report.transferred import transfer as transfer_with_page
from crosslift.runs.fit import fit
from crosslift.runs.transfer import transfer
from crosslift.runs.transfer_inputs import Inputs
from tests.runs.test_plug import save_mono
from tests.tiny_bitext import WORDS, bitext
from tests.tiny_data import MAKERS, classification
from tests.tiny_models import save_encoder

QUICK = {"steps": 4, "batch_size": 8, "evaluations": 1}
LONGER = {**QUICK, "steps": 60, "learning_rate": 5e-3}
SYNONYMS = Path(__file__).parents[1] / "methods" / "synonyms.tsv"


def translated(examples):
    """The same rows word by word in a made-up language."""
    texts = [" ".join(WORDS.get(word, word) for word in text.split()) for text in examples.texts]
    return replace(examples, texts=texts, language="de")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def task_model(tmp_path_factory):
    """A model tuned from a public one, which is kept beside it."""
    folder = tmp_path_factory.mktemp("task")
    save_mono(folder / "base")
    fit("finetune", model=folder / "base", data=classification(60), out=folder / "run", steps=60, batch_size=8,
        learning_rate=2e-3, evaluations=1)  # fmt: skip
    return folder


def test_an_adjusted_encoder_then_ear_then_a_small_student(encoder, tmp_path):
    given = {"out": tmp_path / "out", "model": encoder, "data": classification(60), "bitext": {"de": bitext()},
             "synonyms": SYNONYMS, "text": {"de": translated(classification(80, 5))}}  # fmt: skip
    given |= {"test": {"en": classification(20, 2), "de": translated(classification(20, 3))}}
    done = transfer(**given, methods=["adjust+ear+student"], **QUICK)
    assert list(done.runs) == ["finetune", "adjust+ear+student"]
    ear, student = (json.loads((done.path / "runs" / name / "config.json").read_text()) for name in
                    ("adjust+ear", "adjust+ear+student"))  # fmt: skip
    assert ear["method"] == "ear" and ear["model"] == str(done.path / "runs" / "adjusted-encoder" / "model")
    assert student["teacher"] == str(done.path / "runs" / "adjust+ear") and student["model"] == "transformer"
    assert student["languages"] == ["en", "de"]  # without source text it reads that of the labels
    assert list(done.scores["adjust+ear+student"].rows) == ["en", "de"]
    assert " MB" in done.table().splitlines()[-1]


@pytest.mark.slow
def test_a_task_model_its_base_and_text_give_three_candidates_judged_on_translations(encoder, task_model, tmp_path):
    texts = {"en": classification(400, 5), "de": translated(classification(400, 5))}
    given = {"out": tmp_path / "out", "model": encoder, "task_model": task_model / "run" / "model"}
    given |= {"base": task_model / "base", "text": texts, "test": {"de": translated(classification(20, 3))}}
    done = transfer(**given, **LONGER)
    assert done.failed == {}
    assert list(done.scores) == ["task-model", "distill", "plug", "distill+student"]
    record = json.loads((tmp_path / "out" / "transfer.json").read_text())
    assert {tuple(signals) for signals in record["signals"].values()} == {("agreement on translations",)}
    assert record["chosen"] == max(record["signals"], key=lambda name: list(record["signals"][name].values()))
    assert "what the task model says of the originals (de)" in record["rule"]
    plugged = done.runs["plug"] / "model"
    assert AutoModelForSequenceClassification.from_pretrained(plugged).config.num_labels == 3
    assert "plugged in" in (plugged / "README.md").read_text()
    again = transfer_with_page(**given, **LONGER)
    assert again.to_dict() == record
    page = (tmp_path / "out" / "report.html").read_text()
    assert "with the task model" in page and "Delivered: " in page
    assert f"crosslift plug {task_model / 'run' / 'model'} --connector" in page
    assert "crosslift fit distill --teacher" in page


def test_text_of_the_task_in_two_languages_decides_by_itself(encoder, tmp_path):
    texts = {"en": classification(400, 5), "de": translated(classification(400, 5))}
    done = transfer(
        out=tmp_path / "out", model=encoder, data=classification(60), text=texts, methods=["robust"], **QUICK
    )
    assert done.rule.startswith("score on en dev data × share of translated sentences with an unchanged answer (de): ")
    kept = Inputs("m", None, None, "en", {}, "t", texts, None, None, (1,)).judging_texts("classification")
    assert kept["en"].parallel_ids == kept["de"].parallel_ids  # translations fall on the same side
    said = json.loads((tmp_path / "out" / "selection" / "finetune" / "translations.1.json").read_text())
    assert len(said["de from"]) == len(said["de to"]) == len(kept["en"])


def test_without_translations_candidates_are_compared_on_text_of_the_task_models_language(
    encoder, task_model, tmp_path
):
    text = replace(classification(300, 5), parallel_ids=None)
    done = transfer(out=tmp_path / "out", model=encoder, task_model=task_model / "run" / "model",
                    base=task_model / "base", text={"en": text}, **LONGER)  # fmt: skip
    assert done.rule == "agreement with the task model; no label was read"
    signals = json.loads((tmp_path / "out" / "transfer.json").read_text())["signals"]
    assert set(signals) == {"distill", "plug"} and done.chosen in signals
    config = json.loads((tmp_path / "out" / "runs" / "connector" / "config.json").read_text())
    assert (config["settings"]["hmlm"], config["settings"]["align"]) == (0.0, 1.0)  # what few steps learn most from


def test_random_label_igap_stands_beside_the_other_signals(encoder, tmp_path):
    given = {"out": tmp_path / "out", "model": encoder, "data": classification(60), "methods": ["robust"]}
    with pytest.raises(BadInput, match="Random-label IGAP needs sentence pairs"):
        transfer(**given, igap=True, **QUICK)
    done = transfer(**given, igap=True, bitext={"de": bitext(60)}, **QUICK, learning_rate=5e-3)
    signals = json.loads((done.path / "transfer.json").read_text())["signals"]
    assert set(signals["finetune"]) >= {"source dev"}
    files = list((done.path / "selection" / "igap").glob("*.json"))
    assert {file.name.split(".")[1] for file in files} == {"finetune", "robust"}
    for name in ("finetune", "robust"):
        assert "random-label igap" not in signals[name] or -100 <= signals[name]["random-label igap"] <= 100


def test_text_that_is_not_there_is_refused_before_anything_runs(encoder, tmp_path):
    with pytest.raises(BadInput, match=r"There is no .*de\.txt, the text of de"):
        transfer(out=tmp_path / "out", model=encoder, data=classification(60), text={"de": tmp_path / "de.txt"})
    assert not (tmp_path / "out").exists()


def test_igap_respects_the_budget(encoder, tmp_path):
    done = transfer(out=tmp_path / "out", model=encoder, data=classification(60), methods=["finetune"], igap=True,
                    bitext={"de": bitext(60)}, budget=0.001, **QUICK)  # fmt: skip
    assert "of the budget left" in done.skipped["igap"] and not (tmp_path / "out" / "selection" / "igap").exists()


def test_files_with_other_columns_are_read_as_the_options_say(encoder, tmp_path, capsys):
    for name, seed in (("train", 0), ("test-de", 1)):
        rows = classification(60, seed)
        lines = [f"{label};{text}" for text, label in zip(rows.texts, rows.labels, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"intent": x.split(";")[0], "sentence": x.split(";")[1]}) + "\n" for x in lines)
        )
    words = ["transfer", "--model", str(encoder), "--data", str(tmp_path / "train.jsonl"), "--methods", "finetune"]
    words += ["--columns", "text=sentence,label=intent", "--kind", "classification"]
    words += ["--test", str(tmp_path / "test-{lang}.jsonl"), "--languages", "de", "--steps", "2", "--evaluations", "1"]
    assert run([*words, "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert "finetune" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["request"]["reading"]["columns"] == {
        "text": "sentence", "label": "intent",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["tagging", "qa"])
def test_tasks_without_translation_agreement_are_chosen_by_source_dev(kind, encoder, tmp_path):
    length = {"max_length": 64, "stride": 16} if kind == "qa" else {}
    done = transfer(out=tmp_path / "out", model=encoder, data=MAKERS[kind](40), dev=MAKERS[kind](12, seed=1),
                    bitext={"de": bitext(200)}, methods=["robust"], **QUICK, **length)  # fmt: skip
    record = json.loads((tmp_path / "out" / "transfer.json").read_text())
    assert record["rule"].startswith("score on en dev data: ") and done.failed == {}
    assert {tuple(signals) for signals in record["signals"].values()} == {("source dev",)}
