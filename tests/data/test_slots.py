import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data import load
from crosslift.data.slots import Malformed, Slot, move_slots, parse_slots, slot_tags, word_spans
from crosslift.errors import BadFile


def test_brackets_become_character_spans():
    text, slots = parse_slots("wake me up at [time : five am] [date : this week]")
    assert text == "wake me up at five am this week"
    assert slots == [Slot("time", 14, 21), Slot("date", 22, 31)]
    assert text[14:21] == "five am"


def test_a_colon_in_the_words_is_kept():
    assert parse_slots("at [time : 5:30]") == ("at 5:30", [Slot("time", 3, 7)])


@pytest.mark.parametrize("bad", ["a [b", "a b]", "[time five]", "[ : x]", "[x : ]", "[a : [b : c]]", "]["])
def test_malformed_brackets_are_refused(bad):
    with pytest.raises(Malformed):
        parse_slots(bad)


def test_slots_move_to_a_sentence_with_other_spaces():
    text, slots = parse_slots("把 [house_place : 大厅] 里的灯调暗")
    moved = move_slots(slots, text, "把大厅里的灯调暗")
    assert moved == [Slot("house_place", 1, 3)]
    with pytest.raises(Malformed, match="the annotated sentence reads"):
        move_slots(slots, text, "把客厅里的灯调暗")


def test_words_are_characters_in_chinese_and_white_space_runs_elsewhere():
    assert word_spans("打开bbc 新闻", "zh").tolist() == [[0, 1], [1, 2], [2, 5], [6, 7], [7, 8]]
    assert word_spans("アパートを", "ja-JP").tolist() == [[i, i + 1] for i in range(5)]
    assert word_spans("หรี่ ไฟ", "th").tolist() == [[0, 4], [5, 7]]
    assert word_spans(" five  am ", "en").tolist() == [[1, 5], [7, 9]]


def test_tags_begin_and_continue_a_slot():
    text, slots = parse_slots("set [time : five am] now")
    assert slot_tags(word_spans(text, "en"), slots) == ["O", "B-time", "I-time", "O"]


def test_adjacent_slots_of_one_name_both_begin():
    text, slots = parse_slots("[d : 今天] [d : 明天]")
    moved = move_slots(slots, text, "今天明天")
    assert slot_tags(word_spans("今天明天", "zh"), moved) == ["B-d", "I-d", "B-d", "I-d"]


def row(**keys):
    return json.dumps(keys, ensure_ascii=False) + "\n"


def test_json_lines_with_brackets_are_tagged_in_the_plain_sentence(tmp_path):
    path = tmp_path / "zh.jsonl"
    path.write_text(row(id="17", locale="zh-CN", utt="把大厅里的灯", annot_utt="把 [house_place : 大厅] 里的灯"))
    examples = load(path, language="zh", kind="tagging")
    assert examples.texts == ["把大厅里的灯"]
    assert examples.labels == [["O", "B-house_place", "I-house_place", "O", "O", "O"]]


def test_a_slot_inside_a_word_is_left_out_and_counted(tmp_path):
    path = tmp_path / "ko.jsonl"
    path.write_text(row(annot_utt="[date : 오늘] 날씨") + row(annot_utt="[date : 오늘]의 날씨"))
    examples = load(path, language="ko")
    assert (examples.ids, examples.skipped) == (["1"], {"slot begins or ends inside a word": 1})
    with pytest.raises(BadFile, match="line 2: slot begins or ends inside a word"):
        load(path, language="ko", strict=True)


def test_malformed_brackets_name_the_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(row(annot_utt="fine") + row(annot_utt="[time five]"))
    with pytest.raises(BadFile, match=r'line 2: malformed slot "\[time five\]": it is written \[name : words\]'):
        load(path)


words = st.text("ab天 ", min_size=1, max_size=6).filter(str.strip)


@given(st.lists(st.tuples(words, st.booleans()), min_size=1, max_size=6))
def test_slots_read_back_what_was_written(parts):
    annotated = " ".join(f"[s : {words.strip()}]" if slot else words.strip() for words, slot in parts)
    text, slots = parse_slots(annotated)
    assert text == " ".join(words.strip() for words, _ in parts)
    assert [text[s.start : s.end] for s in slots] == [words.strip() for words, slot in parts if slot]
    for language in ("en", "zh"):
        spans = word_spans(text, language)
        tags = slot_tags(spans, slots)
        assert tags is not None
        starts = [start for (start, _), tag in zip(spans.tolist(), tags, strict=True) if tag[0] == "B"]
        assert starts == [slot.start for slot in slots]
