"""`crosslift fit plug` and `crosslift plug`."""

import json

import pytest

import crosslift as xl
from crosslift import cli
from tests.runs.test_plug import save_mono
from tests.tiny import TEXTS
from tests.tiny_data import classification
from tests.tiny_models import save_encoder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plug")
    save_encoder(folder / "multi")
    save_mono(folder / "mono")
    (folder / "en.txt").write_text("\n".join(TEXTS[:3] * 40), encoding="utf-8")
    xl.fit(
        "finetune", model=folder / "mono", data=classification(24), dev=classification(8, seed=2),
        out=folder / "task", steps=2, batch_size=8, evaluations=1,
    )  # fmt: skip
    return folder


def test_text_to_connector_to_task_model(home, capsys):
    fitted = (
        f"fit plug --multi {home}/multi --mono {home}/mono --text {home}/en.txt --out {home}/run --preset small "
        "--steps 2 --batch-size 4 --length 32 --align 1 --evaluations 1 --gradient-checkpointing --json"
    )
    assert cli.run(fitted.split()) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["connector"] == f"{home}/run/connector"
    assert shown["setting"] == "English text alone"

    assert cli.run(f"plug {home}/task --connector {home}/run --out {home}/plugged --json".split()) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kind"], shown["layers"]) == ("classification", [1, 1, 1])

    assert cli.run(f"plug {home}/task --connector {home}/run --out {home}/again".split()) == 0
    assert "opens with transformers alone" in capsys.readouterr().out

    assert cli.run(f"plug {home}/mono --connector {home}/run --out {home}/none".split()) == 2
    assert "without a task head" in capsys.readouterr().err


def test_a_misspelt_option_is_named_with_its_neighbour(home, capsys):
    assert cli.run(f"fit plug --multi {home}/multi --mon {home}/mono --text x --out y".split()) == 2
    assert "--mono" in capsys.readouterr().err
