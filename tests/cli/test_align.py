import json

import pytest

from crosslift.cli import run
from tests.align.test_statistical import toy


@pytest.fixture
def pairs(tmp_path):
    source, target, links = toy(150)
    rows = [f"{' '.join(s)}\t{' '.join(t)}" for s, t in zip(source, target, strict=True)]
    rows[4] = "\t" + rows[4].split("\t")[1]  # an empty side
    rows[6] = "w1 w2\tw1 w2"  # a copy
    file = tmp_path / "a.tsv"
    file.write_text("\n".join(rows) + "\n")
    return file, links


def test_links_are_written_a_line_a_pair(pairs, tmp_path, capsys):
    file, links = pairs
    assert run(["align", str(file), "-l", "en-de", "-o", str(tmp_path / "links"), "--filter"]) == 0
    lines = (tmp_path / "links").read_text().split("\n")[:-1]
    assert len(lines) == 150
    assert lines[4] == lines[6] == ""
    assert lines[0] == " ".join(f"{i}-{j}" for i, j in links[0])
    shown = capsys.readouterr().err
    assert "148 pairs" in shown and "empty text: 1" in shown and "both sides are the same: 1" in shown


def test_scores_reasons_and_the_aligner_are_written_on_request(pairs, tmp_path, capsys):
    file, _ = pairs
    out = {name: tmp_path / name for name in ("links", "why.tsv", "dropped.tsv", "a.safetensors")}
    arguments = ["align", str(file), "--out", str(out["links"]), "--scores", "--explain", str(out["why.tsv"])]
    arguments += ["--dropped", str(out["dropped.tsv"]), "--save", str(out["a.safetensors"]), "--json"]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 148
    assert ":" in out["links"].read_text()
    assert (
        out["why.tsv"]
        .read_text()
        .startswith("pair\tside\tnumber\tword\tlinked\tlikeliest\tscore\tnone\n1\tsource\t0\t")
    )
    assert out["dropped.tsv"].read_text().split("\n")[1] == "7\tboth sides are the same\tw1 w2\tw1 w2"
    assert run(["align", str(file), "--aligner", str(out["a.safetensors"]), "-o", str(tmp_path / "new"), "-q"]) == 0
    assert len((tmp_path / "new").read_text().split("\n")) == 151


def test_a_tab_within_a_sentence_makes_no_column_of_the_pairs_left_out(tmp_path):
    (tmp_path / "a.en").write_text("one\ttwo\nyes\n")
    (tmp_path / "a.de").write_text("one\ttwo\nja\n")
    files = [str(tmp_path / name) for name in ("a.en", "a.de")]
    dropped = tmp_path / "dropped.tsv"
    assert run(["align", *files, "-o", str(tmp_path / "links"), "--dropped", str(dropped)]) == 0
    assert dropped.read_text().split("\n")[1] == "1\tboth sides are the same\tone two\tone two"


def test_links_go_to_the_screen_or_into_json(pairs, capsys):
    file, links = pairs
    first = " ".join(f"{i}-{j}" for i, j in links[0])
    assert run(["align", str(file), "-q"]) == 0
    assert capsys.readouterr().out.split("\n")[0] == first
    assert run(["align", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["alignment"][0] == first


def test_gold_links_are_scored(tmp_path, pairs, capsys):
    source, target, links = toy(80, seed=3)
    rows = [
        f"{' '.join(s)}\t{' '.join(t)}\t{' '.join(f'{i}-{j}' for i, j in found)}"
        for s, t, found in zip(source, target, links, strict=True)
    ]
    (tmp_path / "gold.tsv").write_text("\n".join(rows) + "\n")
    assert run(["align", str(pairs[0]), "--gold", str(tmp_path / "gold.tsv"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["pairs"] == 80 and scores["aer"] < 5
    assert run(["align", "--gold", str(tmp_path / "gold.tsv")]) == 0
    assert "AER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "There is nothing to align"),
        (["a.tsv", "-l", "en"], '--languages takes two codes such as en-de, not "en"'),
        (["a.tsv", "-l", "en-ru"], "a.tsv, line 1: this is not ru"),
        (["a.tsv", "--symmetrise", "grow"], 'There is no symmetrisation "grow"'),
        (["a.tsv", "--aligner", "links"], "links, line 2: link 9-0 points past the end"),
        (["a.tsv", "--aligner", "short"], "short: has 1 lines for 2 sentence pairs"),
        (["a.tsv", "b.txt"], "b.txt, line 3: the files part here"),
        (["a.tsv", "--aligner", "nosuch.links"], "nosuch.links: there is no such file"),
        (["a.tsv", "--limit", "0"], "--limit"),
        (["a.tsv", "--scores", "--aligner", "good", "-o", "out"], '"good" gives no scores'),
        (["a.tsv", "--save", "x", "--aligner", "good", "-o", "out"], "cannot be saved"),
        (["a.tsv", "--gold", "a.tsv", "-o", "out"], "--out writes nothing with --gold"),
        (["a.tsv", "--gold", "a.tsv", "--dropped", "out"], "--dropped writes nothing with --gold"),
        (["a.tsv", "--gold", "a.tsv", "--scores"], "--scores writes nothing with --gold"),
        (["a.tsv", "--save", "out"], "--save out: a saved aligner is known by its ending"),
        (["a.tsv", "--aligner", "good", "--symmetrise", "union"], "--symmetrise union changes nothing"),
        (["a.tsv", "--aligner", "m", "--symmetrise", "union", "--method", "itermax"], "union changes nothing"),
        (["a.tsv", "--aligner", "m", "--threshold", "0.1"], "--threshold is of --method softmax alone"),
        (["a.tsv", "--rouns", "3"], "Unknown option --rouns. Did you mean --rounds?"),
        (["a.tsv", "--rounds", "three"], "rounds"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, monkeypatch, capsys, arguments, expected):
    monkeypatch.chdir(tmp_path)
    files = {"a.tsv": "a cat\teine Katze\nyes\tja\n", "links": "0-0\n9-0\n", "short": "0-0\n", "good": "0-0\n0-0\n"}
    for name, text in (files | {"b.txt": "a\nb\nc\n"}).items():
        (tmp_path / name).write_text(text)
    assert run(["align", *arguments]) == 2
    assert expected in capsys.readouterr().err.split("\n")[0]
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_to_is_named(pairs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(["align", str(pairs[0]), "-o", str(tmp_path / "file" / "links")]) == 1
    assert "links could not be written" in capsys.readouterr().err
