"""The main job: candidates by what there is, a choice without target labels, and nothing lost when it is killed."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification

from crosslift.cli import run
from crosslift.cli.transfer import seconds
from crosslift.demo import LANGUAGES
from crosslift.errors import BadInput, CrossliftError
from crosslift.report.choice import read_choice
from crosslift.report.transferred import transfer as transfer_with_page
from crosslift.runs.demo import demo
from crosslift.runs.evaluate import predict
from crosslift.runs.fit import fit
from crosslift.runs.transfer import _open_plan, transfer
from crosslift.runs.transfer_candidates import CHAINS, candidates, cost, needs, parts_of
from crosslift.runs.transfer_choice import guarded, surely_more
from crosslift.runs.transfer_inputs import Inputs
from tests.tiny_bitext import bitext
from tests.tiny_data import classification
from tests.tiny_models import save_encoder

QUICK = {"steps": 4, "batch_size": 8, "evaluations": 2}
SYNONYMS = Path(__file__).parents[1] / "methods" / "synonyms.tsv"
TEST = {"en": classification(20, 2), "de": classification(20, 3, language="de")}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def done(encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("transfer") / "out"
    return transfer_with_page(
        out=out, model=encoder, data=classification(60), dev=classification(20, 1), bitext={"de": bitext()}, test=TEST,
        methods=["frozen", "robust", "adjust", "with-adjustment"], **QUICK,
    )  # fmt: skip


def test_candidates_are_those_that_the_inputs_allow():
    assert candidates({"labels"})[0] == ["finetune", "frozen", "ear", "robust"]
    bitext_too = ["finetune", "frozen", "ear", "robust", "adjust", "with-adjustment", "adjust+ear"]
    assert candidates({"labels", "bitext"})[0] == bitext_too
    wanted, skipped = candidates({"task-model", "text", "source-text"})
    assert wanted == ["distill"] and set(skipped) == set(CHAINS) - {"distill"}
    assert candidates({"task-model", "text", "source-text", "target-text", "connector"})[0] == [
        "distill", "plug", "distill+student",
    ]  # fmt: skip


def test_methods_compose_in_one_order_alone():
    assert parts_of("adjust+ear+student") == ("adjust", "ear", "student")
    assert needs("adjust+ear+student") == ("labels", "bitext", "target-text")
    for wrong in ("ear+adjust", "student", "ear+robust", "student+ear", "adjust+plug", "adjust+with-adjustment"):
        with pytest.raises(BadInput, match="is no chain of methods"):
            parts_of(wrong)


def test_a_chain_costs_what_its_parts_cost_and_adjust_alone_is_fine_tuned():
    assert (cost("finetune"), cost("adjust"), cost("adjust+ear"), cost("adjust+student")) == (1, 2, 3.5, 4)


def test_the_plain_baseline_runs_even_when_other_methods_are_named():
    assert candidates({"labels"}, ["ear"])[0] == ["finetune", "ear"]


@pytest.mark.parametrize(
    ("have", "methods", "message"),
    [
        ({"labels"}, ["robst"], 'There is no candidate "robst". Did you mean "robust"?'),
        ({"labels"}, ["adjust"], "adjust needs bitext."),
        ({"text"}, None, "There is nothing to transfer from."),
    ],
)
def test_what_cannot_run_is_refused_before_anything_does(have, methods, message):
    with pytest.raises(BadInput) as error:
        candidates(have, methods)
    assert error.value.seen == message


def test_a_duration_is_read_in_seconds():
    assert [seconds(x) for x in ("90s", "30m", "1.5h", "2")] == [90, 1800, 5400, 120]
    with pytest.raises(BadInput, match="--budget takes a time"):
        seconds("soon")


def test_every_candidate_is_run_and_scored_in_every_language(done):
    assert list(done.runs) == ["finetune", "frozen", "robust", "adjust", "with-adjustment"]
    assert {name: list(scores.rows) for name, scores in done.scores.items()} == {
        name: ["en", "de"] for name in done.runs
    }
    assert done.failed == {}
    assert len(done.table().splitlines()) == 1 + len(done.runs)


def test_the_signal_is_the_source_dev_score_where_there_are_too_few_pairs_to_judge_by(done):
    record = json.loads((done.path / "transfer.json").read_text())
    assert record["target_labels_read"] is False
    for name, path in done.runs.items():
        facts = json.loads((path / "finished.json").read_text())
        assert record["signals"][name] == {"source dev": facts["dev"][facts["selected"]]["accuracy"]}
    assert record["rule"].startswith("score on en dev data: ") and record["rule"].endswith("no target label was read")


def test_the_baseline_stands_unless_a_lead_is_more_than_chance():
    scores = {"finetune": 80.0, "ear": 81.0, "robust": 85.0}
    assert guarded(scores, [])[0] == "finetune"
    assert guarded(scores, ["ear"])[0] == "ear"
    assert guarded(scores, ["ear", "robust"])[0] == "robust"
    assert guarded({"finetune": 80.0, "ear": 80.0}, ["ear"])[0] == "finetune"  # of equals the plainer
    assert guarded({"distill": 70.0, "plug": 71.0}, []) == ("plug", "the highest")


def test_a_lead_is_sure_where_resampling_does_not_undo_it():
    dev, half, most = np.ones(200), np.tile([0.0, 1.0], 100), np.tile([0.0, 1.0, 1.0, 1.0], 50)
    assert surely_more((dev, most, most), (dev, half, half))
    assert not surely_more((dev, half, half), (dev, most, most))
    assert not surely_more((dev, half), (dev, half))
    few = np.array([0.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    assert not surely_more((dev, few[0]), (dev, few[1]))


def test_with_sentence_pairs_the_choice_also_goes_by_unchanged_answers_on_pairs_that_nothing_learnt_from(
    encoder, tmp_path
):
    pairs = bitext(200)
    done = transfer(
        out=tmp_path / "out", model=encoder, data=classification(60), bitext={"de": pairs}, methods=["adjust"], **QUICK
    )
    record = json.loads((done.path / "transfer.json").read_text())
    assert "unchanged answer (de), and for what learnt from sentence pairs the score on en dev data" in record["rule"]
    held_out = pairs.select(range(160, 200))
    for name, signals in record["signals"].items():
        said = [p["prediction"] for p in predict(done.runs[name], held_out.texts, language="en")]
        of_translations = [p["prediction"] for p in predict(done.runs[name], held_out.pairs, language="de")]
        share = np.mean([a == b for a, b in zip(said, of_translations, strict=True)])
        assert signals["translation agreement"] == pytest.approx(100 * share, abs=0.01)
        assert signals["carried"] == pytest.approx(signals["source dev"] * share, abs=0.02)


def test_pairs_and_text_to_judge_by_are_not_learnt_from():
    given = Inputs("m", None, None, "en", {"de": bitext(200)}, "t", {"en": classification(300)}, None, None, (1,))
    learnt, judged = given.training_pairs()["de"], given.judging_pairs()["de"]
    assert (len(learnt), len(judged)) == (160, 40) and not set(learnt.ids) & set(judged.ids)
    texts, kept = given.texts("classification")["en"], given.judging_texts("classification")["en"]
    assert len(texts) + len(kept) == 300 and len(kept) >= 15 and not set(texts.ids) & set(kept.ids)


def test_what_the_choice_cost_is_said_in_hindsight(done):
    test = json.loads((done.path / "transfer.json").read_text())["test"]
    means = {name: scores.mean("targets").mean for name, scores in done.scores.items()}
    assert test["points_below_it"] == round(max(means.values()) - means[done.chosen], 2)


def test_the_model_is_the_chosen_one_and_opens_with_transformers(done):
    assert weights(done.model) == weights(done.runs[done.chosen] / "model")
    assert AutoModelForSequenceClassification.from_pretrained(done.model).config.num_labels == 3
    card, own = ((folder / "README.md").read_text() for folder in (done.model, done.runs[done.chosen] / "model"))
    assert card.startswith(own) and f"Delivered: {done.chosen}. Rule: {done.rule}." in card[len(own) :]
    assert "| with-adjustment | " in card[len(own) :]


def test_the_report_names_the_choice_with_its_rule_and_signals(done):
    page = (done.path / "report.html").read_text()
    assert f"Delivered: {done.chosen}, chosen without looking at any label of the other languages." in page
    record = json.loads((done.path / "transfer.json").read_text())
    assert record["rule"] in page and record["signals"]["adjust"]["source dev"] > 0
    for name in done.runs:
        assert f"<bdi>{name}</bdi>" in page


def test_another_request_in_the_same_folder_is_refused(done, encoder):
    with pytest.raises(BadInput, match="holds another transfer"):
        transfer(out=done.path, model=encoder, data=classification(50), **QUICK)


def test_target_labels_are_refused_unless_they_are_allowed_and_then_it_is_said(encoder, tmp_path):
    given = {"out": tmp_path / "out", "model": encoder, "data": classification(60), "methods": ["finetune"]}
    with pytest.raises(BadInput, match="Gold labels of target languages"):
        transfer(**given, target_dev=TEST, **QUICK)
    done = transfer(**given, target_dev=TEST, allow_target_dev=True, **QUICK)
    assert done.rule.startswith("GOLD TARGET DEV DATA")
    assert json.loads((tmp_path / "out" / "transfer.json").read_text())["target_labels_read"] is True


def test_a_failed_candidate_is_reported_and_does_not_sink_the_rest(encoder, tmp_path):
    broken = tmp_path / "de.tsv"
    broken.write_text("no tabulator here\n")
    done = transfer(
        out=tmp_path / "out", model=encoder, data=classification(60), bitext={"de": broken}, methods=["adjust"], **QUICK
    )
    assert list(done.runs) == ["finetune"] and list(done.failed) == ["adjust"]
    assert "de.tsv, line 1" in done.failed["adjust"]


def test_when_nothing_succeeds_the_reasons_are_given(encoder, tmp_path):
    with pytest.raises(CrossliftError, match=r"No candidate succeeded \(finetune: "):
        transfer(out=tmp_path / "out", model=encoder, data=tmp_path / "nothing.tsv", methods=["finetune"], **QUICK)


def test_what_does_not_fit_the_budget_is_left_out_and_named(encoder, tmp_path):
    given = {"out": tmp_path / "out", "model": encoder, "data": classification(60), "methods": ["robust"]}
    done = transfer(**given, budget=0.001, **QUICK)
    assert list(done.runs) == ["finetune"]
    assert "of the budget left" in done.skipped["robust"]


@pytest.mark.parametrize(("synonyms", "variant"), [(None, ("adv", "gaussian")), (SYNONYMS, ("xtune", "synonyms"))])
def test_robust_takes_the_variant_that_gained_most(encoder, tmp_path, synonyms, variant):
    done = transfer(out=tmp_path / "out", model=encoder, data=classification(60), methods=["robust"], synonyms=synonyms,
                    **QUICK)  # fmt: skip
    settings = json.loads((done.runs["robust"] / "config.json").read_text())["settings"]
    assert (settings["variant"], settings["noise_from"]) == variant


def test_a_task_model_and_text_are_enough(encoder, tmp_path):
    teacher = fit("finetune", model=encoder, data=classification(60), out=tmp_path / "teacher", steps=30, batch_size=8,
                  learning_rate=5e-3, evaluations=1)  # fmt: skip
    done = transfer(
        out=tmp_path / "out", model=encoder, task_model=teacher.model, text={"en": classification(80, 5)}, test=TEST,
        **{**QUICK, "steps": 30, "learning_rate": 5e-3},
    )  # fmt: skip
    assert done.chosen == "distill"
    assert list(done.scores) == ["task-model", "distill"]
    assert done.rule == "agreement with the task model; no label was read"


def test_the_command_line_tells_the_same_as_python(encoder, tmp_path, capsys):
    rows = classification(60)
    lines = [f"{text}\t{label}" for text, label in zip(rows.texts, rows.labels, strict=True)]
    for file in ("train.tsv", "test-en.tsv", "test-de.tsv"):
        (tmp_path / file).write_text("\n".join(["text\tlabel", *lines]) + "\n")
    words = ["transfer", "--model", str(encoder), "--data", str(tmp_path / "train.tsv"), "--methods", "finetune"]
    words += ["--test", str(tmp_path / "test-{lang}.tsv"), "--languages", "de,en", "--steps", "2", "--quiet"]
    words += ["--evaluations", "1", "--out", str(tmp_path / "out"), "--budget", "10m"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "chosen    finetune (score on en dev data: no candidate is ahead of the plain baseline; no " in said
    assert "hindsight" not in said  # nothing else was tried
    assert f"report    {tmp_path / 'out' / 'report.html'}" in said
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "out" / "transfer.json").read_text())
    again = shlex.split(read_choice(tmp_path / "out").command)
    assert run([*again[1:], "--quiet", "--json"]) == 0  # what the report says is the same request: nothing is run anew
    assert json.loads(capsys.readouterr().out)["chosen"] == "finetune"
    assert run(["report", str(tmp_path / "out"), "-o", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "## How the delivered model was chosen" in page and "| finetune | " in page


@pytest.mark.slow
def test_the_demo_scores_its_candidates_in_every_language_of_the_corpus(encoder, tmp_path):
    done = demo(tmp_path / "demo", model=str(encoder), steps=2, evaluations=1)
    assert list(done.scores) == ["finetune", "frozen"]
    for scores in done.scores.values():
        assert next(iter(scores.rows)) == "en" and set(scores.rows) == set(LANGUAGES)


KILLED = """
import os, random, signal, sys, threading, time
from pathlib import Path
from crosslift.runs.progress import Silent
from crosslift.runs.transfer import transfer
from tests.runs.test_transfer import TEST, QUICK
from tests.tiny_bitext import bitext
from tests.tiny_data import classification

out, encoder, how, numbers = Path(sys.argv[1]), sys.argv[2], sys.argv[3], [int(x) for x in sys.argv[4].split(",")]

class Dies(Silent):
    def __init__(self, at):
        self.left = at

    def tick(self, *_, **__):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

    start = advance = finish = say = tick

def job(out, watch=Silent()):
    transfer(out=out, model=encoder, data=classification(60), dev=classification(20, 1), bitext={"de": bitext(200)},
             test=TEST, methods=["robust", "adjust"], checkpoint_every=1, watch=watch, **QUICK)

def in_child(out, watch=Silent(), killed_after=None):
    child = os.fork()
    if not child:
        job(out, watch)
        os._exit(0)
    timer = threading.Timer(killed_after or 3600, os.kill, (child, signal.SIGKILL))
    timer.start()
    ended = os.waitpid(child, 0)[1]
    timer.cancel()
    return os.WIFSIGNALED(ended)

began = time.monotonic()
in_child(out / "whole")
lasted = time.monotonic() - began
died = 0
if how == "at signs of life":
    for at in numbers:
        died += in_child(out / "killed", Dies(at))
    in_child(out / "killed")
else:
    draw = random.Random(numbers[0])
    for trial in range(numbers[1]):
        moment = draw.uniform(0, lasted)
        while not in_child(out / f"killed-{trial}", killed_after=moment):
            os.rename(out / f"killed-{trial}", out / f"ended-{trial}-{moment}")
            moment *= 0.7
        died += 1
        in_child(out / f"killed-{trial}")
print(died)
"""


def killed(out: Path, encoder: Path, how: str, numbers: list[int]) -> int:
    """Run transfers that are killed outright and started again; return how many kills there were."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{Path('src').resolve()}:{Path().resolve()}"}
    words = [sys.executable, "-c", KILLED, str(out), str(encoder), how, ",".join(map(str, numbers))]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def result(out: Path) -> tuple[object, dict[str, str]]:
    """What a transfer says, and digests of every model and prediction that it left."""
    record = json.loads((out / "transfer.json").read_text().replace(str(out), "OUT"))
    files = [*(out / "model").glob("*"), *out.glob("runs/*/model/*"), *out.glob("**/predictions/*")]
    files += out.glob("selection/*/translations.*.json")
    digests = {
        file.relative_to(out).as_posix(): hashlib.sha256(
            file.read_bytes().replace(str(out).encode(), b"OUT")
        ).hexdigest()
        for file in files
        if file.is_file()
    }
    return record, digests


def weights(model: Path) -> str:
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()


def test_killed_and_started_again_it_ends_in_the_same_result(encoder, tmp_path):
    assert killed(tmp_path, encoder, "at signs of life", [3, 25]) == 2
    assert result(tmp_path / "killed") == result(tmp_path / "whole")


@pytest.mark.slow
def test_ten_kills_of_one_transfer_end_in_the_same_result(encoder, tmp_path):
    assert killed(tmp_path, encoder, "at signs of life", [1, 2, 5, 7, 9, 12, 15, 16, 17, 19]) == 10
    assert result(tmp_path / "killed") == result(tmp_path / "whole")


@pytest.mark.slow
def test_killed_at_any_of_ten_random_moments_and_started_again_it_ends_in_the_same_result(encoder, tmp_path):
    assert killed(tmp_path, encoder, "at random moments", [18, 10]) == 10
    whole = result(tmp_path / "whole")
    assert whole[0]["signals"]["adjust"]["carried"] >= 0 and len(whole[1]) > 20
    for trial in range(10):
        assert result(tmp_path / f"killed-{trial}") == whole


def test_a_transfer_that_was_killed_while_it_wrote_its_plan_begins_anew(tmp_path):
    (tmp_path / ".plan.json-x1y2").mkdir()
    assert _open_plan(tmp_path, {"to": ["de"]}) == {"request": {"to": ["de"]}, "decided": {}}
    assert _open_plan(tmp_path, {"to": ["de"]})["request"] == {"to": ["de"]}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("…")
    with pytest.raises(BadInput, match="holds no transfer"):
        _open_plan(tmp_path / "other", {"to": ["de"]})
