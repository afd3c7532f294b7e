"""Scores by language: equal to a plain loop, kept as they come, and refused before anything runs."""

import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import crosslift as xl
from crosslift.data import mixed
from crosslift.errors import BadFile, BadInput, BadLabels
from crosslift.models.load import AUTO
from crosslift.runs import evaluate as module
from crosslift.runs.evaluation_data import evaluation_name
from crosslift.runs.predictions import read_predictions, rescore
from tests.tiny_data import MAKERS, classification

SETTINGS = {"batch_size": 8, "learning_rate": 5e-3, "evaluations": 2}


@pytest.fixture(scope="module")
def fitted(encoder, tmp_path_factory):
    """One run per kind of task, made when first asked for; tests work on copies."""
    made = {}

    def fit(kind):
        if kind not in made:
            out = tmp_path_factory.mktemp(kind) / "run"
            data, dev = MAKERS[kind](48, seed=1), MAKERS[kind](8, seed=2)
            more = {"max_length": 100, "stride": 20, "normaliser": "mlqa"} if kind == "qa" else {}
            made[kind] = xl.fit("finetune", model=encoder, data=data, dev=dev, out=out, steps=60, **SETTINGS, **more)
        return made[kind]

    return fit


@pytest.fixture
def run(fitted, tmp_path):
    """A copy of the run that names colours."""
    return shutil.copytree(fitted("classification").path, tmp_path / "run")


def colours(language: str, count: int = 12, **changes):
    return replace(classification(count, seed=len(language) + ord(language[0]), language=language), **changes)


def write_tsv(path: Path, examples, **relabelled) -> Path:
    rows = [
        f"{id_}\t{text}\t{relabelled.get(id_, label)}"
        for id_, text, label in zip(examples.ids, examples.texts, examples.labels, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["id\ttext\tlabel", *rows]) + "\n")
    return path


def one_by_one(kind, folder, examples):
    """The slow, obvious way: transformers alone, one text at a time, no padding."""
    model, tokenizer = AUTO[kind].from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    said = []
    for row, text in enumerate(examples.texts):
        texts = (text,) if kind != "qa" else (text, examples.pairs[row])
        inputs = tokenizer(*texts, return_tensors="pt", return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            outputs = model(**inputs)
        if kind == "classification":
            said.append(model.config.id2label[int(outputs.logits[0].argmax())])
        elif kind == "tagging":
            tags = [model.config.id2label[int(tag)] for tag in outputs.logits[0].argmax(-1)]
            words = examples.spans[row].tolist()
            said.append([next(t for t, (a, b) in zip(tags, offsets, strict=True) if a < y and b > x) for x, y in words])
        else:
            inside = [i for i, part in enumerate(inputs.sequence_ids(0)) if part == 1 and offsets[i][0] < offsets[i][1]]
            spans = [(i, j) for i in inside for j in inside if i <= j < i + 30]
            i, j = max(spans, key=lambda s: float(outputs.start_logits[0, s[0]] + outputs.end_logits[0, s[1]]))
            said.append(examples.pairs[row][offsets[i][0] : offsets[j][1]].strip())
    return said


@pytest.mark.parametrize("kind", list(MAKERS))
def test_predictions_equal_a_plain_loop_without_padding(kind, fitted):
    examples = MAKERS[kind](30, seed=5)
    ours = [prediction["prediction"] for prediction in xl.predict(fitted(kind), examples)]
    assert ours == one_by_one(kind, fitted(kind).model, examples)
    assert len(set(map(str, ours))) > 1  # a model that says one thing would prove nothing


@pytest.mark.parametrize("kind", list(MAKERS))
def test_scores_can_be_rebuilt_from_the_predictions_alone(kind, fitted, tmp_path):
    run = shutil.copytree(fitted(kind).path, tmp_path / "run")
    shutil.rmtree(run / "variants")
    examples = MAKERS[kind](20, seed=6)
    scores = xl.evaluate(run, {"de": replace(examples, language="de")})
    (entries,) = json.loads((run / "results.json").read_text()).values()
    rebuilt = rescore(run / entries["de"]["predictions"])
    stored = entries["de"]["scores"]
    assert {name: metric.value for name, metric in rebuilt.items()} == {name: s["value"] for name, s in stored.items()}
    assert list(stored) == scores.metrics
    assert all(s["low"] <= s["value"] <= s["high"] and s["n"] == 20 for s in stored.values())


def test_results_are_written_after_each_language(run, monkeypatch):
    real = module.predict_examples

    def fails_in_french(model, tokenizer, task, examples, **options):
        if examples.language == "fr":
            raise RuntimeError("the power is gone")
        return real(model, tokenizer, task, examples, **options)

    monkeypatch.setattr(module, "predict_examples", fails_in_french)
    data = {language: colours(language) for language in ("de", "fr", "sw")}
    with pytest.raises(RuntimeError, match="the power is gone"):
        xl.evaluate(run, data)
    kept = json.loads((run / "results.json").read_text())["tiny-colours"]
    assert list(kept) == ["de"]
    stamp = (run / kept["de"]["predictions"]).stat().st_mtime_ns

    monkeypatch.undo()
    scores = xl.evaluate(run, data, only_missing=True)
    assert list(scores.rows) == ["de", "fr", "sw"]
    assert (run / kept["de"]["predictions"]).stat().st_mtime_ns == stamp
    assert scores.of_language("de").mean == kept["de"]["scores"]["accuracy"]["value"]
    xl.evaluate(run, data, ["de"])
    assert (run / kept["de"]["predictions"]).stat().st_mtime_ns > stamp


def test_only_missing_opens_neither_data_nor_model_if_nothing_is_missing(run, tmp_path):
    data = write_tsv(tmp_path / "test.de.tsv", colours("de"))
    first = xl.evaluate(run, tmp_path / "test.{lang}.tsv", ["de"])
    data.unlink()
    shutil.rmtree(run / "variants")
    (run / "model" / "model.safetensors").unlink()
    again = xl.evaluate(run, tmp_path / "test.{lang}.tsv", ["de"], only_missing=True)
    assert again.to_dict() == first.to_dict()


def test_a_score_on_fewer_examples_does_not_count_as_there(run):
    data = {"de": colours("de")}
    assert xl.evaluate(run, data, limit=5).rows["de"][1]["accuracy"].n == 5
    assert xl.evaluate(run, data, only_missing=True).rows["de"][1]["accuracy"].n == 12
    assert xl.evaluate(run, data, only_missing=True, limit=5).rows["de"][1]["accuracy"].n == 5


def test_files_of_one_name_in_two_folders_are_scored_apart(run, tmp_path, monkeypatch):
    for folder, count in (("news", 12), ("chat", 6)):
        write_tsv(tmp_path / folder / "test.tsv", colours("de", count))
    first, second = (
        xl.evaluate(run, tmp_path / folder / "test.tsv", ["de"], only_missing=True) for folder in ("news", "chat")
    )
    assert (first.task, second.task) == ("news/test", "chat/test")
    assert [scores.rows["de"][1]["accuracy"].n for scores in (first, second)] == [12, 6]
    written = json.loads((run / "results.json").read_text())
    assert {name: entry["de"]["examples"] for name, entry in written.items()} == {"news/test": 12, "chat/test": 6}
    monkeypatch.chdir(tmp_path / "chat")
    monkeypatch.setattr(module, "predict_examples", lambda *_, **__: pytest.fail("it is there already"))
    assert xl.evaluate(run, "test.tsv", ["de"], only_missing=True).to_dict() == second.to_dict()


def test_a_score_on_another_file_does_not_count_as_there(run, tmp_path):
    """Also where folder and file have the same names."""
    for home, count in (("a", 12), ("b", 6)):
        file = write_tsv(tmp_path / home / "data" / "test.tsv", colours("de", count))
        assert xl.evaluate(run, file, ["de"], only_missing=True).rows["de"][1]["accuracy"].n == count


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("data/test.tsv", "data/test"),
        ("data/test.{lang}.tsv.gz", "data/test"),
        ("data/{lang}/test.jsonl", "data/test"),
        ("data/{lang}.tsv", "data/data"),
        ("data/test.v2.tsv", "data/test.v2"),
        ("data/test-{lang}.conll", "data/test"),
    ],
)
def test_results_on_a_file_are_named_after_its_folder_and_itself(file, name):
    assert evaluation_name(file) == name


def test_files_with_the_language_in_their_name_are_all_found(run, tmp_path):
    for language in ("de", "sw"):
        write_tsv(tmp_path / "data" / f"colours-{language}.tsv", colours(language))
    scores = xl.evaluate(run, tmp_path / "data" / "colours-{lang}.tsv")
    assert list(scores.rows) == ["de", "sw"]
    assert scores.task == "data/colours"
    assert list(xl.evaluate(run, tmp_path / "data" / "colours-{lang}.tsv", ["sw"]).rows) == ["sw"]
    direct = xl.evaluate(run, {"sw": colours("sw")})
    assert direct.of_language("sw") == scores.of_language("sw")


def test_a_catalog_name_is_looked_up_in_the_data_folder(encoder, tmp_path, monkeypatch):
    topics = ("travel", "politics", "sports")
    for name, count in {"eng_Latn/train": 24, "eng_Latn/dev": 6, "eng_Latn/test": 9, "deu_Latn/test": 9}.items():
        rows = [f"{i}\t{topics[i % 3]}\tsentence {topics[i % 3]} {i}" for i in range(count)]
        file = tmp_path / "data" / "sib200" / f"{name}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["index_id\tcategory\ttext", *rows]) + "\n")
    monkeypatch.setenv("CROSSLIFT_DATA", str(tmp_path / "data"))
    run = xl.fit("finetune", model=encoder, data="sib200", out=tmp_path / "run", steps=2, **SETTINGS)
    assert "from sib200" in (run.path / "log.txt").read_text()
    assert "dev 6" in (run.path / "log.txt").read_text()
    scores = xl.evaluate(run)  # the data it was trained on
    assert scores.task == "sib200/test"
    assert list(scores.rows) == ["en", "de"]
    assert scores.targets == ["de"]
    assert scores.rows["de"][1]["accuracy"].n == 9
    assert (run.path / "predictions" / "sib200.test.de.jsonl").exists()


def test_mixed_language_pairs_are_scored_like_any_other(encoder, tmp_path):
    english, german = (classification(40, seed=1, pairs=True, language=language) for language in ("en", "de"))
    german = replace(german, texts=[f"heute {text}" for text in german.texts])
    run = xl.fit("finetune", model=encoder, data=english, out=tmp_path / "run", steps=2, **SETTINGS)
    scores = xl.evaluate(run, {"de": german, "de+en": mixed(german, english)})
    assert [cell[1]["accuracy"].n for cell in scores.rows.values()] == [40, 40]


def test_variants_are_the_weights_of_the_other_selection_rules(run):
    data = {"de": colours("de", 30)}
    delivered = xl.evaluate(run, data)
    by_name = {name: xl.evaluate(run, data, variant=name) for name in ("best", "last", "average")}
    assert by_name["best"].of_language("de") == delivered.of_language("de")
    assert by_name["last"].system == "finetune (last)"
    written = json.loads((run / "results.json").read_text())
    assert set(written) == {"tiny-colours", "tiny-colours@best", "tiny-colours@last", "tiny-colours@average"}
    for name in ("last", "average"):
        _, predictions = read_predictions(run / "predictions" / f"tiny-colours@{name}.de.jsonl")
        said = [prediction["prediction"] for prediction in predictions]
        assert said == one_by_one("classification", run / "variants" / name, data["de"])
    with pytest.raises(BadInput, match='no variant "first"') as caught:
        xl.evaluate(run, data, variant="first")
    assert "average, best, last" in caught.value.remedy


def test_several_seeds_give_mean_and_standard_deviation(encoder, tmp_path):
    data, dev = classification(40, seed=1), classification(8, seed=2)
    more = {"seeds": [1, 2, 3], "steps": 4, **SETTINGS}
    group = xl.fit("finetune", model=encoder, data=data, dev=dev, out=tmp_path / "group", **more)
    test = {"de": colours("de", 30), "en": colours("en", 30)}
    scores = xl.evaluate(group, test)
    values = []
    for seed in (1, 2, 3):
        file = tmp_path / "group" / f"seed-{seed}" / "predictions" / "tiny-colours.de.jsonl"
        _, *rows = map(json.loads, file.read_text().splitlines())
        values.append(100 * np.mean([row["gold"] == row["prediction"] for row in rows]))
    found = scores.of_language("de")
    assert found.mean == pytest.approx(statistics.mean(values))
    assert found.sd == pytest.approx(statistics.stdev(values))
    assert found.seeds == 3
    assert scores.targets == ["de"]
    assert "±" in scores.table()

    elsewhere = xl.evaluate(tmp_path / "group", test, out=tmp_path / "elsewhere")
    assert elsewhere.to_dict()["rows"] == scores.to_dict()["rows"]
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["seed-1", "seed-2", "seed-3"]


def test_unknown_labels_are_refused_with_both_lists_before_anything_runs(run, monkeypatch):
    monkeypatch.setattr(module, "predict_examples", lambda *_, **__: pytest.fail("the model was run"))
    odd = colours("sw", labels=["greeen", *["red"] * 11])
    with pytest.raises(BadLabels, match='"greeen"') as caught:
        xl.evaluate(run, {"de": colours("de"), "sw": odd})
    text = str(caught.value)
    assert 'Did you mean "green"' in text
    assert "blue, green, red" in text
    assert "tiny-colours (sw): greeen, red" in text
    assert not (run / "results.json").exists()


def test_an_unknown_label_in_a_file_is_named_with_its_line(run, tmp_path):
    file = write_tsv(tmp_path / "colours-de.tsv", colours("de"), c4="reed")
    with pytest.raises(BadFile) as caught:
        xl.evaluate(run, file)
    assert str(caught.value).removeprefix(f"{tmp_path}/").splitlines() == [
        'colours-de.tsv, line 6: label "reed" is not one of blue, green, red.',
        '  Did you mean "red"?  Map it with --labels reed=red, or leave such rows out with --skip-unknown.',
    ]
    mapped = xl.evaluate(run, file, ["de"], reading={"labels": {"reed": "red"}})
    assert mapped.rows["de"][1]["accuracy"].n == 12
    skipped = xl.evaluate(run, file, ["de"], reading={"skip_unknown": True})
    assert skipped.rows["de"][1]["accuracy"].n == 11
    assert json.loads((run / "results.json").read_text())[f"{tmp_path.name}/colours-de"]["de"]["skipped"] == {
        "unknown label": 1
    }


def test_unknown_labels_can_be_kept_and_are_errors(run):
    examples = colours("de", 20)
    known = xl.evaluate(run, {"de": examples})
    said = [p["prediction"] for p in xl.predict(run, examples)]
    right = next(i for i, (a, b) in enumerate(zip(said, examples.labels, strict=True)) if a == b)
    odd = replace(examples, labels=["violet" if i == right else label for i, label in enumerate(examples.labels)])
    kept = xl.evaluate(run, {"de": odd}, keep_unknown=True)
    assert kept.of_language("de").mean == pytest.approx(known.of_language("de").mean - 5)


def test_data_of_another_kind_or_without_labels_is_refused(run):
    with pytest.raises(BadInput, match="tagging data, but the model does classification"):
        xl.evaluate(run, {"de": MAKERS["tagging"](4)})
    with pytest.raises(BadInput, match="no labels to score against"):
        xl.evaluate(run, {"de": colours("de").unlabelled()})
    with pytest.raises(BadInput, match='No data for "fr"; there is de'):
        xl.evaluate(run, {"de": colours("de")}, ["fr"])
    with pytest.raises(BadInput, match="Which data"):
        xl.evaluate(run)


def test_any_task_model_folder_can_be_evaluated_and_results_go_where_asked(run, tmp_path):
    folder = shutil.move(run / "model", tmp_path / "somebodys-model")
    before = sorted(path.name for path in folder.iterdir())
    scores = xl.evaluate(folder, {"de": colours("de")}, out=tmp_path / "results")
    assert scores.system == "given"
    assert (tmp_path / "results" / "predictions" / "tiny-colours.de.jsonl").exists()
    assert sorted(path.name for path in folder.iterdir()) == before
    with pytest.raises(BadInput, match="no variants"):
        xl.evaluate(folder, {"de": colours("de")}, variant="last")


def test_predicting_writes_nothing(run, tmp_path, monkeypatch):
    folder = shutil.move(run / "model", tmp_path / "model")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert xl.predict(folder, ["the tree is red today"])[0]["prediction"] in ("red", "green", "blue")
    assert list((tmp_path / "here").iterdir()) == []


def test_an_unfinished_run_and_a_bare_encoder_are_refused(run, encoder):
    with pytest.raises(BadInput, match="without a task head"):
        xl.predict(encoder, ["a"])
    (run / "finished.json").unlink()
    with pytest.raises(BadInput, match="not finished"):
        xl.evaluate(run, {"de": colours("de")})


def test_texts_on_the_spot(fitted, run):
    texts = ["the tree is red today", "the bird is blue today"]
    spoken = xl.predict(run, texts)
    assert [row["id"] for row in spoken] == ["0", "1"]
    assert spoken[0]["probabilities"].keys() == {"blue", "green", "red"}
    tags = xl.predict(fitted("tagging"), ["we saw Lima, again!"], language="de")[0]["prediction"]
    assert len(tags) == 6  # we, saw, Lima, the comma, again, the mark
    context = "the house stands in Oslo and nobody moves it"
    (answer,) = xl.predict(fitted("qa"), [("where is the house ?", context)])
    assert answer["prediction"] in context
    with pytest.raises(BadInput, match="not both"):
        xl.predict(run, ["one", ("one", "two")])
    with pytest.raises(BadInput, match="needs contexts"):
        xl.predict(fitted("qa"), ["where is the house ?"])
    with pytest.raises(BadInput, match="no examples"):
        xl.predict(run, [])


def test_a_file_to_predict_needs_no_labels_and_none_is_read(run, tmp_path):
    examples = colours("de", 4)
    file = write_tsv(tmp_path / "new.tsv", examples, c1="", c2="no such label")
    assert [row["id"] for row in xl.predict(run, file, language="de")] == ["c0", "c1", "c2", "c3"]


def test_predicting_cuts_texts_as_the_run_did(encoder, tmp_path):
    data, dev = classification(24, seed=1), classification(8, seed=2)
    run = xl.fit("finetune", model=encoder, data=data, dev=dev, out=tmp_path / "run", steps=2, max_length=8, **SETTINGS)
    long = "the tree is red today " * 20
    assert xl.predict(run, [long]) == xl.predict(run, [long + "blue blue blue blue"])


def test_too_little_data_to_set_dev_data_apart_is_said(encoder, tmp_path):
    with pytest.raises(BadInput, match="too small to set a tenth apart"):
        xl.fit("finetune", model=encoder, data=classification(3), out=tmp_path / "run", steps=1)


def test_a_run_on_a_part_of_the_data_knows_all_labels_and_where_it_came_from(encoder, tmp_path):
    more = {"steps": 2, "evaluations": 1, "batch_size": 8, "limit": 8}
    run = xl.fit("finetune", model=encoder, data="demo-intent", out=tmp_path / "run", **more)
    train = xl.load("demo-intent", language="en", split="train")
    assert tuple(run.folders[0].config["task"]["labels"]) == train.label_names()
    scores = xl.evaluate(run, languages=["en", "de"], limit=5)
    assert scores.task == "demo-intent/test"
    assert [cell[1]["accuracy"].n for cell in scores.rows.values()] == [5, 5]


def test_mixing_asks_about_a_paragraph_in_another_language(fitted, tmp_path):
    run = shutil.copytree(fitted("qa").path, tmp_path / "run")
    english = replace(MAKERS["qa"](10, seed=3), parallel_ids=[f"q{i}" for i in range(10)])
    german = replace(english, language="de", texts=[f"wo : {text}" for text in english.texts])
    sets = {"en": english, "de": german}
    xl.evaluate(run, sets, ["de"], mix="question")
    asked, _ = read_predictions(run / "predictions" / "tiny-qa+en-question.de.jsonl")
    assert (asked.language, asked.pair_language) == ("en", "de")
    xl.evaluate(run, sets, ["de"], mix="context")
    asked, _ = read_predictions(run / "predictions" / "tiny-qa+en-context.de.jsonl")
    assert (asked.language, asked.pair_language) == ("de", "en")


def test_mixing_what_cannot_be_mixed_is_refused(run):
    with pytest.raises(BadInput, match="no sentence pairs to mix"):
        xl.evaluate(run, {"en": colours("en"), "de": colours("de")}, ["de"], mix="sentences")
    with pytest.raises(BadInput, match='Did you mean "sentences"'):
        xl.evaluate(run, {"de": colours("de")}, mix="sentence")
