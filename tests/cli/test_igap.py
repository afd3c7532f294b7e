"""`crosslift measure igap` and `rank`, on a tiny encoder and files of its own."""

import json

import pytest

from crosslift.cli import run
from crosslift.report.measured import measured_charts
from tests.runs.test_igap import encoder, sets  # noqa: F401  fixtures

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
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(words, said, encoder, files, capsys):  # noqa: F811
    data = str(files / "colours.{lang}.tsv")
    assert run(["measure", "igap", str(encoder), "-d", data, "-l", "en,de", "--seeds", "1", *words, *SHORT]) == 2
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
        (["--heat-maps", "maps", "--methods", "finetune,gaussian"], "--heat-maps are of one model and one method"),
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
