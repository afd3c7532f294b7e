"""The docs section is made from records alone, and so is the page of claims."""

import re
from pathlib import Path

import pytest

from crosslift.data.storage import write_json
from crosslift.reproduce.charts import chart
from crosslift.reproduce.comparison import Compared
from crosslift.reproduce.entries import entries, papers
from crosslift.reproduce.pages import write_pages


def invented(name, value=50.0):
    """A record as if every cell had been measured."""
    entry = entries()[name]
    width = len(entry.columns)
    rows = [
        Compared(
            row.name,
            list(row.paper),
            [value + place] * width,
            [0.5] * width,
            mean=value + place,
            baseline=row.baseline,
            difference=[1.0 * place] * width if row.baseline else [],
        ).to_dict()
        for place, row in enumerate(entry.rows)
    ]
    histogram = {"edges": [0.0, 1.0, 2.0], "related_share": [0.9, 0.1], "unrelated_share": [0.2, 0.8]}
    picture = {"words": ["a", "b"], "groups": ["x", "y"], "links": [0, 0], "x": [0.0, 1.0], "y": [0.0, 1.0]}
    first = f"{entry.rows[0].name} / {entry.columns[0].name}"
    return {
        "entry": name, "scale": "small", "models": {"main": "mini-x"}, "seeds": [1, 2], "runs": 3, "seconds": 1.0,
        "columns": [column.name for column in entry.columns], "languages": {}, "rows": rows, "english": {},
        "histograms": {first: histogram}, "pictures": {first: picture},
    }  # fmt: skip


def test_pages_without_any_record_say_so(tmp_path):
    files = write_pages(tmp_path / "none", tmp_path / "docs")
    assert [file.stem for file in files] == ["index", "claims", *papers()]
    text = (tmp_path / "docs" / "ear.md").read_text()
    assert text.count("Not run yet.") == 14 and "Lost: The second half of the table" in text
    assert "| + EAR | paper | 83.2 | 67.4 |" in text, "the paper's numbers need no run"
    claims = (tmp_path / "docs" / "claims.md").read_text()
    assert "0 hold, 0 do not hold" in claims and claims.count("**undecided**") >= 40


def test_every_link_between_the_pages_leads_to_a_heading(tmp_path):
    files = write_pages(tmp_path / "none", tmp_path / "docs")
    headings = {}
    for file in files:
        titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
        plain = [re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower() for title in titles]
        headings[file.name] = {re.sub(r"[-\s]+", "-", title) for title in plain}
    for file in files:
        for page, anchor in re.findall(r"\]\(([\w-]+\.md)#([^)]+)\)", file.read_text()):
            assert anchor in headings[page], f"{file.name}: {page}#{anchor}"


def test_a_table_shows_paper_and_ours_with_spread(tmp_path):
    write_json(tmp_path / "res" / "small" / "ear.table1.json", invented("ear.table1"))
    write_pages(tmp_path / "res", tmp_path / "docs")
    text = (tmp_path / "docs" / "ear.md").read_text()
    assert "| mBERT | paper | 80.8 | 64.3 |" in text
    assert "| mBERT | ours | 50.0 ± 0.5 |" in text
    assert "seeds 1, 2" in text and "Departures at scale small:" in text
    assert "Scale `small`, main = mini-x; seeds" in text
    index = (tmp_path / "docs" / "index.md").read_text()
    assert "| small | 135 of 135 |" in index


def test_the_average_is_over_the_columns_of_the_papers_beside_the_printed_one(tmp_path):
    found = invented("igap.table3")
    # Every language 50, the test accuracy, which is no target, 90; one language of Gaussian is missing.
    found["rows"][0]["ours"] = [50.0] * 14 + [90.0]
    found["rows"][1]["ours"] = [None] + [49.0] * 13 + [90.0]
    write_json(tmp_path / "res" / "small" / "igap.table3.json", found)
    write_pages(tmp_path / "res", tmp_path / "docs")
    lines = (tmp_path / "docs" / "igap.md").read_text().splitlines()
    assert [line.split(" | ")[-1] for line in lines if line.startswith("| Vanilla | ")][:2] == ["21.1 |", "50.0 |"]
    assert [line.split(" | ")[-1] for line in lines if line.startswith("| Gaussian | ours")] == ["– |"]


def test_the_papers_numbers_keep_their_decimals_and_a_record_without_cells_is_not_run(tmp_path):
    found = invented("ear.table6")
    for row in found["rows"]:
        row["ours"] = [None]
    write_json(tmp_path / "res" / "small" / "ear.table6.json", found)
    write_pages(tmp_path / "res", tmp_path / "docs")
    assert "| 0.25 | paper | 68.080 |" in (tmp_path / "docs" / "ear.md").read_text()
    index = (tmp_path / "docs" / "index.md").read_text()
    assert re.search(r"\[Table 6\]\(ear.*\| not yet \| – \|", index)


def test_a_record_that_still_lacks_runs_says_so(tmp_path):
    empty, part = invented("ear.table6"), invented("ear.table1")
    for row in empty["rows"]:
        row["ours"], row["missing"] = [None], {"XNLI": "not run yet"}
    part["rows"][1]["ours"][2], part["rows"][1]["missing"] = None, {"bg": "not run yet"}
    write_json(tmp_path / "res" / "small" / "ear.table6.json", empty)
    write_json(tmp_path / "res" / "small" / "ear.table1.json", part)
    write_pages(tmp_path / "res", tmp_path / "docs")
    text = (tmp_path / "docs" / "ear.md").read_text()
    assert text.count("Not run yet.") == 13, "a record without a cell is as none"
    assert "3 runs, of which some are still to be made." in text and "- empty: 1 of 135: not run yet" in text


def test_a_table_at_the_papers_scale_hides_neither_tables_nor_claims_of_another(tmp_path):
    ear = invented("ear.table1")
    ear["rows"][5] |= {"p_mean": 0.001, "baseline": "mBERT"}
    write_json(tmp_path / "res" / "small" / "ear.table1.json", ear)
    write_pages(tmp_path / "res", tmp_path / "docs")
    claim = next(
        line for line in (tmp_path / "docs" / "claims.md").read_text().splitlines() if "| EAR is better" in line
    )
    assert "**holds**" in claim and "at scale" not in claim
    write_json(tmp_path / "res" / "paper" / "ear.table2.json", invented("ear.table2"))
    empty = invented("ear.table1")
    for row in empty["rows"]:
        row["ours"] = [None] * 15
    write_json(tmp_path / "res" / "paper" / "ear.table1.json", empty)
    write_pages(tmp_path / "res", tmp_path / "docs")
    text = (tmp_path / "docs" / "claims.md").read_text()
    claim = next(line for line in text.splitlines() if "| EAR is better than plain fine-tuning on inference" in line)
    assert "**holds**" in claim and ") at scale `small`: " in claim
    assert "decided at scale `small` or `paper`" in text
    assert "| mBERT | ours | 50.0" in (tmp_path / "docs" / "ear.md").read_text()


@pytest.mark.parametrize("name", [name for name in entries() if "figure" in name])
def test_every_figure_is_drawn_as_svg_that_stands_by_itself(name):
    drawn = chart(entries()[name], invented(name))
    assert drawn.startswith('<svg xmlns="http://www.w3.org/2000/svg"') and "<style>" in drawn
    assert drawn.count("<svg ") == drawn.count("</svg>")


def test_a_page_shows_the_figure_says_what_it_is_of_or_that_there_is_none(tmp_path):
    write_json(tmp_path / "res" / "small" / "ear.figure3.json", invented("ear.figure3"))
    write_json(tmp_path / "res" / "small" / "ear.figure4.json", {**invented("ear.figure4"), "pictures": {}})
    write_pages(tmp_path / "res", tmp_path / "docs")
    text = (tmp_path / "docs" / "ear.md").read_text()
    assert "(pictures/ear.figure3.svg)" in text and "of the first seed; the numbers below" in text
    assert (tmp_path / "docs" / "pictures" / "ear.figure3.svg").exists()
    assert "(pictures/ear.figure4.svg)" not in text and text.count("There is no figure") == 1


def test_the_pages_of_the_docs_are_those_that_the_records_give(tmp_path):
    """Never by hand: whoever changes entries or records makes the pages again (crosslift reproduce --docs)."""
    root = Path(__file__).parents[2]
    made = write_pages(root / "benchmarks" / "results" / "reproduce", tmp_path)
    for file in made:
        assert file.read_text() == (root / "docs" / "reproduce" / file.name).read_text(), file.name
