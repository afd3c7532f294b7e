"""The gate, replayed on recorded mistakes: what it leaves out never changes IGAP."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.measure.igap import Band, Errors, bands, gap_resamples, igaps, joined
from crosslift.runs.gated import Gate


class Recorded:
    """Stands for a tokenised set: the "model" is the number of a checkpoint, whose mistakes are known."""

    def __init__(self, language, mistakes):
        self.mistakes = mistakes  # (checkpoints, items)
        self.examples = SimpleNamespace(language=language)

    def __len__(self):
        return self.mistakes.shape[1]

    def run(self, model, items, passes):
        passes.texts += len(items)
        passes.calls += 1
        wrong = self.mistakes[model.number, items]
        return wrong, np.where(wrong, -1.0, 1.0)


def replay(source, targets, asked, whole=False, candidates=None, rate=0.0):
    """Return the table that a gate makes of recorded mistakes, and what it spent."""
    gate = Gate(
        Recorded("en", source),
        {language: Recorded(language, mistakes) for language, mistakes in targets.items()},
        asked, whole=whole, candidates=candidates, seed=1, rate=rate,
    )  # fmt: skip
    for number in range(len(source)):
        gate.look(SimpleNamespace(number=number, eval=lambda: None), number + 1)
    looked = None if whole else tuple(asked)
    table = Errors("s", "en", tuple(targets), gate.items, tuple(gate.checkpoints), (), looked, candidates)
    return table, gate.passes


def scores(table, asked, candidates=None):
    found = [{t: score.to_dict() for t, score in igaps(table, band, candidates).items()} for band in asked]
    if table.candidates is not None:  # a gate with all its candidates counts no further
        for by_target in found:
            for score in by_target.values():
                del score["qualifying"]
    return found


def course(draw, checkpoints, items, start, end, churn):
    """Mistakes of a model in training: items get learnt one after another, and some are forgotten again."""
    rate = np.linspace(start, end, checkpoints)[:, None]
    hard = np.sort(draw.random(items))[None, :]
    flips = draw.random((checkpoints, items)) < churn
    return (hard < rate) ^ flips


@given(
    seed=st.integers(0, 10**6),
    items=st.integers(3, 150),
    checkpoints=st.integers(1, 14),
    errors=st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.15, 0.2, 0.4]), min_size=1, max_size=4, unique=True),
    epsilon=st.sampled_from([0.01, 0.05, 0.2]),
    candidates=st.none() | st.integers(1, 4),
    churn=st.sampled_from([0.0, 0.02, 0.3]),
)
@settings(max_examples=150, deadline=None)
def test_a_gated_table_has_the_scores_of_the_exhaustive_one(
    seed, items, checkpoints, errors, epsilon, candidates, churn
):
    draw = np.random.default_rng(seed)
    source = course(draw, checkpoints, items, draw.random(), 0.0, churn / 4)
    targets = {t: course(draw, checkpoints, items, 0.6, draw.random() / 2, churn) for t in ("de", "sw", "th")}
    asked = bands(errors, epsilon)
    gated, spent = replay(source, targets, asked, candidates=candidates)
    whole, all_of_it = replay(source, targets, asked, whole=True, candidates=candidates)
    assert scores(gated, asked) == scores(whole, asked)
    # Equal numbers of candidates are taken from gated tables afterwards, so every prefix must be exact.
    for first in range(1, 5):
        assert scores(gated, asked, first) == scores(whole, asked, first)
    assert spent.texts <= all_of_it.texts == 4 * items * checkpoints


@given(
    seed=st.integers(0, 10**6),
    items=st.integers(3, 90),
    checkpoints=st.integers(1, 12),
    rates=st.integers(2, 3),
    asked=st.lists(
        st.builds(Band, st.sampled_from([0.0, 0.05, 0.1, 0.3]), st.sampled_from([0.001, 0.05, 0.1, 0.4])),
        min_size=1, max_size=4, unique=True,
    ),
    candidates=st.none() | st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_rates_that_are_pooled_and_bands_that_overlap_change_nothing(
    seed, items, checkpoints, rates, asked, candidates
):
    draw = np.random.default_rng(seed)
    gated, whole = [], []
    for rate in range(1, rates + 1):
        # Few items and coarse courses: many checkpoints tie, within a run and between runs.
        source = course(draw, checkpoints, items, 0.5, 0.0, 0.02)
        targets = {t: course(draw, checkpoints, items, 0.6, 0.3, 0.05) for t in ("de", "sw")}
        for tables, all_of_it in ((gated, False), (whole, True)):
            tables.append(replay(source, targets, asked, whole=all_of_it, candidates=candidates, rate=float(rate))[0])
    ours, theirs = joined(gated), joined(whole)
    assert scores(ours, asked) == scores(theirs, asked)
    for first in range(1, 4):
        assert scores(ours, asked, first) == scores(theirs, asked, first)
    for band in asked:  # the chosen checkpoints are the same ones, and what they get wrong was kept
        both = [gap_resamples(table, band, samples=3) for table in (ours, theirs)]
        assert {t: drawn.tolist() for t, drawn in both[0].items()} == {t: d.tolist() for t, d in both[1].items()}


def test_a_checkpoint_outside_every_band_is_given_up_after_a_few_items():
    source = np.ones((1, 1000), dtype=bool)
    table, spent = replay(source, {"de": source}, bands([0.0], 0.001))
    assert spent.texts == 32
    assert table.checkpoints[0].wrong is None and not table.checkpoints[0].translated


def test_a_checkpoint_that_needs_every_item_left_to_be_wrong_is_not_given_up():
    source = np.ones((1, 100), dtype=bool)
    table, _ = replay(source, {"de": source}, bands([1.0], 0.001))
    assert igaps(table, table.asked[0])["de"].by_seed == {1: 0}


def test_items_that_were_wrong_come_first_at_the_next_checkpoint():
    source = np.zeros((2, 1000), dtype=bool)
    target = np.zeros((2, 1000), dtype=bool)
    target[:, 700:] = True  # the same mistakes twice: the second checkpoint is no better, and cannot be
    table, spent = replay(source, {"de": target}, bands([0.0], 0.001))
    assert spent.texts == 1000 + 1000 + 1000 + 300
    assert [dict(c.translated) for c in table.checkpoints] == [{"de": 300}, {}]


@pytest.mark.parametrize(("candidates", "times"), [(None, 5), (10, 10)])
def test_on_a_course_like_the_papers_far_fewer_texts_are_run(candidates, times):
    """14 targets, gaps of 10 to 36 points, a training error that falls to zero in the last third of the run."""
    draw = np.random.default_rng(0)
    checkpoints, items = 120, 500
    falling = np.clip(np.linspace(0.6, -0.2, checkpoints), 0, 1)[:, None]
    source = np.sort(draw.random(items))[None, :] < falling
    targets = {}
    for k in range(14):
        flips = draw.random((checkpoints, items)) < 0.01
        targets[f"t{k}"] = (draw.random(items)[None, :] < 0.1 + 0.02 * k) | (source ^ flips)
    asked = bands([0.0], 0.001)
    gated, spent = replay(source, targets, asked, candidates=candidates)
    whole, all_of_it = replay(source, targets, asked, whole=True, candidates=candidates)
    assert scores(gated, asked) == scores(whole, asked)
    assert all_of_it.texts > times * spent.texts


def test_mistakes_of_source_and_target_are_kept_for_intervals():
    source = np.array([[False, False, True, False]])
    target = np.array([[True, False, True, False]])
    table, _ = replay(source, {"de": target}, bands([0.0], 0.5))
    assert table.checkpoints[0].mistakes == {"de": [0, 2], "en": [2]}


@pytest.mark.parametrize("last", [True, False])
def test_the_end_of_a_run_is_evaluated_wholly_wherever_its_training_error_lies(last):
    mistakes = np.ones((1, 100), dtype=bool)
    gate = Gate(Recorded("en", mistakes), {"de": Recorded("de", mistakes)}, bands([0.0], 0.001), seed=1)
    model = SimpleNamespace(number=0, eval=lambda: None)
    gate.look(model, 10)
    if last:
        assert gate.last(model, 10).parallel == {"en": 100.0, "de": 100.0}
        assert gate.passes.texts == 200
    else:
        assert gate.end is None and gate.passes.texts == 32
