"""What the machine can do, and what is said about it."""

import json

import pytest
import torch

from crosslift.errors import BadInput
from crosslift.runs import machine


def test_precision_is_fp32_on_a_cpu_unless_asked_otherwise(monkeypatch):
    monkeypatch.setattr(machine, "cpu_bf16_works", lambda: True)
    assert machine.precision_for("auto", cpu=True) == "fp32"
    assert machine.precision_for("fp32", cpu=True) == "fp32"
    assert machine.precision_for("bf16", cpu=True) == "bf16"


def test_a_cpu_that_dies_on_bf16_is_never_asked_to_do_it(monkeypatch):
    monkeypatch.setattr(machine, "cpu_bf16_works", lambda: False)
    with pytest.raises(BadInput, match="bf16") as caught:
        machine.precision_for("bf16", cpu=True)
    assert "--precision fp32" in caught.value.remedy


def test_the_gain_of_bf16_is_measured_where_it_can_be_and_a_crash_is_no_error_of_ours(monkeypatch):
    machine.cpu_bf16_gain.cache_clear()
    gain = machine.cpu_bf16_gain()
    assert gain is None or gain > 0
    machine.cpu_bf16_gain.cache_clear()
    monkeypatch.setattr(machine, "_PRODUCT", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert machine.cpu_bf16_gain() is None
    assert not machine.cpu_bf16_works()
    machine.cpu_bf16_gain.cache_clear()


@pytest.mark.parametrize(("able", "auto"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_uses_bf16_where_it_has_it(monkeypatch, able, auto):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: able)
    assert machine.precision_for("auto", cpu=False) == auto
    assert machine.precision_for("fp32", cpu=False) == "fp32"
    if not able:
        with pytest.raises(BadInput, match="no bf16"):
            machine.precision_for("bf16", cpu=False)


def test_a_precision_that_does_not_exist_is_refused():
    with pytest.raises(BadInput, match="fp16"):
        machine.precision_for("fp16", cpu=True)


def test_autocast_computes_in_bf16_only_where_asked(monkeypatch):
    monkeypatch.setattr(machine, "cpu_bf16_works", lambda: True)
    with machine.autocast_for("auto", torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")
    with machine.autocast_for("bf16", torch.device("cpu")):
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert torch.is_autocast_enabled("cpu")


def test_the_description_is_plain_data_with_the_versions_that_are_installed():
    facts = machine.describe()
    assert facts == json.loads(json.dumps(facts))
    assert facts["packages"]["torch"] == torch.__version__
    assert facts["memory_gib"] > 0.1
    assert set(facts["extras"]) == set(machine.EXTRAS)
    assert machine.versions(("surely-not-installed",)) == {"surely-not-installed": "–"}
