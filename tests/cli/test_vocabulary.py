import json

import pytest
import torch
from transformers import AutoModelForMaskedLM

from crosslift.cli import run
from crosslift.errors import BadInput
from crosslift.runs.vocabulary import extend_vocabulary
from tests.models.test_vocabulary import FRESH
from tests.tiny import TEXTS
from tests.tiny_models import config_for, tokenizer_for


@pytest.fixture
def model(tmp_path):
    tokenizer = tokenizer_for("xlm-roberta")
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(config_for("xlm-roberta", tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_trim_writes_a_smaller_model(model, tmp_path, capsys):
    (tmp_path / "en.txt").write_text("\n".join(TEXTS[:3]) + "\n", encoding="utf-8")
    arguments = ["trim", str(model), "-o", str(tmp_path / "small"), "--text", f"en={tmp_path / 'en.txt'}"]
    assert run([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["pieces"][1] < shown["pieces"][0] and shown["unchanged"] == 1.0
    assert run(arguments) == 2
    assert "is there already" in capsys.readouterr().err


def test_extend_vocabulary_adds_pieces_and_trains_them(model, tmp_path, capsys):
    (tmp_path / "en.txt").write_text("\n".join(FRESH * 30) + "\n", encoding="utf-8")
    arguments = ["extend-vocabulary", str(model), "-o", str(tmp_path / "run"), "-t", f"en={tmp_path / 'en.txt'}"]
    arguments += ["--pieces", "20", "--steps", "2", "--window", "16", "--window-tokens", "64", "--json"]
    assert run(arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["tokens"][1] < shown["tokens"][0] and set(shown["held_out"]) == {"en"}
    start = AutoModelForMaskedLM.from_pretrained(tmp_path / "run-extended")
    trained = AutoModelForMaskedLM.from_pretrained(tmp_path / "run" / "model")
    assert trained.config.vocab_size == start.config.vocab_size == shown["pieces"][1]
    assert run(arguments) == 0  # done already: nothing is made twice
    assert json.loads(capsys.readouterr().out)["pieces"] == shown["pieces"]


def test_extend_vocabulary_can_stop_before_training(model, tmp_path, capsys):
    (tmp_path / "en.txt").write_text("\n".join(FRESH) + "\n", encoding="utf-8")
    arguments = ["extend-vocabulary", str(model), "-o", str(tmp_path / "more"), "-t", f"en={tmp_path / 'en.txt'}"]
    assert run([*arguments, "--no-training", "-q"]) == 0
    assert "opens with transformers alone" in capsys.readouterr().out
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "more").config.vocab_size > 250


def test_extend_vocabulary_does_not_take_other_pieces_for_those_asked_for(model, tmp_path, capsys):
    (tmp_path / "en.txt").write_text("\n".join(FRESH) + "\n", encoding="utf-8")
    arguments = ["extend-vocabulary", str(model), "-o", str(tmp_path / "more"), "-t", f"en={tmp_path / 'en.txt'}"]
    assert run([*arguments, "--no-training", "--pieces", "3"]) == 0
    assert run([*arguments, "--no-training", "--pieces", "3"]) == 0
    assert run([*arguments, "--no-training", "--pieces", "4"]) == 2
    assert "holds other pieces (pieces: 3 there, 4 now)" in capsys.readouterr().err


def test_settings_of_training_that_cannot_be_are_refused_before_anything_is_written(model, tmp_path, capsys):
    (tmp_path / "en.txt").write_text("\n".join(FRESH) + "\n", encoding="utf-8")
    arguments = ["extend-vocabulary", str(model), "-o", str(tmp_path / "more"), "-t", f"en={tmp_path / 'en.txt'}"]
    for options, said in (
        (["--no-training", "--steps", "5"], "--steps is a setting of the masked LM"),
        (["--no-training", "--max-minutes", "5"], "--max-minutes is a setting of the masked LM"),
        (["--learning-rate", "nan"], "--learning-rate must be above 0"),
    ):
        assert run([*arguments, *options]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(BadInput, match='no setting "stepps"'):
        extend_vocabulary(model, out=tmp_path / "more", text={"en": tmp_path / "en.txt"}, stepps=5)
    assert not list(tmp_path.glob("more*"))


@pytest.mark.parametrize("verb", ["trim", "extend-vocabulary"])
def test_text_in_another_script_is_refused_with_its_line(verb, model, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("हिन्दी\n\n" + "\n".join(FRESH) + "\n", encoding="utf-8")
    arguments = [verb, str(model), "-o", str(tmp_path / "out"), "-t"]
    assert run([*arguments, f"hi={tmp_path / 'a.txt'}"]) == 2
    said = capsys.readouterr().err
    assert "a.txt, line 3: this is not hi" in said and 'call its language "und"' in said
    assert not list(tmp_path.glob("out*"))
    assert run([*arguments, f"und={tmp_path / 'a.txt'}", *(["--no-training"] if verb != "trim" else [])]) == 0


@pytest.mark.parametrize(("verb", "option"), [("trim", "--least"), ("extend-vocabulary", "--pieces")])
def test_numbers_that_cannot_be_are_refused(verb, option, tmp_path, capsys):
    assert run([verb, "model", "-o", str(tmp_path / "out"), "-t", "en=a.txt", option, "0"]) == 2
    assert option in capsys.readouterr().err
