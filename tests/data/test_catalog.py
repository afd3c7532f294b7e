import pytest

from crosslift.data import catalog, load
from crosslift.data.catalog import CATALOG
from crosslift.data.columns import table_examples
from crosslift.data.draft import Reading
from crosslift.data.hub import read_hub
from crosslift.data.public_sets import ALIASES
from crosslift.errors import BadFile, BadInput

XNLI = "id\tlabel\tgenre\tlang\tpremise\thypothesis\n" + "".join(
    f"test-{row:04d}\tneutral\tfiction\t{language}\t{language} premise {(row - 1) // 3}\tno {row}\n"
    for language in ("de", "en")
    for row in range(1, 7)
)


def put(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def message(*arguments, **options):
    with pytest.raises(BadInput) as error:
        catalog.load(*arguments, **options)
    return str(error.value)


def test_every_set_says_what_it_is():
    assert {"xnli", "pawsx", "sib200", "panx", "xquad", "ntrex", "massive-slots", "demo-qa"} <= set(CATALOG)
    for name, dataset in CATALOG.items():
        assert dataset.name == name
        assert dataset.licence
        assert dataset.source
        assert len(set(dataset.labels)) == len(dataset.labels)
        assert dataset.metric or dataset.kind in ("text", "bitext")
    assert set(ALIASES.values()) <= set(CATALOG)


def test_labels_are_in_fixed_order():
    assert CATALOG["xnli"].labels == ("contradiction", "entailment", "neutral")
    assert CATALOG["pawsx"].labels == ("0", "1")
    assert len(CATALOG["massive-intent"].labels) == 60
    assert len(CATALOG["massive-scenario"].labels) == 18
    assert len(CATALOG["xsid-intent"].labels) == 18


def test_xnli_rows_share_ids_across_languages_and_groups_by_premise(tmp_path):
    put(tmp_path, "xnli/xnli.test.tsv", XNLI)
    german, english = (catalog.load("xnli", code, "test", root=tmp_path) for code in ("de", "en"))
    assert german.parallel_ids == english.parallel_ids == [f"test-{row:04d}" for row in range(1, 7)]
    assert german.groups == ["premise-0001"] * 3 + ["premise-0002"] * 3
    assert german.texts[0] == "de premise 0"
    assert german.name == "xnli"


def test_the_folder_comes_from_argument_variable_or_working_directory(tmp_path, monkeypatch):
    put(tmp_path, "data/xnli/xnli.test.tsv", XNLI)
    monkeypatch.delenv("CROSSLIFT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert len(catalog.load("xnli", "de", "test")) == 6
    monkeypatch.chdir("/")
    monkeypatch.setenv("CROSSLIFT_DATA", str(tmp_path / "data"))
    assert len(catalog.load("xnli", "de", "test")) == 6
    with pytest.raises(BadInput, match="There is no data folder"):
        catalog.load("xnli", "de", "test", root=tmp_path / "no")


def test_own_codes_and_split_aliases_are_accepted(tmp_path):
    put(tmp_path, "sib200/deu_Latn/dev.tsv", 'index_id\tcategory\ttext\n5\ttravel\t"Er sagte ""ja"""\n')
    for code in ("de", "deu_Latn", "DEU_latn"):
        examples = catalog.load("sib200", code, "validation", root=tmp_path)
        assert (examples.language, examples.ids, examples.texts) == ("de", ["5"], ['Er sagte "ja"'])
        assert examples.parallel_ids == ["5"]


def test_labels_outside_the_list_are_refused(tmp_path):
    put(tmp_path, "xnli/xnli.test.tsv", XNLI.replace("0001\tneutral\tfiction\tde", "0001\tneutrall\tfiction\tde"))
    assert 'line 2: label "neutrall" is not one of contradiction, entailment, neutral.' in message(
        "xnli", "de", "test", root=tmp_path
    )


def test_placeholder_rows_of_pawsx_are_left_out_and_counted(tmp_path):
    rows = "id\tlabel\tlang\tsentence1\tsentence2\nd1\t1\tde\ta\tb\nd2\t0\tde\tNS\tb\nd3\t0\tde\ta\t\n"
    put(tmp_path, "pawsx/pawsx.dev.tsv", rows)
    examples = catalog.load("pawsx", "de", "dev", root=tmp_path)
    assert examples.parallel_ids == ["d1"]
    assert examples.skipped == {"placeholder instead of a sentence": 1, "empty text": 1}


def conll(*sentences):
    blocks = []
    for text, *comments in sentences:
        blocks.append("".join(f"# {comment}\n" for comment in (f"text = {text}", "intent = PlayMusic", *comments)))
        blocks.append("".join(f"{i}\t{w}\tPlayMusic\tO\n" for i, w in enumerate(text.split(), start=1)) + "\n")
    return "".join(blocks)


def test_xsid_rows_are_parallel_to_english_rows(tmp_path):
    put(tmp_path, "xsid/en.valid.conll", conll(["play it"], ["stop"], ["play it"]))
    put(tmp_path, "xsid/ja.valid.conll", conll(["再生"]))
    bavarian = conll(
        ["aus", "text-en = stop"],
        ["spui", "text-en = play it"],
        ["no", "text-en = what"],
        ["spuis", "text-en = play it"],
    )
    put(tmp_path, "xsid/de-ba.valid.conll", bavarian)
    put(tmp_path, "xsid/no.valid.conll", conll(["stopp", "id = 2/11"], ["spel", "id = 1/3"]))

    def parallel(code):
        return catalog.load("xsid", code, "dev", root=tmp_path).parallel_ids

    assert parallel("en") == ["1", "2", "3"]
    assert parallel("ja") == ["1"]
    assert parallel("de-ba") == ["2", "1", "only-de-ba-3", "3"]
    assert parallel("no") == ["2", "1"]
    assert catalog.load("xsid-slots", "no", "dev", root=tmp_path).ids == ["2/11", "1/3"]
    (tmp_path / "xsid/en.valid.conll").unlink()
    with pytest.raises(BadFile, match=r"needs the English file beside it, en\.valid\.conll"):
        parallel("de-ba")


def test_ntrex_groups_are_documents(tmp_path):
    put(tmp_path, "ntrex/ntrex.de.txt", "Eins\nZwei\n")
    put(tmp_path, "ntrex/DOCUMENT_IDS.tsv", "bbc.1\nbbc.2\n")
    examples = catalog.load("ntrex", "de", root=tmp_path)
    assert (examples.groups, examples.parallel_ids) == (["bbc.1", "bbc.2"], ["1", "2"])
    put(tmp_path, "ntrex/DOCUMENT_IDS.tsv", "bbc.1\n")
    with pytest.raises(BadFile, match="has 2 lines, but there are 1 document ids"):
        catalog.load("ntrex", "de", root=tmp_path)


def test_bitext_pairs_are_english_with_the_language_asked_for(tmp_path):
    put(tmp_path, "bitext/en-de.tsv", "Yes\tJa\ttatoeba\n")
    examples = catalog.load("bitext", "de", "train", root=tmp_path)
    assert (examples.language, examples.pair_language, examples.pairs) == ("en", "de", ["Ja"])


def test_gold_alignments_have_their_own_loader(tmp_path):
    put(tmp_path, "wordalign/en-fr.test.tsv", "a\tb\t0-0\n")
    assert catalog.load_gold("en-fr", root=tmp_path)[0].sure == {(0, 0)}
    assert "Use load_gold" in message("wordalign", "en-fr", "test", root=tmp_path)
    with pytest.raises(BadInput, match="wordalign has no dev split in en-fr"):
        catalog.load_gold("en-fr", "dev", root=tmp_path)


def test_mistakes_in_names_are_answered_with_the_nearest(tmp_path):
    assert 'The catalog has no set "pawx". Did you mean "pawsx"?' in message("pawx")
    assert 'xnli has no language "dee". Did you mean "de"?' in message("xnli", "dee", "test")
    assert "xnli has 15 languages: ar, bg" in message("xnli", None, "test")
    assert 'xnli has no split "tset". Did you mean "test"?' in message("xnli", "de", "tset")
    assert "xnli has several splits: dev, test, train." in message("xnli", "de")


def test_what_is_nowhere_says_how_to_set_the_folder(tmp_path):
    put(tmp_path, "xsid/de.test.conll", conll(["spiel"]))
    text = message("xsid", "de", "train", root=tmp_path)
    assert text.startswith(f"xsid-intent has no train split in de below {tmp_path} (there are test).")
    assert text.endswith("Set CROSSLIFT_DATA to the folder that holds xsid/.")


def test_what_is_not_on_disk_is_tried_on_the_hub(tmp_path):
    pytest.importorskip("datasets")
    text = message("xnli", "de", "test", root=tmp_path)
    assert f'xnli has no test split in de below {tmp_path}. "facebook/xnli" cannot be read from the hub: ' in text
    assert text.endswith("Set CROSSLIFT_DATA to the folder that holds xnli/.")


def test_rows_of_the_datasets_library_get_class_names(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"])),
            "label": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    rows = {"tokens": [["Ann", "ran"]] * 2, "ner_tags": [[1, 0]] * 2, "label": [1, -1]}
    (tmp_path / "set").mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "set" / "train.parquet")
    table = read_hub(str(tmp_path / "set"), None, "train")
    assert table.columns["label"] == ["yes", None]
    tagged = table_examples(table, Reading(kind="tagging", language="en"))
    assert tagged.words(0) == ["Ann", "ran"]
    assert tagged.labels == [["B-PER", "O"]] * 2


def test_options_that_the_catalog_settles_are_refused(tmp_path):
    put(tmp_path, "xnli/xnli.test.tsv", XNLI)
    options = {"language": "de", "split": "test", "root": tmp_path}
    with pytest.raises(BadInput, match="xnli is a classification set, not tagging"):
        load("xnli", kind="tagging", **options)
    with pytest.raises(BadInput, match="The columns of xnli are known"):
        load("xnli", columns={"text": "premise"}, **options)
    assert len(load("xnli", limit=2, **options)) == 2


def test_the_list_says_where_each_set_is(tmp_path):
    put(tmp_path, "ntrex/ntrex.de.txt", "Eins\n")
    rows = {row["name"]: row for row in catalog.available(tmp_path)}
    assert rows["ntrex"] == {
        "name": "ntrex",
        "kind": "text",
        "languages": "de",
        "splits": "test",
        "where": str(tmp_path),
    }
    assert rows["mlqa"]["where"] == "hub: facebook/mlqa"
    assert rows["bitext"]["where"] == rows["bitext"]["languages"] == ""
    assert rows["demo-intent"]["where"] == "inside crosslift"


def test_demo_sets_load_from_inside():
    english = catalog.load("demo-intent", "en", "dev")
    assert english.kind == "classification"
    assert len(english)
    assert catalog.load("demo-intent", "de", "unlabelled").labels is None
    pairs = catalog.load("demo-intent", "de", "parallel")
    assert (pairs.kind, pairs.language, pairs.pair_language) == ("bitext", "en", "de")
    assert "Which language and split of demo-slots?" in message("demo-slots")


def test_wishes_hold_for_demo_sets_too():
    few = load("demo-intent", language="en", split="test", limit=3, unlabelled=True, kind="classification")
    assert (len(few), few.labels) == (3, None)
    with pytest.raises(BadInput, match="demo-intent is a classification set, not qa"):
        load("demo-intent", language="en", split="test", kind="qa")


def test_demo_sets_say_which_languages_and_splits_they_have():
    assert "th" in catalog.languages_of("demo-intent", "test")
    assert "tr" in catalog.languages_of("demo-nli", "test")
    assert "tr" not in catalog.languages_of("demo-nli", "train")
    assert catalog.splits_of("demo-nli", "tr") == ["test"]
    assert set(catalog.languages_of("demo-qa")) == {"de", "en", "es", "ru", "sw", "zh"}


def test_the_parallel_view_of_a_demo_set_holds_its_own_sentences_once():
    pairs = catalog.load("demo-nli", "de", "parallel")
    english = catalog.load("demo-nli", "en", "train")
    assert set(pairs.texts) == set(english.texts) | set(english.pairs)
    assert len(set(pairs.texts)) == len(pairs)
    premise = english.texts[0]
    german = catalog.load("demo-nli", "de", "train").texts[0]
    assert pairs.pairs[list(pairs.texts).index(premise)] == german
