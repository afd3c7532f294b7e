"""IGAP on hand-made tables: bands, ties, empty bands, several seeds and learning rates, equal candidates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.errors import BadInput
from crosslift.measure.igap import (
    Band,
    Checkpoint,
    Errors,
    Final,
    bands,
    curve,
    decompose,
    equal_candidates,
    gap_resamples,
    igap,
    igaps,
    interval,
    joined,
    joint_igap,
    mean_igap,
)
from crosslift.measure.igap_result import IgapResult

ZERO = Band(0.0, 0.1)


def table(*rows, items=100, name="system", targets=("de", "sw"), **more):
    """Rows are (seed, rate, step, wrong in training, wrong in de, wrong in sw)."""
    checkpoints = tuple(
        Checkpoint(seed, rate, step, wrong, dict(zip(targets, translated, strict=False)))
        for seed, rate, step, wrong, *translated in rows
    )
    return Errors(name, "en", targets, items, checkpoints, **more)


@pytest.mark.parametrize(
    ("error", "epsilon", "items", "inside"),
    [
        (0, 0.001, 997, [0]),
        (0, 0.001, 2490, [0, 1, 2]),
        (0, 0.001, 2000, [0, 1]),
        (0.1, 0.025, 40, [4]),  # 5 / 40 - 0.1 is 0.025, which floats take for less
        (0.2, 0.1, 10, [2]),
        (0.3, 0.1, 10, [3]),
        (0.95, 0.1, 10, [10]),
        (0.01, 0.001, 50, []),
        (0.1 + 0.2, 0.1, 10, [3]),  # computed ends: 0.30000000000000004 is meant to be 0.3
        (0.0, 0.1 + 0.2, 10, [0, 1, 2]),
        (2 / 3, 0.1, 30, [20, 21, 22]),
    ],
)
def test_a_band_holds_its_lower_end_and_not_its_upper_one(error, epsilon, items, inside):
    assert list(Band(error, epsilon).counts(items)) == inside


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 60))
def test_neighbouring_bands_share_no_count_and_leave_none_out(first, width, items):
    low, mid = Band(first / 1000, width / 1000), Band((first + width) / 1000, width / 1000)
    both = Band(first / 1000, 2 * width / 1000)
    assert [*low.counts(items), *mid.counts(items)] == list(both.counts(items))


def test_the_minimum_is_taken_within_a_seed_and_then_averaged_over_seeds():
    errors = table(
        (1, 1e-5, 10, 60, 70, 80),  # outside
        (1, 1e-5, 20, 4, 24, 44),
        (1, 1e-5, 30, 2, 20, 50),
        (2, 1e-5, 20, 9, 19, 39),
        (2, 1e-5, 30, 10, 11, 12),  # E - E' = 0.1 is not below epsilon
    )
    found = igap(errors, "de", ZERO)
    assert found.by_seed == {1: 18, 2: 10}
    assert found.expected == (14, pytest.approx(np.std([18, 10], ddof=1)), 2)
    assert found.minimum == 10
    assert found.qualifying == {1: 2, 2: 1}
    assert igap(errors, "sw", ZERO).by_seed == {1: 40, 2: 30}


def test_learning_rates_of_a_seed_are_pooled():
    errors = table((1, 1e-5, 20, 0, 30, 30), (1, 2e-5, 20, 0, 25, 35), (2, 1e-5, 20, 0, 28, 28))
    assert igap(errors, "de", ZERO).by_seed == {1: 25, 2: 28}
    assert igap(errors, "sw", ZERO).by_seed == {1: 30, 2: 28}


def test_a_band_without_checkpoints_is_undefined_and_is_not_widened():
    errors = table((1, 1e-5, 20, 11, 30, 30), ends=(Final(1, 1e-5, 20, {"en": 11.0, "de": 30.0, "sw": 30.0}),))
    found = igap(errors, "de", ZERO)
    assert not found.defined and found.expected is None and found.minimum is None
    assert str(found) == "undefined"
    assert found.qualifying == {1: 0}
    assert not mean_igap(igaps(errors, ZERO)).defined
    text = str(IgapResult({"system": errors}, (ZERO,)))
    assert "undefined, no checkpoint has a training error in the band; its runs ended at 0.110" in text


def test_a_seed_without_checkpoints_in_the_band_is_left_out_and_said():
    errors = table((1, 1e-5, 20, 0, 30, 30), (2, 1e-5, 20, 50, 60, 60))
    found = igap(errors, "de", ZERO)
    assert found.by_seed == {1: 30}
    assert str(found) == "30.00 (1 of 2 seeds)"


def test_ties_change_nothing_and_the_earlier_checkpoint_is_kept():
    errors = table((1, 1e-5, 10, 0, 30, 31), (1, 1e-5, 20, 1, 31, 31), (1, 1e-5, 30, 2, 32, 33))
    assert igap(errors, "de", ZERO).by_seed == {1: 30}
    assert igap(errors, "sw", ZERO).by_seed == {1: 30}


def test_a_gap_may_be_negative():
    assert igap(table((1, 1e-5, 10, 9, 5, 9)), "de", ZERO).minimum == -4


def test_the_mean_over_targets_is_a_plain_mean():
    errors = table((1, 1e-5, 20, 0, 30, 50), (1, 1e-5, 30, 0, 20, 60), (2, 1e-5, 30, 0, 22, 44))
    mean = mean_igap(igaps(errors, ZERO))
    assert mean.by_seed == {1: 35, 2: 33}
    assert mean.minimum == (20 + 44) / 2


def test_at_one_checkpoint_the_mean_is_that_of_the_best_single_one():
    errors = table((1, 1e-5, 20, 2, 30, 50), (1, 1e-5, 30, 0, 20, 66))
    assert mean_igap(igaps(errors, ZERO)).by_seed == {1: (20 + 48) / 2}
    assert joint_igap(errors, ZERO).by_seed == {1: (28 + 48) / 2}
    shown = IgapResult({"system": errors}, (ZERO,)).table()
    assert "system: 38.00 at the best single checkpoint" in shown and "41.00" not in shown.splitlines()[-1]
    with pytest.raises(BadInput, match="every checkpoint evaluated wholly"):
        joint_igap(table((1, 1e-5, 20, 2, 30, 50), asked=(ZERO,)), ZERO)


def test_compared_systems_get_equally_many_checkpoints_the_first_of_each_seed():
    many = table((1, 1e-5, 10, 0, 40, 40), (1, 1e-5, 20, 0, 35, 41), (1, 1e-5, 30, 0, 10, 10), name="many")
    few = table((1, 1e-5, 20, 50, 60, 60), (1, 1e-5, 30, 0, 36, 36), (1, 1e-5, 40, 0, 30, 30), name="few")
    assert equal_candidates([many, few], ZERO) == 2
    result = IgapResult({"many": many, "few": few}, (ZERO,))
    assert result.of("many")["de"].minimum == 35
    assert result.of("few")["de"].minimum == 30
    assert result.of("many", equal=False)["de"].minimum == 10
    assert result.of("many")["de"].used == {1: 2} and result.of("many")["de"].qualifying == {1: 3}
    assert IgapResult({"many": many}, (ZERO,)).of("many")["de"].minimum == 10


def test_the_first_checkpoints_are_counted_over_learning_rates_by_step():
    errors = table((1, 1e-5, 10, 0, 40, 40), (1, 1e-5, 20, 0, 20, 20), (1, 2e-5, 10, 0, 30, 30))
    assert igap(errors, "de", ZERO, candidates=2).minimum == 30


def test_a_curve_has_one_score_for_each_training_error():
    errors = table((1, 1e-5, 10, 25, 40, 40), (1, 1e-5, 20, 12, 32, 32), (1, 1e-5, 30, 1, 41, 21))
    found = curve(errors, bands([0.2, 0.1, 0.0], 0.1))
    assert {band.error: score.by_seed for band, score in found.items()} == {0.2: {1: 15}, 0.1: {1: 20}, 0.0: {1: 30}}


def test_a_gated_table_refuses_bands_that_were_not_asked_for():
    errors = table((1, 1e-5, 10, None), (1, 1e-5, 20, 0, 30, 30), asked=(ZERO,))
    assert igap(errors, "de", ZERO).minimum == 30
    with pytest.raises(BadInput, match=r"was not looked at for E′ = 0\.1"):
        igap(errors, "de", Band(0.1, 0.1))


def test_a_band_may_have_its_own_width():
    assert bands([0.1, Band(0.0, 0.001), 0.1], 0.025) == (Band(0.1, 0.025), Band(0.0, 0.001))


@pytest.mark.parametrize(
    ("errors", "epsilon"), [([-0.1], 0.1), ([1.5], 0.1), ([0.1], 0.0), ([0.1], float("inf")), ([], 0.1)]
)
def test_bands_that_make_no_sense_are_refused(errors, epsilon):
    with pytest.raises(BadInput):
        bands(errors, epsilon)


@given(*[st.floats(0, 100)] * 4)
def test_the_three_parts_sum_to_the_transfer_error(training, translated, target, source):
    parts = decompose(training, translated, target, source)
    assert parts.interlingual + parts.intralingual + parts.training == pytest.approx(target, abs=1e-9)
    assert parts.transfer_gap == target - source


def test_the_decomposition_is_taken_where_the_runs_ended():
    ends = (
        Final(1, 1e-5, 30, {"en": 0.0, "de": 20.0}, {"en": 25.0, "de": 45.0}),
        Final(2, 1e-5, 30, {"en": 2.0, "de": 24.0}, {"en": 27.0, "de": 45.0}),
    )
    errors = table((1, 1e-5, 30, 0, 20), (2, 1e-5, 30, 2, 24), targets=("de",), ends=ends)
    assert errors.decomposition("de") == (45, 21, 23, 1, 19)
    matrix = IgapResult({"system": errors}, (ZERO,)).matrix("score")
    assert matrix.table().split() == ["en", "de", "en", "74.0", "55.0"]


def test_without_held_out_data_there_is_no_decomposition():
    errors = table((1, 1e-5, 30, 0, 20, 20), ends=(Final(1, 1e-5, 30, {"en": 0.0, "de": 20.0, "sw": 20.0}),))
    assert errors.decomposition("de") is None


def test_a_matrix_has_a_row_per_source_and_no_diagonal():
    from_en = table((1, 1e-5, 10, 0, 20), targets=("de",), name="from en")
    from_de = Errors("from de", "de", ("en",), 100, (Checkpoint(1, 1e-5, 10, 0, {"en": 12}),))
    matrix = IgapResult({"from en": from_en, "from de": from_de}, (ZERO,)).matrix()
    assert matrix.sources == ("en", "de") == matrix.targets
    assert np.array_equal(matrix.values, [[np.nan, 20], [12, np.nan]], equal_nan=True)


def test_tables_survive_being_written_and_read():
    errors = table((1, 1e-5, 10, None), (1, 1e-5, 20, 0, 30, 30), asked=(ZERO,), candidates=3)
    assert Errors.from_dict(errors.to_dict()) == errors


def test_runs_that_were_measured_differently_are_not_joined():
    with pytest.raises(BadInput, match="not measured alike"):
        joined([table((1, 1e-5, 20, 0, 30, 30)), table((2, 1e-5, 20, 0, 30, 30), items=50)])


def kept(seed, source, targets):
    counts = {language: len(rows) for language, rows in targets.items()}
    return Checkpoint(seed, 1e-5, 10, len(source), counts, {"en": source, **targets})


def test_resampled_gaps_are_centred_on_the_score_and_as_wide_as_they_should_be():
    rows = tuple(kept(seed, [0], {"de": list(range(30)), "sw": list(range(50))}) for seed in (1, 2, 3))
    errors = Errors("system", "en", ("de", "sw"), 100, rows)
    drawn = gap_resamples(errors, ZERO, samples=20000)
    assert drawn["de"].mean() == pytest.approx(29, abs=0.2)
    # 29 of 100 items lost: the spread of a binomial share.
    assert drawn["de"].std() == pytest.approx(100 * np.sqrt(0.29 * 0.71 / 100), rel=0.03)
    # Pairing: the items of de are among those of sw, so their order never turns.
    assert (drawn["sw"] >= drawn["de"]).all()
    low, high = interval(drawn["de"])
    assert low < 29 < high


def test_seeds_that_disagree_widen_the_interval():
    alike = tuple(kept(seed, [], {"de": list(range(30))}) for seed in (1, 2))
    apart = (kept(1, [], {"de": list(range(10))}), kept(2, [], {"de": list(range(50))}))
    spread = [gap_resamples(Errors("s", "en", ("de",), 100, rows), ZERO)["de"].std() for rows in (alike, apart)]
    assert spread[1] > 2 * spread[0]
