"""Every public set in the data folder loads, with the counts that its README states."""

from collections import Counter
from itertools import pairwise

import pytest

from crosslift.data import catalog, check_labels, check_parallel, cross, mixed
from crosslift.data.catalog import CATALOG

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def root(shared):
    return shared / "data"


def rows(examples):
    """Rows of the file: what was kept and what was left out (a left-out word is not a row)."""
    return len(examples) + sum(n for reason, n in examples.skipped.items() if reason != "empty word")


def load_all(name, split, root):
    found = {}
    for code in catalog.languages_of(name, split, root):
        examples = catalog.load(name, code, split, root=root)
        assert examples.language == ("en" if name == "bitext" else code)
        assert examples.kind == CATALOG[name].kind
        assert len(set(examples.ids)) == len(examples)
        assert (examples.parallel_ids is not None) == (CATALOG[name].parallel and name != "bitext")
        found[code] = examples
    return found


XSID = tuple(CATALOG["xsid-intent"].languages)


@pytest.mark.parametrize("name", ["xsid-intent", "xsid-slots"])
def test_xsid(root, name):
    dev = {code: rows(part) for code, part in load_all(name, "dev", root).items()}
    test_sets = load_all(name, "test", root)
    assert dev == dict.fromkeys(XSID, 300) | {"ja": 150, "no": 3300}
    assert {code: rows(part) for code, part in test_sets.items()} == dict.fromkeys(XSID, 500) | {
        "ja": 250,
        "no": 5500,
    }
    train = catalog.load(name, "en", "train", root=root)
    danish = catalog.load(name, "da", "projected-train", root=root)
    assert len(train) == len(danish) == 42_006
    assert train.parallel_ids == danish.parallel_ids
    assert len({text.casefold() for text in train.texts}) == 35_684


def test_xsid_labels_and_parallel_rows(root):
    english = {split: catalog.load("xsid-intent", "en", split, root=root) for split in ("train", "dev", "test")}
    assert [len(english[s].label_names()) for s in ("train", "dev", "test")] == [18, 15, 15]
    assert len(set(english["dev"].label_names()) | set(english["test"].label_names())) == 16
    assert english["train"].label_names() == tuple(sorted(CATALOG["xsid-intent"].labels))
    for split, found, no_differs in (("dev", 300, 0), ("test", 498, 22)):
        gold = dict(zip(english[split].parallel_ids, english[split].labels, strict=True))
        bavarian = catalog.load("xsid-intent", "de-ba", split, root=root)
        assert sum(id_ in gold for id_ in bavarian.parallel_ids) == found
        norwegian = catalog.load("xsid-intent", "no", split, root=root)
        pairs = zip(norwegian.parallel_ids, norwegian.labels, strict=True)
        assert sum(gold[id_] != label for id_, label in pairs) == no_differs
    german = catalog.load("xsid-intent", "de", "test", root=root)
    assert german.labels == english["test"].labels
    check_parallel([english["test"], german])


def slot_types(*sets):
    return {tag[2:] for part in sets for tag in part.label_names() if tag != "O"}


def test_xsid_slot_types(root):
    english = [catalog.load("xsid-slots", "en", split, root=root) for split in ("train", "dev", "test")]
    assert len(slot_types(english[0])) == 40
    assert len(slot_types(*english[1:])) == 34
    arabic = [catalog.load("xsid-slots", "ar", split, root=root) for split in ("dev", "test")]
    assert slot_types(*arabic) - slot_types(english[0]) == {"reference-part"}
    check_labels([english[0], *arabic], allow=[*CATALOG["xsid-slots"].unseen])
    danish = catalog.load("xsid-slots", "da", "projected-train", root=root)
    assert sum(orphans(tags) for tags in danish.labels) == 8405
    for part in (*english, *arabic):
        assert all(len(spans) == len(tags) for spans, tags in zip(part.spans, part.labels, strict=True))


def orphans(tags):
    """Inside tags that no tag of the same name precedes."""
    return sum(b[:2] == "I-" and a[2:] != b[2:] for a, b in pairwise(["O", *tags]))


def test_words_of_xsid_are_those_of_the_file(root):
    zh = catalog.load("xsid-slots", "zh", "dev", root=root)
    assert zh.texts[0] == "今天会下雨吗？"
    assert zh.words(0) == ["今天", "会", "下雨", "吗？"]
    en = catalog.load("xsid-slots", "en", "dev", root=root)
    assert (en.texts[0], en.words(0)[-2:]) == ("Is it going to rain today?", ["today", "?"])


def test_sib200(root):
    by_split = {split: load_all("sib200", split, root) for split in ("train", "dev", "test")}
    for split, count in (("train", 701), ("dev", 99), ("test", 204)):
        assert set(by_split[split]) == set(CATALOG["sib200"].languages)
        english = by_split[split]["en"]
        for part in by_split[split].values():
            assert len(part) == count
            assert part.parallel_ids == english.parallel_ids
            assert part.labels == english.labels
    labels = CATALOG["sib200"].labels
    assert [Counter(by_split["test"]["en"].labels)[label] for label in labels] == [51, 40, 30, 25, 22, 19, 17]
    assert [Counter(by_split["train"]["en"].labels)[label] for label in labels] == [176, 138, 102, 85, 77, 65, 58]
    hebrew = [text for part in by_split.values() for text in part["he"].texts]
    assert not any(text.startswith('"') and text.endswith('"') and '""' in text[1:-1] for text in hebrew)


@pytest.mark.parametrize(("split", "count"), [("dev", 2490), ("test", 5010)])
def test_xnli(root, split, count):
    found = load_all("xnli", split, root)
    assert len(found) == 15
    assert set(found) == set(CATALOG["xnli"].languages)
    check_parallel(list(found.values()))
    for part in found.values():
        assert len(part) == count
        assert set(Counter(part.labels).values()) == {count // 3}
        assert part.labels == found["en"].labels
        assert set(Counter(part.groups).values()) == {3}
        assert len(set(zip(part.groups, part.texts, strict=True))) == count // 3
    made = mixed(found["de"], found["en"], seed=1)
    assert len(made) == count


def test_mnli(root):
    train = catalog.load("mnli", "en", "train", root=root)
    dev = catalog.load("mnli", "en", "dev", root=root)
    indonesian = catalog.load("mnli", "id", "translated-train", root=root)
    assert [len(train), len(dev), len(indonesian)] == [15_000, 269, 6_000]
    assert set(Counter(train.labels).values()) == {5_000}
    assert set(Counter(indonesian.labels).values()) == {2_000}
    assert not set(train.texts) & set(dev.texts)


def test_panx(root):
    small = {"hi": (1000, 929), "ur": (1000, 944), "bn": (1000, 761), "ta": (1000, 965), "sw": (835, 926)}
    dev, test_sets = load_all("panx", "dev", root), load_all("panx", "test", root)
    assert len(dev) == 30
    for code in dev:
        assert (len(dev[code]), len(test_sets[code])) == small.get(code, (1000, 1000))
        assert all(any(tag != "O" for tag in tags) for tags in test_sets[code].labels)
    assert len(catalog.load("panx", "en", "train", root=root)) == 5000
    assert [sum(map(orphans, test_sets[code].labels)) for code in ("zh", "ja")] == [53, 48]
    assert " " not in "".join(test_sets["zh"].texts[:50])


def test_xquad_and_squad(root):
    found = load_all("xquad", "test", root)
    assert len(found) == 12
    for part in found.values():
        assert len(part) == 1190
        assert len(set(part.groups)) == 240
        assert part.parallel_ids == found["en"].parallel_ids
        assert all(part.pairs[i][a.start :].startswith(a.text) for i, gold in enumerate(part.labels) for a in gold)
    made = cross(found["en"], found["zh"])
    assert (len(made), made.language, made.pair_language) == (1190, "en", "zh")
    squad = catalog.load("squad", "en", "train", root=root)
    assert (len(squad), len(set(squad.groups))) == (3547, 800)


def test_ntrex(root):
    found = load_all("ntrex", "test", root)
    assert len(found) == 26
    for part in found.values():
        assert len(part) == 1997
        assert part.groups == found["en"].groups
    assert found["de"].groups[0] == "bbc.381790"


def test_pawsx(root):
    languages = ("en", "de", "es", "fr", "ja", "ko", "zh")
    dev, test_sets = load_all("pawsx", "dev", root), load_all("pawsx", "test", root)
    expected = dict(zip(languages, (2000, 1932, 1962, 1992, 1980, 1965, 1984), strict=True))
    assert {code: len(part) for code, part in dev.items()} == expected
    expected = dict(zip(languages, (2000, 1968, 1999, 1986, 1946, 1972, 1975), strict=True))
    assert {code: len(part) for code, part in test_sets.items()} == expected
    assert Counter(dev["en"].labels) == {"0": 1137, "1": 863}
    assert Counter(test_sets["en"].labels) == {"0": 1093, "1": 907}
    train = catalog.load("pawsx", "en", "train", root=root)
    assert Counter(train.labels) == {"0": 4745, "1": 3819}
    for part in test_sets.values():
        gold = dict(zip(test_sets["en"].parallel_ids, test_sets["en"].labels, strict=True))
        assert all(gold[i] == label for i, label in zip(part.parallel_ids, part.labels, strict=True))


@pytest.mark.parametrize(
    ("pair", "split", "count", "sure", "possible"),
    [
        ("en-fr", "test", 447, 4038, 13_400),
        ("ro-en", "test", 248, 6198, 0),
        ("ja-en", "test", 582, 13_556, 0),
        ("zh-en", "test", 450, 11_238, 178),
        ("en-cs", "test", 250, 4238, 0),
        ("en-hi", "test", 115, 1890, 0),
        ("en-sv", "test", 116, 2398, 0),
        ("en-ar", "pud-content", 400, None, 0),
        ("en-ko", "pud-content", 400, None, 0),
        ("en-it", "dev", 103, None, 0),
        ("en-it", "test", 243, None, 0),
        ("en-ru", "dev", 90, None, 0),
        ("en-ru", "test", 210, None, 0),
        *((f"en-{code}", "dev", 105, None, 0) for code in ("bg", "da", "es", "hu", "nl", "pt")),
        *((f"en-{code}", "test", 245, None, 0) for code in ("bg", "da", "es", "hu", "nl", "pt")),
    ],
)
def test_gold_alignments(root, pair, split, count, sure, possible):
    gold = catalog.load_gold(pair, split, root=root)
    assert len(gold) == count
    assert sure is None or sum(len(item.sure) for item in gold) == sure
    assert sum(len(item.possible) for item in gold) == possible
    assert all(not item.sure & item.possible for item in gold)


def test_bitext(root):
    found = load_all("bitext", "train", root)
    expected = dict.fromkeys(CATALOG["bitext"].languages, 5000)
    expected |= dict.fromkeys(("es", "ru", "de", "fr", "ar", "tr", "zh"), 10_000)
    expected |= {"hi": 8429, "vi": 6064, "sw": 8000, "yo": 5038}
    assert {code: len(part) for code, part in found.items()} == expected
    assert all((part.pair_language, part.skipped) == (code, {}) for code, part in found.items())


TRAINED = {"en", "de", "es", "fr", "pt", "it", "ru", "tr", "ar", "hi", "th", "vi", "id", "zh", "ja", "sw"}


@pytest.mark.parametrize("name", ["massive-intent", "massive-scenario", "massive-slots"])
def test_massive(root, name):
    english = {}
    for split, count in (("train", 11_514), ("train-1k", 1000), ("dev", 600), ("test", 2974)):
        found = load_all(name, split, root)
        languages = set(CATALOG[name].languages)
        assert set(found) == {"train": TRAINED, "train-1k": languages - {"en"}}.get(split, languages)
        english[split] = first = next(iter(found.values()))
        for part in found.values():
            assert (len(part), part.skipped) == (count, {})
            assert part.parallel_ids == first.parallel_ids
            assert name == "massive-slots" or part.labels == first.labels
    names = english["train"].label_names()
    if name == "massive-slots":
        assert len(slot_types(english["train"])) == 55
    else:
        assert len(names) == len(CATALOG[name].labels) == (60 if name == "massive-intent" else 18)
        assert set(names) == set(CATALOG[name].labels)
        assert len(english["test"].label_names()) == (59 if name == "massive-intent" else 18)
        assert len(english["train-1k"].label_names()) == len(names)


def test_slots_of_massive_stand_in_the_plain_sentence(root):
    zh = catalog.load("massive-slots", "zh", "dev", root=root)
    assert zh.texts[0] == "把大厅里的灯调暗"
    assert zh.labels[0] == ["O", "B-house_place", "I-house_place", "O", "O", "O", "O", "O"]


def test_every_file_of_the_folder_belongs_to_a_set(root):
    known = set()
    for dataset in CATALOG.values():
        for code in dataset.languages.values():
            known |= {pattern.format(code=code) for pattern in dataset.files.values()}
    found = {str(path.relative_to(root)).removesuffix(".xz") for path in root.rglob("*") if path.is_file()}
    apart = {"README.md", "ntrex/DOCUMENT_IDS.tsv", "sib200/labels.txt", "synonyms/counterfitted_neighbors.json"}
    assert found - known == apart
