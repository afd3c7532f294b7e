"""The model card: what a run wrote down, in words and in the hub's own form."""

import json

import pytest
from huggingface_hub import ModelCard

import crosslift as xl
from crosslift.runs.card import model_card
from crosslift.runs.folder import RunFolder
from tests import tiny_data
from tests.tiny_models import save_encoder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    data = tiny_data.classification(40)
    return xl.fit(
        "finetune", model=save_encoder(folder / "encoder"), data=data, dev=data.take(20), out=folder / "colours",
        steps=2, batch_size=8, evaluations=1,
    )  # fmt: skip


def made_up(path, *, scores, method="ear", labels=("a", "b"), **config):
    """Write the files of a run whose numbers are known."""
    run = RunFolder(path)
    config = {
        "method": method,
        "model": "xlm-roberta-base",
        "data": "massive-intent",
        "source": "en",
        "seed": 3,
    } | config
    (path / "model").mkdir(parents=True)
    (path / "model" / "config.json").write_text("{}")
    run.config_file.write_text(json.dumps({**config, "kind": "classification", "task": {"labels": list(labels)}}))
    entry = {"low": 1.0, "high": 99.0, "n": 100}
    run.results_file.write_text(
        json.dumps(
            {
                data: {
                    language: {"scores": {"accuracy": {"metric": "accuracy", "value": value, **entry}}, "examples": 100}
                    for language, value in rows.items()
                }
                for data, rows in scores.items()
            }
        )
    )
    run.finish({"selected": "best", "selected_on": "source dev; no target data was read", "steps": 1200})
    return (path / "model" / "README.md").read_text(encoding="utf-8")


def test_a_finished_run_has_a_card_that_says_it_was_not_evaluated(run):
    card = ModelCard.load(run.model / "README.md")
    assert card.data.language == ["en"]
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.eval_results is None
    assert "has not been evaluated in any language yet" in card.text
    assert "no target data was read" in card.text
    assert str(run.path.parent) not in card.content  # nobody needs to know how folders are called here


def test_evaluation_puts_scores_into_the_card_in_the_hubs_form(run):
    scores = xl.evaluate(run, {x: tiny_data.classification(20, seed=4, language=x) for x in ("en", "de")})
    card = ModelCard.load(run.model / "README.md")
    found = {(r.dataset_config, r.metric_name): r for r in card.data.eval_results}
    assert set(found) == {(x, m) for x in ("en", "de") for m in ("accuracy", "macro f1")}
    accuracy = found["de", "accuracy"]
    assert accuracy.metric_value == pytest.approx(scores.of_language("de").mean, abs=0.005)
    assert (accuracy.task_type, accuracy.dataset_name) == ("text-classification", "tiny-colours (de)")
    assert found["de", "macro f1"].metric_type == "f1"
    assert card.data.language == ["en", "de"]
    assert "| en (source) |" in card.text


def test_variants_do_not_enter_the_card(run):
    before = ModelCard.load(run.model / "README.md").content
    xl.evaluate(run, {"sw": tiny_data.classification(20, seed=4, language="sw")}, variant="last")
    assert ModelCard.load(run.model / "README.md").content == before


def test_the_card_names_set_licence_paper_and_the_worst_language(tmp_path):
    text = made_up(tmp_path / "ear", scores={"massive-intent/test": {"en": 90.0, "de": 80.0, "sw": 55.5}})
    assert "it loses 34.5 points from en to sw, the language it does worst in" in text
    assert "CC BY 4.0" in text
    assert "COLING 2022" in text
    assert "Weights: `best`, by source dev; no target data was read." in text
    card = ModelCard(text)
    assert card.data.base_model == "xlm-roberta-base"
    assert {r.dataset_split for r in card.data.eval_results} == {"test"}
    assert card.data.model_name == "ear"


def test_names_from_data_cannot_break_the_card(tmp_path):
    hostile = ("<script>alert(1)</script>", "a|b", "x\n---\nlanguage: xx", "`code`")
    text = made_up(tmp_path / "run", scores={"<img src=x>|: {data}": {"en": 50.0, "d\ne": 40.0}}, labels=hostile)
    card = ModelCard(text)
    assert card.data.language == ["en", "d\ne"]
    assert "<script>" not in card.text and "<img" not in card.text
    assert "&lt;script&gt;" in card.text
    assert r"a\|b" in card.text
    assert "\n---\n" not in card.text


def test_an_encoder_without_a_task_has_a_card_too(tmp_path):
    text = made_up(tmp_path / "run", method="adjust", scores={}, data=None)
    assert "pulled together" in text
    assert "ECIR 2023" in text


def test_what_pretraining_measures_is_no_score_of_a_language(tmp_path):
    run = RunFolder.start(tmp_path / "run", {"method": "pretrain", "seed": 1})
    run.model.mkdir()
    (run.model / "config.json").write_text("{}")
    run.results_file.write_text(
        json.dumps({"held_out": {"en": 3.1, "de": {"loss": 2.0}}, "stuck": False, "steps": [1]})
    )
    run.finish({})
    card = ModelCard.load(run.model / "README.md")
    assert card.data.eval_results is None
    assert card.data.pipeline_tag is None


def test_a_network_of_our_own_is_not_said_to_open_with_transformers(tmp_path):
    made_up(tmp_path / "run", scores={}, method="distill", teacher="/secret/place/english")
    run = RunFolder(tmp_path / "run")
    (run.model / "config.json").write_text('{"model_type": "crosslift-bilstm"}')
    text = model_card(run)
    assert "pipeline(" not in text
    assert "Its teacher was english; no label was read." in text
    assert "/secret" not in text


def test_a_run_without_a_model_has_no_card(tmp_path):
    run = RunFolder.start(tmp_path / "run", {"method": "igap", "seed": 1})
    run.finish({})
    assert not run.model.exists()
