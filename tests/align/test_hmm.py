"""Posteriors against a sum over all paths."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.align.hmm import REACH, Jumps, posteriors


def all_paths(emission, nothing, jumps, null):
    """One pair, by enumeration: a path says for each step its state, or -1 for NULL."""
    steps, states = emission.shape
    moves = jumps.moves(states).astype(float)
    moves /= moves.sum(axis=1, keepdims=True)
    found, seen, total = np.zeros((steps, states)), np.zeros((states + 1, states)), 0.0
    for path in product(range(-1, states), repeat=steps):
        weight, at, used = 1.0, 0, []
        for step, state in enumerate(path):
            if state < 0:
                weight *= null * nothing[step]
            else:
                weight *= (1 - null) * moves[at, state] * emission[step, state]
                used.append((at, state))
                at = state + 1
        total += weight
        for step, state in enumerate(path):
            if state >= 0:
                found[step, state] += weight
        for move in used:
            seen[move] += weight
    return found / total, seen / total


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_posteriors_equal_a_sum_over_all_paths_and_padding_changes_nothing(seed, steps, states):
    rng = np.random.default_rng(seed)
    jumps = Jumps(rng.random(2 * REACH + 1).astype(np.float32), rng.random(REACH + 1).astype(np.float32))
    emission = rng.random((steps, states)).astype(np.float32) ** 4
    nothing = rng.random(steps).astype(np.float32)
    expected, moves = all_paths(emission, nothing, jumps, 0.2)
    # The same pair twice: as it is, and among padding.
    batch = np.zeros((1, steps + 2, states + 3), np.float32)
    batch[0, :steps, :states] = emission
    nulls = np.zeros((1, steps + 2), np.float32)
    nulls[0, :steps] = nothing
    for e, n in ((emission[None], nothing[None]), (batch, nulls)):
        found, seen = posteriors(e, n, np.array([states]), jumps, 0.2)
        assert found[0, :steps, :states] == pytest.approx(expected, abs=2e-5)
        assert seen[: states + 1, :states] == pytest.approx(moves, abs=2e-4)
        assert found.sum() == pytest.approx(expected.sum(), abs=1e-4)


def test_words_that_nothing_can_produce_get_no_partner_and_no_nan():
    emission = np.full((1, 60, 5), 1e-30, np.float32)
    emission[0, ::2, 0] = 1
    emission[0, 1::2, 4] = 1
    found, seen = posteriors(emission, np.full((1, 60), 1e-30, np.float32), np.array([5]), Jumps.start(), 0.1)
    assert np.isfinite(found).all() and np.isfinite(seen).all()
    found, _ = posteriors(
        np.zeros((1, 2, 3), np.float32), np.zeros((1, 2), np.float32), np.array([3]), Jumps.start(), 0.1
    )
    assert (found == 0).all()


def test_jumps_are_estimated_from_moves():
    moves = np.zeros((4, 3))
    moves[0, 1] = 2  # the first word is at place 1
    moves[2, 2] = 6  # from place 1 to 2: a jump of 1
    found = Jumps.from_counts([moves], smoothing=0)
    assert found.first[1] == pytest.approx(1)
    assert found.between[REACH + 1] == pytest.approx(1)
