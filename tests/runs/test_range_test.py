"""The range test: the rate it chooses, and its picture."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from crosslift.runs.range_test import RisingRate, choose_rate, picture, smoothed


def test_the_rate_rises_by_equal_ratios_from_end_to_end():
    sweep = RisingRate(learning_rate=1e-1, lowest=1e-5)
    rates = [sweep.rate(step, 5) for step in range(5)]
    assert rates == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1])


def test_smoothing_is_unbiased_and_follows():
    assert smoothed([3.0, 3.0, 3.0]) == pytest.approx([3.0, 3.0, 3.0])
    assert smoothed([1.0, 0.0]) == pytest.approx([1.0, 0.09 / 0.19])


def test_a_quarter_of_the_rate_of_the_lowest_loss_is_chosen():
    rates = np.geomspace(1e-5, 1e-1, 100).tolist()
    losses = [1.0 if r < 1e-3 else (0.2 if r < 1e-2 else 50.0) for r in rates]
    chosen = choose_rate(rates, losses)
    assert 1e-3 / 4 < chosen < 1e-2 / 4 * 1.01
    assert choose_rate(rates, list(range(100))) == pytest.approx(1e-5)


def test_the_picture_is_an_image_with_both_curves_and_the_choice():
    rates = np.geomspace(1e-4, 1e-2, 20).tolist()
    tree = ElementTree.fromstring(picture(rates, [2.0 - i / 20 for i in range(20)], rates[10]))
    space = "{http://www.w3.org/2000/svg}"
    lines = tree.findall(f"{space}polyline")
    assert [len(line.get("points").split()) for line in lines] == [20, 20]
    assert any("chosen" in (text.text or "") for text in tree.findall(f"{space}text"))
