"""Models by name: what is found, what is refused, and which head a task gets."""

import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file

import crosslift as xl
from crosslift.errors import BadInput
from crosslift.models import load
from crosslift.models.forward import forward
from crosslift.runs.deliver import save_model
from crosslift.tasks import Classification, Tagging, task_for
from tests.tiny_data import classification
from tests.tiny_models import FAMILIES, save_encoder

ABC = Classification(labels=("a", "b", "c"))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def copy(encoder, tmp_path) -> Path:
    """A copy of the encoder, to be spoiled."""
    return Path(shutil.copytree(encoder, tmp_path / "copy"))


def save_task_model(folder: Path, encoder: Path, task=ABC) -> Path:
    load.load_model(encoder, task, head_seed=3).save_pretrained(folder)
    load.load_tokenizer(encoder).save_pretrained(folder)
    return folder


def logits(model) -> torch.Tensor:
    ids = torch.tensor([[0, 10, 11, 12, 2]])
    with torch.no_grad():
        return forward(model.eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})["logits"]


def test_a_folder_is_itself_and_a_run_folder_stands_for_its_model(encoder, tmp_path):
    assert load.locate(encoder) == str(encoder)
    shutil.copytree(encoder, tmp_path / "run" / "model")
    (tmp_path / "run" / "config.json").write_text('{"method": "finetune"}')
    assert load.locate(tmp_path / "run") == str(tmp_path / "run" / "model")


def test_an_embedded_name_is_a_folder_of_ours_and_a_near_miss_is_told(encoder, tmp_path, monkeypatch):
    shutil.copytree(encoder, tmp_path / "mini-q")
    monkeypatch.setattr(load, "EMBEDDED", tmp_path)
    assert load.embedded_names() == ["mini-q"]
    assert load.locate("mini-q") == str(tmp_path / "mini-q")
    assert load.load_config("mini-q").model_type == "xlm-roberta"
    with pytest.raises(BadInput, match='Did you mean "mini-q"'):
        load.locate("mini-p")


def test_a_hub_id_is_left_to_the_hub_when_it_may_be_asked(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert load.locate("FacebookAI/xlm-roberta-base") == "FacebookAI/xlm-roberta-base"
    assert load.locate("bert-base-cased") == "bert-base-cased"


def test_a_hub_id_with_the_hub_switched_off_is_one_clear_line_and_no_call(monkeypatch):
    def unreachable(*_):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    with pytest.raises(BadInput, match="hub is switched off") as caught:
        load.load_encoder("FacebookAI/xlm-roberta-base")
    assert "unset HF_HUB_OFFLINE" in caught.value.remedy
    assert "\n" not in caught.value.seen


def test_a_local_folder_never_touches_the_network_even_with_the_hub_switched_on(encoder, monkeypatch):
    def unreachable(*_):
        raise AssertionError("the network was touched")

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(socket.socket, "connect", unreachable)
    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    load.load_tokenizer(encoder)
    load.load_model(encoder, ABC)
    load.load_encoder(encoder)


def test_a_hub_model_in_the_cache_opens_with_the_hub_switched_off(encoder, tmp_path, monkeypatch):
    repository = tmp_path / "models--someone--tiny"
    shutil.copytree(encoder, repository / "snapshots" / "0123abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert load.load_encoder("someone/tiny").config.hidden_size == 32
    assert len(load.load_tokenizer("someone/tiny")) == len(load.load_tokenizer(encoder))


@pytest.mark.parametrize(
    ("name", "said"),
    [("./nowhere", "no folder"), ("/no/where", "no folder"), ("a/b/c", "no folder"), (__file__, "is a file")],
)
def test_a_path_that_is_no_model_folder_is_said_in_one_line(name, said):
    with pytest.raises(BadInput, match=said):
        load.locate(name)


def test_an_empty_folder_is_no_model(tmp_path):
    with pytest.raises(BadInput, match="holds no model"):
        load.locate(tmp_path)


def test_pickled_weights_are_refused_with_the_remedy_and_never_opened(copy):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"pickled weights \(pytorch_model.bin\)") as caught:
        load.load_model(copy, ABC)
    assert "save_pretrained" in caught.value.remedy


def test_a_folder_without_weights_is_one_line(copy):
    (copy / "model.safetensors").unlink()
    with pytest.raises(BadInput, match=r"model\.safetensors is missing"):
        load.load_encoder(copy)


def test_a_folder_without_tokenizer_is_refused_not_given_an_empty_one(copy):
    for file in copy.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(BadInput, match="has no tokenizer"):
        load.load_tokenizer(copy)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_torn_file_is_one_line(copy, file):
    whole = (copy / file).read_bytes()
    (copy / file).write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(BadInput, match="cannot be loaded") as caught:
        load.load_encoder(copy)
        load.load_tokenizer(copy)
    assert "\n" not in caught.value.seen


def test_an_encoder_with_weights_missing_is_refused_not_filled_up_at_random(copy):
    weights = load_file(copy / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    for opened in (lambda: load.load_encoder(copy), lambda: load.load_model(copy, ABC)):
        with pytest.raises(BadInput, match=r"encoder\.layer\.1\.output\.dense\.weight"):
            opened()


def test_an_encoder_of_another_size_than_its_configuration_is_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"vocab_size": config["vocab_size"] + 1}))
    with pytest.raises(BadInput, match=r"word_embeddings|size mismatch"):
        load.load_model(copy, ABC)


def test_code_beside_a_model_is_never_run(copy, tmp_path):
    """Both with a family that transformers knows and with one that only the code would define."""
    marker = tmp_path / "was-run"
    (copy / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    config = json.loads((copy / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own.Config", "AutoModel": "own.Model", "AutoTokenizer": ["own.T", "own.T"]}
    (copy / "config.json").write_text(json.dumps(config))
    load.load_encoder(copy)
    load.load_tokenizer(copy)
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "of-their-own"}))
    with pytest.raises(BadInput, match="cannot be loaded"):
        load.load_encoder(copy)
    assert not marker.exists()


def test_a_task_model_with_the_same_labels_keeps_its_head(encoder, tmp_path):
    saved = save_task_model(tmp_path / "task", encoder)
    assert load.model_labels(saved) == ("a", "b", "c")
    assert load.model_kind(saved) == "classification"
    kept = logits(load.load_model(saved, ABC, head_seed=9))
    assert torch.equal(kept, logits(load.load_model(saved, ABC, head_seed=10)))
    assert torch.allclose(kept, logits(load.load_model(encoder, ABC, head_seed=3)))


@pytest.mark.parametrize("labels", [("b", "a", "c"), ("a", "b"), ("a", "b", "c", "d"), ("x", "y", "z")])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_labels_or_another_order_get_a_new_head_on_the_same_encoder(family, labels, tmp_path):
    saved = save_task_model(tmp_path / "task", save_encoder(tmp_path / "encoder", family))
    old, task = load.load_model(saved, ABC), Classification(labels=labels)
    new = load.load_model(saved, task, head_seed=1)
    assert tuple(new.config.id2label.values()) == labels
    assert logits(new).shape == (1, len(labels))
    shared = min(3, len(labels))
    assert not torch.allclose(logits(new)[:, :shared], logits(old)[:, :shared], atol=1e-4)
    for (name, before), after in zip(old.base_model.named_parameters(), new.base_model.parameters(), strict=True):
        assert torch.equal(before, after), name


def test_a_new_head_depends_on_its_seed_alone(encoder):
    first, again, other = (logits(load.load_model(encoder, ABC, head_seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_a_bare_encoder_has_no_kind_and_no_labels(encoder):
    assert load.model_kind(encoder) is None
    assert load.model_labels(encoder) == ()


def test_tags_are_stored_by_name(encoder, tmp_path):
    saved = save_task_model(tmp_path / "tags", encoder, Tagging(labels=("O", "B-X", "I-X")))
    assert load.model_kind(saved) == "tagging"
    assert load.model_labels(saved) == ("O", "B-X", "I-X")
    assert load.load_config(saved).label2id == {"O": 0, "B-X": 1, "I-X": 2}


def test_data_without_a_task_has_no_model(encoder):
    task = task_for(classification())
    assert load.load_model(encoder, task).config.num_labels == 3
    with pytest.raises(BadInput, match="no model for text"):
        load.load_model(encoder, type("Text", (), {"kind": "text", "labels": ()})())


def test_a_model_that_was_loaded_and_saved_keeps_the_names_of_its_weights(encoder, tmp_path):
    """Some versions of transformers would write those of very old checkpoints (LayerNorm.gamma)."""
    tokenizer = load.load_tokenizer(encoder)
    save_model(load.load_encoder(encoder), tokenizer, tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == load_file(encoder / "model.safetensors").keys()


def test_texts_longer_than_the_model_can_read_are_cut_by_default_and_refused_on_request(tmp_path):
    folder = save_encoder(tmp_path / "short")
    assert xl.load_tokenizer(folder).model_max_length == 130
    long = replace(classification(12), texts=["the house is red today " * 80] * 12)
    settings = {"steps": 1, "batch_size": 4, "evaluations": 1}
    run = xl.fit("finetune", model=folder, data=long, dev=long, out=tmp_path / "run", **settings)
    assert run.folders[0].config["task"]["max_length"] == 128
    with pytest.raises(BadInput, match="reads at most 130 tokens"):
        xl.fit("finetune", model=folder, data=long, dev=long, out=tmp_path / "more", max_length=200, **settings)


def test_a_tokenizer_saved_while_it_padded_and_cut_does_neither_when_it_is_loaded(copy):
    from transformers import AutoTokenizer

    saved = AutoTokenizer.from_pretrained(copy)
    saved(["a b c", "a"], padding="max_length", truncation=True, max_length=4)
    saved.save_pretrained(copy)
    assert '"padding": {' in (copy / "tokenizer.json").read_text(encoding="utf-8")
    rows = load.load_tokenizer(copy).backend_tokenizer.encode_batch(["one two three four five", "one"])
    assert len(rows[0].ids) > 4 and len(rows[1].ids) < len(rows[0].ids)


def test_a_tokenizer_is_saved_alike_whatever_it_was_called_with_last(encoder, tmp_path):
    tokenizer = xl.load_tokenizer(encoder)
    load.save_tokenizer(tokenizer, tmp_path / "unused")
    tokenizer(["some words", "and more"], truncation=True, max_length=3, padding=True)
    load.save_tokenizer(tokenizer, tmp_path / "used")
    names = [file.name for file in (tmp_path / "unused").iterdir()]
    assert "tokenizer.json" in names
    for name in names:
        assert (tmp_path / "used" / name).read_bytes() == (tmp_path / "unused" / name).read_bytes()
