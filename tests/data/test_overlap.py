from pathlib import Path

import pytest

from crosslift.data import catalog
from crosslift.data.files import read_lines
from crosslift.data.overlap import EvaluationText, normalised, overlapping
from crosslift.data.pairs import read_pairs

SENTENCE = "The quick brown fox jumps over the very lazy dog today."


def evaluation(texts, language="en"):
    found = EvaluationText()
    found.add(texts, language)
    return found


def test_equal_lines_are_found_whatever_their_case_marks_and_width():
    known = evaluation(["Wake me up, please!"])
    assert known.holds("ｗake ME up – please", "en")
    assert not known.holds("Wake me up", "en")


def test_eight_words_in_common_are_found_and_seven_are_not():
    known = evaluation([SENTENCE])
    assert known.holds("He says the quick brown fox jumps over the very bad cat", "en")
    assert not known.holds("He says the quick brown fox jumps over the dog", "en")


def test_twenty_characters_in_common_are_found_where_there_are_no_spaces():
    text = "今天的天气非常好所以我们决定一起去公园散步吧"
    known = evaluation([text], "zh")
    assert known.holds("他说：" + text[:20] + "。真的吗", "zh")
    assert not known.holds("他说：" + text[:19] + "。真的吗", "zh")


def test_short_lines_alone_give_nothing_away():
    known = evaluation(["Yes, sure."])
    assert not known.holds("Yes, sure.", "en")


def test_lines_are_reported_with_their_numbers():
    known = evaluation([SENTENCE])
    assert overlapping(["nothing here", SENTENCE.upper()], "en", known) == [(2, SENTENCE.upper())]


def test_words_are_folded_and_characters_split_where_there_are_no_spaces():
    assert normalised("It’s ＯＫ, no?", "en") == ["it", "s", "ok", "no"]
    assert normalised("你好，世界", "zh") == ["你", "好", "世", "界"]


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de", "th", "zh", "sw", "hi"])
def test_no_evaluation_text_is_in_the_pretraining_text(shared, language):
    known = EvaluationText()
    root = shared / "data"
    for name in ("ntrex", "sib200", "massive-intent", "xsid-intent", "panx", "xnli", "xquad"):
        for split in ("dev", "test"):
            if split in catalog.splits_of(name, root=root) and language in catalog.languages_of(name, split, root):
                examples = catalog.load(name, language, split, root=root)
                known.add([*examples.texts, *(examples.pairs or ())], language)
    assert len(known.stretches) > 1000
    folder = shared / "pretraining"
    lines = read_lines(folder / f"text-{language}.txt.xz")
    for file in sorted(folder.glob("pairs-*.txt.xz")):
        for code, english, other in read_pairs(file):
            if language == "en":
                lines.append(english)
            elif code == language:
                lines.append(other)
    found = {line for _, line in overlapping(dict.fromkeys(lines), language, known)}
    # The few lines that are there ("How are you?") are excluded by name when the embedded encoders are trained.
    assert found <= set(read_lines(Path(__file__).parents[2] / "benchmarks" / "pretraining-excluded.txt"))
