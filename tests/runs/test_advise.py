"""Advice: what applies, what is missing, what it costs here, what is known of its gain."""

import json
import shlex

import pytest

from crosslift import cli
from crosslift.cli import run
from crosslift.errors import BadInput
from crosslift.runs.advise import HAVE, KINDS, WAYS, advise, in_words, main_command, table, time_steps
from tests.snippets import parse
from tests.tiny_models import save_encoder


def ready(have, **options):
    return [one.method for one in advise(have, timed=False, **options) if not one.missing]


def test_labels_alone_allow_the_methods_that_need_nothing_else():
    assert ready(["labels"]) == ["finetune", "frozen", "ear", "robust"]


def test_sentence_pairs_add_adjustment_and_a_task_model_with_text_replaces_labels():
    with_labels = ["finetune", "frozen", "ear", "robust"]
    assert ready(["labels", "bitext"]) == [*with_labels, "adjust", "with-adjustment", "adjust+ear"]
    assert ready(["task-model", "source-text"]) == ["distill", "plug"]
    assert ready(["task-model", "source-text", "target-text"]) == ["distill", "distill+student", "plug"]


def test_what_is_missing_is_named_and_ready_methods_come_first():
    found = advise(["labels"], timed=False)
    assert [bool(one.missing) for one in found] == sorted(bool(one.missing) for one in found)
    assert {one.method: one.missing for one in found}["distill"] == ("task-model", "source-text")
    assert "missing: sentence pairs" in table(found)


def test_a_gain_that_nobody_measured_is_not_invented(tmp_path):
    found = {one.method: one for one in advise(["labels"], timed=False, results=tmp_path / "none.json")}
    assert found["ear"].gain == "gain not measured yet"


def test_measured_gains_are_those_of_the_method_and_the_kind(tmp_path):
    entry = {"method": "ear", "kind": "tagging", "data": "panx", "model": "m", "difference": 1.25, "low": 0.5,
             "high": 2.0, "p": 0.01}  # fmt: skip
    (tmp_path / "gains.json").write_text(json.dumps({"gains": [entry]}))
    for kind, said in (("tagging", "+1.2 points on panx with m (95% +0.5 to +2.0)"), ("qa", "gain not measured yet")):
        found = {o.method: o.gain for o in advise(["labels"], kind, timed=False, results=tmp_path / "gains.json")}
        assert found["ear"] == said
    entry |= {"languages": 6, "seeds": 2, "examples": 1000}
    (tmp_path / "gains.json").write_text(json.dumps({"gains": [entry]}))
    found = {o.method: o.gain for o in advise(["labels"], "tagging", timed=False, results=tmp_path / "gains.json")}
    assert found["ear"].endswith("(95% +0.5 to +2.0, 6 languages, 2 seeds, 1,000 training examples)")


def test_gains_with_a_dictionary_are_for_those_who_have_one(tmp_path):
    entry = {"method": "robust", "kind": "qa", "data": "d", "model": "m", "low": 0.0, "high": 2.0}
    entries = [{**entry, "difference": 1.0, "synonyms": True}, {**entry, "difference": -1.0, "synonyms": False}]
    (tmp_path / "gains.json").write_text(json.dumps({"gains": entries}))
    for have, sign, variant in (
        (["labels", "synonyms"], "+1.0", "xtune --noise-from synonyms"),
        (["labels"], "-1.0", "adv"),
    ):
        found = {o.method: o for o in advise(have, "qa", timed=False, results=tmp_path / "gains.json")}["robust"]
        assert found.gain.startswith(f"{sign} points on d") and ";" not in found.gain
        assert f"--variant {variant} " in found.command


@pytest.mark.parametrize(
    ("have", "kind", "message"),
    [
        (["label"], "qa", 'There is nothing called "label" to have. Did you mean "labels"?'),
        (["labels"], "tags", 'There is no kind "tags".'),
    ],
)
def test_unknown_names_get_the_nearest_one(have, kind, message):
    with pytest.raises(BadInput) as error:
        advise(have, kind, timed=False)
    assert error.value.seen.startswith(message)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_timed_for_every_kind_of_task(kind, tmp_path):
    seconds = time_steps(str(save_encoder(tmp_path / "tiny")), kind, batch_size=8)
    # A random encoder has no neighbours that EAR could take for synonyms.
    assert set(seconds) == {"finetune", "robust"} and min(seconds.values()) > 0


def test_questions_are_not_translated_as_their_answers_could_not_be_found_again():
    have = ["labels", "translator", "dictionary"]
    assert {"translate-train", "dictionary-train"} == set(ready(have)) - set(ready(have, kind="qa"))


def test_cost_is_steps_times_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr("crosslift.runs.advise.time_steps", lambda *_: {"finetune": 0.5, "ear": 1.5})
    found = {one.method: one for one in advise(["labels"], examples=64)}
    assert (found["finetune"].seconds, found["ear"].seconds) == (3.0, 9.0)  # 2 steps, 3 epochs
    assert found["adjust"].seconds == 6.0 and not found["adjust"].timed


def test_what_somebody_has_is_said_with_the_command_that_tries_all_of_it():
    assert in_words(["task-model", "target-text"], ["de", "th"]) == (
        "You have a trained source-language model and unlabelled target-language text, but no labels, and want de, th."
    )
    have = ["labels", "bitext", "source-text", "task-model"]
    assert main_command(have, "m", ["de", "th"]) == (
        "crosslift transfer --model m --data LABELS --bitext de=BITEXT --bitext th=BITEXT --task-model TASK_MODEL "
        "--text en=TEXT --test TEST"
    )
    assert main_command(["bitext"]) == ""
    parse(shlex.split(main_command(list(HAVE)))[1:])


def test_commands_name_the_languages_that_are_wanted():
    found = {one.method: one.command for one in advise(["labels", "bitext"], to=["th", "sw"], timed=False)}
    assert "--bitext th=BITEXT --bitext sw=BITEXT" in found["adjust"]
    assert "--with-adjustment th=BITEXT --with-adjustment sw=BITEXT" in found["with-adjustment"]


def test_json_holds_every_method(capsys):
    assert run(["advise", "--have", ",".join(HAVE), "--no-timing", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["method"] for one in found} == set(WAYS) and all(one["ready"] for one in found)


@pytest.mark.parametrize("name", WAYS)
def test_every_command_that_is_advised_is_understood(name, monkeypatch):
    """Its verbs and options exist: a command stops at the files that are not there, never at an option."""

    class Reached(Exception):
        pass

    def reached(*_, **__):
        raise Reached

    for work in ("runs.fit.fit", "report.transferred.transfer", "runs.plug.fit_connector", "runs.plugged.plug"):
        monkeypatch.setattr(f"crosslift.{work}", reached)
    for command in WAYS[name].command.split(" && "):
        try:
            code = cli.run(shlex.split(command)[1:])
        except Reached:
            continue
        assert code in (1, 2) and "translate" in command
