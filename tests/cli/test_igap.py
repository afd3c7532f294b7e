"""`crosslift measure igap` and `rank`, on a tiny encoder and files of its own."""

import json

import pytest

from crosslift.cli import run
from crosslift.report.measured import measured_charts
from tests.runs.test_igap import encoder, evaluated, sets  # noqa: F401  fixtures

SHORT = ["--every", "2", "--epochs", "3", "--batch-size", "8", "--learning-rate", "5e-3", "--quiet"]


@pytest.fixture
def files(sets, tmp_path):  # noqa: F811
    for language, examples in sets.items():
        rows = zip(examples.ids, examples.texts, examples.labels, strict=True)
        lines = ["id\ttext\tlabel", *("\t".join(row) for row in rows)]
        (tmp_path / f"colours.{language}.tsv").write_text("\n".join(lines) + "\n")
        (tmp_path / f"plain.{language}.txt").write_text("\n".join(examples.texts) + "\n")
    return tmp_path


def test_igap_is_shown_by_target_with_its_checkpoints(encoder, files, capsys):  # noqa: F811
    data = str(files / "colours.{lang}.tsv")
    words = ["measure", "igap", str(encoder), "-d", data, "-l", "de,xx", "--seeds", "1,2", "--errors", "0.5,0"]
    assert run([*words, "--epsilon", "0.5", *SHORT]) == 0
    shown = capsys.readouterr().out
    assert "24 items, gold labels: IGAP at training error 0.5 to 1" in shown
    assert {"de", "xx", "min", "checkpoints"} <= set(shown.split())


def test_igap_speaks_json_and_draws_matrices(encoder, files, capsys):  # noqa: F811
    pytest.importorskip("vl_convert")
    data, maps = str(files / "colours.{lang}.tsv"), files / "maps"
    words = ["measure", "igap", str(encoder), "-d", data, "--source", "en,de", "-l", "en,de", "--seeds", "1"]
    assert run([*words, "--epsilon", "1.1", "--json", "--heat-maps", str(maps), *SHORT]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["igap"]) == {"from en", "from de"}
    assert (maps / "igap.svg").read_text().startswith("<svg")


def test_igap_is_written_where_the_report_finds_it_and_runs_are_kept_beside(encoder, files, capsys, monkeypatch):  # noqa: F811
    data, out = str(files / "colours.{lang}.tsv"), files / "runs" / "finetune"
    words = ["measure", "igap", str(encoder), "-d", data, "-l", "de", "--seeds", "1,2", "--epsilon", "1.1", *SHORT]
    assert run([*words, "--out", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    written = json.loads((out / "igap.json").read_text())
    assert written == shown
    (chart,) = measured_charts("finetune", {"igap": written})
    assert chart.title.startswith("Interlingual transfer gap")
    assert [file.name for file in out.iterdir() if file.is_file()] == ["igap.json"]
    monkeypatch.setattr("crosslift.runs.igap.train", lambda *_, **__: 1 / 0)  # nothing is run twice
    assert run([*words, "--out", str(out)]) == 0
    assert f"written   {out / 'igap.json'}" in capsys.readouterr().out


def test_each_share_of_noise_has_a_file_of_its_own(encoder, files):  # noqa: F811
    data, out = str(files / "colours.{lang}.tsv"), files / "out"
    words = ["measure", "igap", str(encoder), "-d", data, "-l", "de", "--seeds", "1", "--epsilon", "1.1", *SHORT]
    assert run([*words, "--out", str(out), "--noise", "0,0.5"]) == 0
    assert {file.name for file in out.glob("*.json")} == {"igap-noise-0.json", "igap-noise-0.5.json"}


def test_rank_needs_nothing_but_translated_lines(encoder, files, capsys):  # noqa: F811
    words = ["measure", "rank", str(encoder), "-p", str(files / "plain.{lang}.txt"), "-l", "de,fr,xx"]
    assert run([*words, "--seeds", "1", "--epsilon", "1.1", "--candidates", "1", *SHORT]) == 0
    shown = capsys.readouterr().out
    assert "random labels on 24 sentences, 1 seeds" in shown
    assert all(f"\n{language} " in shown for language in ("de", "fr", "xx"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--errors", "a"], "--errors takes numbers"),
        (["--methods", "finetun"], 'Did you mean "finetune"'),
        (["--errors", "2"], "E′ lies between 0 and 1"),
        (["--source", "en,de", "--extra", "x.tsv"], "--extra is in one language"),
        (["--source", "all", "--extra", "x.tsv"], "--extra is in one language"),
        (["--noise", "0,2"], "noise ratio lies between 0 and 1, not at 2"),
        (["--noise", "0,0.5", "--random-labels"], "leave out --noise"),
        (["--random-labels", "--held-out", "test"], "leave out --held-out"),
        (["--seeds", "3-1"], "one seed or more"),
        (["--epsilon", "inf"], "ε above 0, not at 0 and inf"),
        (["--held-out", "test"], 'colours.{lang}.tsv is taken whole; it has no part "test"'),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(words, said, encoder, files, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr("crosslift.runs.igap.train", lambda *_, **__: pytest.fail("something was trained"))
    data = str(files / "colours.{lang}.tsv")
    assert run(["measure", "igap", str(encoder), "-d", data, "-l", "en,de", "--seeds", "1", *SHORT, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--noise", "--errors"])
def test_a_list_of_numbers_without_any_is_refused(option, encoder, files, capsys):  # noqa: F811
    assert run(["measure", "igap", str(encoder), "-d", str(files / "colours.{lang}.tsv"), option, ""]) == 2
    assert f'{option} takes numbers such as 0.2,0.1,0, not "".' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "notes"], "notes is a file"),
        (["--heat-maps", "notes"], "notes is a file"),
        (["--heat-maps", "maps", "--methods", "finetune,gaussian"], "--heat-maps are of one model, one method"),
        (["--heat-maps", "maps", "--noise", "0,1"], "and one share of noise"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_trained(
    options,
    said,
    encoder,  # noqa: F811
    files,
    capsys,
    monkeypatch,
):
    monkeypatch.chdir(files)
    monkeypatch.setattr("crosslift.runs.igap.train", lambda *_, **__: pytest.fail("something was trained"))
    (files / "notes").write_text("")
    assert run(["measure", "igap", str(encoder), "-d", "colours.{lang}.tsv", *options]) == 2
    assert said in capsys.readouterr().err
    assert not (files / "maps").exists()


def test_held_out_files_are_scored_apart_and_every_checkpoint_may_be_run_wholly(encoder, files, sets, capsys):  # noqa: F811
    for language, examples in sets.items():
        label = examples.labels[0]
        lines = ["id\ttext\tlabel", *(f"{n}\t{t}\t{label}" for n, t in zip(examples.ids, examples.texts, strict=True))]
        (files / f"later.{language}.tsv").write_text("\n".join(lines) + "\n")
    words = ["measure", "igap", str(encoder), "-d", str(files / "colours.{lang}.tsv"), "-l", "de", "--seeds", "1"]
    words += ["--held-out", str(files / "later.{lang}.tsv"), "--whole", "--json", "--epsilon", "1.1", *SHORT]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    (parts,) = (row["de"] for row in found["decomposition"].values())
    assert parts["intralingual"] != 0  # the same texts with other labels: not the training items once more
    assert all("one_checkpoint" in band for band in next(iter(found["igap"].values())))


def test_pictures_without_what_draws_them_are_refused_before_anything_is_trained(encoder, files, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr("crosslift.measure.ranking.find_spec", lambda _: None)
    monkeypatch.setattr("crosslift.runs.igap.train", lambda *_, **__: pytest.fail("something was trained"))
    words = ["measure", "igap", str(encoder), "-d", str(files / "colours.{lang}.tsv"), "--heat-maps", str(files / "m")]
    assert run(words) == 2
    assert "vl-convert" in capsys.readouterr().err


def test_rank_says_how_well_a_run_is_foretold(encoder, files, tmp_path, capsys):  # noqa: F811
    gold = evaluated(tmp_path / "gold", {"en": 99.0, "de": 80.0, "fr": 70.0})
    words = ["measure", "rank", str(encoder), "-p", str(files / "plain.{lang}.txt"), "-l", "de,fr,xx", "--seeds", "1"]
    words += ["--epsilon", "1.1", "--candidates", "1", "--gold", str(gold), *SHORT]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "order of 2 languages" in shown and "pairs right" in shown
    assert run([*words, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["accuracy"]) == {"igap", "l2", "dot", "cosine"}
    assert run([*words, "-l", "de,xx"]) == 2
    assert "a ranking needs two" in capsys.readouterr().err
    assert run([*words[:7], "--gold-data", "set/test"]) == 2
    assert "name the run with --gold" in capsys.readouterr().err


def test_a_run_without_scores_to_foretell_is_refused_before_anything_is_trained(
    encoder,  # noqa: F811
    files,
    tmp_path,
    capsys,
    monkeypatch,
):
    monkeypatch.setattr("crosslift.runs.igap.train", lambda *_, **__: pytest.fail("something was trained"))
    gold = evaluated(tmp_path / "gold", {"en": 99.0, "de": 80.0, "sw": 70.0, "th": 60.0})
    words = ["measure", "rank", str(encoder), "-p", str(files / "plain.{lang}.txt"), "--gold", str(gold), *SHORT]
    assert run(words) == 2  # of all languages of the text, de alone
    assert "a ranking needs two or more of de, fr, xx" in capsys.readouterr().err


def test_correlations_that_are_not_defined_are_plain_json(encoder, files, tmp_path, capsys):  # noqa: F811
    gold = evaluated(tmp_path / "gold", {"de": 80.0, "fr": 80.0})
    words = ["measure", "rank", str(encoder), "-p", str(files / "plain.{lang}.txt"), "-l", "de,fr", "--seeds", "1"]
    assert run([*words, "--epsilon", "1.1", "--candidates", "1", "--gold", str(gold), "--json", *SHORT]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["accuracy"]["igap"] == {"tdr": 0.0, "spearman": None, "kendall": None}
