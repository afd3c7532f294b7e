"""A grid is checked as a whole before anything runs, and written out as single runs."""

import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.cli import run as cli
from crosslift.errors import BadInput
from crosslift.models.load import embedded_names
from crosslift.runs.sweep import sweep
from crosslift.runs.sweep_grid import _seeds, plan, read_grid
from tests.runs.sweep_data import GRID, RUN, make


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("grid"))


@pytest.fixture(autouse=True)
def _inside(here, monkeypatch):
    monkeypatch.chdir(here)


def message(grid) -> str:
    with pytest.raises(BadInput) as error:
        plan(grid)
    return str(error.value)


def changed(**settings):
    return {**GRID, "fit": {**RUN, **settings}}


def test_every_combination_is_a_run_in_the_order_of_the_file():
    grid = {
        "shared": {**RUN, "seeds": "1-2"},
        "fit": [{"learning_rate": [1e-3, "5e-3"], "batch_size": [4, 8]}, {"method": "robust", "variant": "gaussian"}],
    }
    runs = plan(grid)
    found = [(r.fit["method"], r.fit["learning_rate"], r.fit["batch_size"], r.seed) for r in runs]
    rates = [(rate, size, seed) for rate in (1e-3, 5e-3) for size in (4, 8) for seed in (1, 2)]
    assert found == [("finetune", *one) for one in rates] + [("robust", 5e-3, 8, seed) for seed in (1, 2)]
    assert runs[0].group.startswith("finetune-learning_rate=0.001-batch_size=4-")
    assert runs[-1].name == runs[-1].group + "/seed-2"
    assert len({run.group for run in runs}) == 5


def test_a_run_that_is_written_twice_is_one_run():
    assert len(plan({"fit": [{**RUN, "seeds": [1, 1, 2]}, {**RUN, "seeds": 2}]})) == 2


def test_a_name_depends_on_what_is_learned_and_not_on_how_the_machine_is_used(here):
    def digest(**settings):
        return plan(changed(**settings))[0].group.rpartition("-")[2]

    first = digest()
    assert digest(max_tokens=99, log_every=3) == first
    assert digest(learning_rate="0.005") == first
    assert digest(learning_rate=0.006) != first
    assert digest(limit=10) != first
    before = (here / "train.tsv").read_text()
    (here / "train.tsv").write_text(before.replace("today", "again"))
    try:
        assert digest() != first
    finally:
        (here / "train.tsv").write_text(before)


def test_a_run_of_two_blocks_is_scored_on_what_either_asks_for():
    first, second = ({"data": "test.{lang}.tsv"}, {"data": "demo-intent", "languages": ["de"]})
    runs = plan(
        {"fit": [{**RUN, "seeds": 1, "evaluate": first}, {**RUN, "seeds": [1, 2], "evaluate": [first, second]}]}
    )
    assert [run.seed for run in runs] == [1, 2]
    assert [[part["data"] for part in run.evaluations] for run in runs] == [["test.{lang}.tsv", "demo-intent"]] * 2


def test_a_name_depends_on_the_files_of_all_languages(tmp_path):
    grid = {"fit": {"method": "igap", "model": "encoder", "data": f"{tmp_path}/both.{{lang}}.tsv"}}
    names = []
    for language, text in (("en", "a"), ("de", "b"), ("de", "c")):
        (tmp_path / f"both.{language}.tsv").write_text(f"id\ttext\tlabel\n1\t{text}\tx\n")
        names.append(plan(grid)[0].group)
    assert len(set(names)) == 3 and plan(grid)[0].group == names[-1]


def test_a_group_that_is_there_keeps_its_name_when_the_grid_grows():
    narrow = plan(changed())[0].group
    wide = plan(changed(learning_rate=[5e-3, 1e-3]), known=[narrow, "something-else"])
    assert wide[0].group == narrow
    assert wide[2].group.startswith("finetune-learning_rate=0.001-")


def test_languages_of_an_evaluation_are_listed_and_checked():
    (one,) = plan({"fit": RUN, "evaluate": {"data": "test.{lang}.tsv"}})
    assert one.evaluations[0]["languages"] == ["de", "sw"]
    assert one.names == [f"{Path.cwd().name}/test"]
    grid = {"fit": RUN, "evaluate": {"data": "demo-intent", "languages": ["de", "swa"]}}
    assert 'demo-intent (test) has no language "swa". Did you mean "sw"?' in message(grid)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({"fti": {}}, 'The grid has no "fti". Did you mean "fit"?'),
        ({}, 'has no "method"'),
        ({"fit": []}, "The grid has no runs."),
        ({"fit": {"method": "finetune", "model": "encoder"}}, 'fit finetune in the grid has no "data"'),
        ({"fit": {**RUN, "learning_rat": 1}}, 'fit finetune has no "learning_rat". Did you mean "learning_rate"?'),
        ({"fit": {**RUN, "method": "finetun"}}, 'There is no method "finetun". Did you mean "finetune"?'),
        ({"fit": {**RUN, "learning_rate": "fast"}}, "--learning-rate takes a number, not 'fast'"),
        ({"fit": {**RUN, "learning_rate": [1e-3, -1]}}, "--learning-rate must be above 0, not -1"),
        ({"fit": {**RUN, "schedule": "liner"}}, 'Did you mean "linear"?'),
        ({"fit": {**RUN, "stride": 3}}, 'There is no setting "stride"'),
        ({"fit": {**RUN, "seeds": "one"}}, "seeds are whole numbers"),
        ({"fit": {**RUN, "batch_size": []}}, "batch_size in the grid is an empty list"),
        ({"fit": RUN, "evaluate": [{"data": "test.{lang}.tsv"}] * 2}, "evaluate in the grid has two blocks on"),
        ({"fit": {**RUN, "limit": 0}}, "limit in the grid is a whole number above 0, not 0"),
        ({"fit": {**RUN, "model": "./nowhere"}}, "There is no folder nowhere"),
        ({"fit": {**RUN, "data": "nothing.tsv"}}, "nothing.tsv"),
        ({"fit": {**RUN, "model": 3}}, "model in the grid is text, not 3"),
        ({"fit": {**RUN, "reading": {"colums": {}}}}, 'reading has no "colums". Did you mean "columns"?'),
        ({"fit": {"method": "distill", "text": {"en": "x"}}}, 'fit distill in the grid has no "teacher"'),
        ({"fit": {"method": "distill", "teacher": "x", "text": {}, "studnet": "y"}}, 'Did you mean "student"?'),
        ({"fit": {"method": "distil"}}, 'There is no method "distil". Did you mean "distill"?'),
        ({"fit": {**RUN, "method": ["finetune", 3]}}, 'has no "method" (it is 3)'),
        ({"fit": "finetune"}, "fit in the grid is one block or a list of blocks"),
        ({"fit": None}, "fit in the grid is empty"),
        ({"fit": {**RUN, "method": None}}, 'has no "method".'),
        ({"fit": {**RUN, "seeds": []}}, "seeds in the grid is an empty list"),
        ({"fit": {**RUN, "seeds": "5-1"}}, "seeds 5-1 end before they begin"),
        ({"fit": RUN, "out": 3}, "out in the grid is the name of a folder, not 3"),
        ({"fit": RUN, "evaluate": {"langages": ["de"]}}, 'evaluate has no "langages". Did you mean "languages"?'),
        ({"fit": RUN, "evaluate": {"data": "test.{lang}.tsv", "languages": 3}}, "languages in the grid is a list"),
    ],
)  # fmt: skip
def test_a_bad_grid_is_refused_with_what_to_do(grid, said):
    assert said in message(grid)


def test_a_bad_grid_leaves_nothing_behind(tmp_path):
    with pytest.raises(BadInput):
        sweep({"fit": [RUN, {**RUN, "learning_rat": 1}]}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{"engine": "locl"}, {"cores": 0}, {"address": "x:1"}, {"cores": 10_000}])
def test_bad_options_are_refused(options, tmp_path):
    with pytest.raises(BadInput):
        sweep(GRID, out=tmp_path / "out", **options)


def test_a_sweep_cannot_lie_in_a_file(tmp_path):
    (tmp_path / "notes").write_text("")
    with pytest.raises(BadInput, match=f"{tmp_path}/notes is a file"):
        sweep(GRID, out=tmp_path / "notes" / "out")


def test_yaml_toml_and_json_say_the_same(tmp_path):
    (tmp_path / "a.yaml").write_text("fit: {method: finetune, seeds: [1, 2], learning_rate: 3e-4}\n")
    (tmp_path / "a.toml").write_text('[fit]\nmethod = "finetune"\nseeds = [1, 2]\nlearning_rate = "3e-4"\n')
    (tmp_path / "a.json").write_text('{"fit": {"method": "finetune", "seeds": [1, 2], "learning_rate": "3e-4"}}')
    yaml, toml, json_ = (read_grid(tmp_path / f"a.{ending}") for ending in ("yaml", "toml", "json"))
    assert yaml == toml == json_


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.yaml", "fit:\n  method: [finetune\n", "a.yaml, line 3: cannot be read"),
        ("a.json", '{"fit":\n 3,,}', "a.json, line 2: cannot be read"),
        ("a.toml", "fit = ", "a.toml"),
        ("a.yaml", "- 3", "a.yaml: holds no grid"),
        ("a.ini", "", 'a.ini: ".ini" is no grid format'),
        ("a.yaml", "fit:\n  model: a\n  model: b\n", 'a.yaml, line 3: cannot be read: "model" is there twice'),
        ("a.json", '{"fit": {}, "fit": {}}', 'a.json: cannot be read: "fit" is there twice'),
        ("a.yaml", "fit:\n  model: \udce9\n", "a.yaml, line 2: is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BadInput) as error:
        read_grid(tmp_path / name)
    assert said in str(error.value).replace(f"{tmp_path}/", "")


def test_a_block_may_take_from_another_and_write_over_it(tmp_path):
    (tmp_path / "a.yaml").write_text("fit:\n  - &one {model: a, source: en}\n  - {<<: *one, model: b}\n")
    assert read_grid(tmp_path / "a.yaml")["fit"][1] == {"model": "b", "source": "en"}


@pytest.mark.parametrize("options", [[], ["--dry"]])
def test_what_is_wrong_in_a_grid_is_said_with_the_name_of_its_file(options, tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("fits: {method: finetune}\n")
    assert cli(["sweep", str(tmp_path / "a.yaml"), "--out", str(tmp_path / "out"), *options]) == 2
    assert f'{tmp_path}/a.yaml: The grid has no "fits". Did you mean "fit"?' in capsys.readouterr().err


def test_a_yaml_file_cannot_make_objects(tmp_path):
    (tmp_path / "a.yaml").write_text("!!python/object/apply:os.getcwd []")
    with pytest.raises(BadInput, match="cannot be read"):
        read_grid(tmp_path / "a.yaml")


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 9), st.integers(0, 9))
def test_seeds_are_read_as_written(numbers, first, more):
    assert _seeds(numbers) == numbers
    assert _seeds(f"{first}-{first + more}") == list(range(first, first + more + 1))


def test_plans_survive_json():
    for one in plan({**GRID, "fit": {"trackers": [["tensorboard"]]}}):
        assert type(one).from_dict(json.loads(json.dumps(one.to_dict()))).name == one.name


def test_the_grids_of_the_docs_can_be_planned(here, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text()
    grids = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(grids) == 1
    if "mini-x" not in embedded_names():
        monkeypatch.setattr("crosslift.runs.sweep_methods.locate", str)
    for grid in grids:
        (here / "docs.yaml").write_text(grid)
        assert len(plan(read_grid(here / "docs.yaml"))) == 12


@pytest.mark.parametrize("page", ["sweep.md", "report.md"])
def test_the_commands_of_the_docs_are_understood(page, monkeypatch):
    class Reached(Exception):
        pass

    def reached(*_, **__):
        raise Reached

    monkeypatch.setattr("crosslift.runs.sweep.sweep", reached)
    monkeypatch.setattr("crosslift.report.page.report", reached)
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    lines = re.findall(r"^crosslift (?:sweep|report) .*$", text, re.MULTILINE)
    assert lines
    for line in lines:
        with pytest.raises(Reached):
            cli(shlex.split(line)[1:])
