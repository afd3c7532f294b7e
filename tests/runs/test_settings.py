"""Settings by name: converted, checked, and never dropped."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.errors import BadInput
from crosslift.runs.settings import Execution, Optimisation, Selection, convert, sort_settings


def test_each_class_gets_its_share_in_its_types():
    given = {
        "learning_rate": "1e-4",
        "steps": "20",
        "trackers": "tensorboard, wandb",
        "select": "last",
        "compile": "yes",
    }
    optimisation, execution, selection = sort_settings([Optimisation, Execution, Selection], given)
    assert optimisation == {"learning_rate": 1e-4, "steps": 20}
    assert execution == {"trackers": ("tensorboard", "wandb"), "compile": True}
    assert selection == {"select": "last"}
    assert Optimisation(**optimisation).learning_rate == 1e-4


def test_an_unknown_setting_names_the_nearest_and_lists_all():
    with pytest.raises(BadInput, match=r'no setting "learning_rat".*Did you mean "learning_rate"') as caught:
        sort_settings([Optimisation, Selection], {"learning_rat": 1})
    assert "batch_size" in caught.value.remedy
    assert "select" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("batch_size", "many", "--batch-size takes a whole number, not 'many'"),
        ("batch_size", "1.5", "--batch-size takes a whole number"),
        ("batch_size", 1.5, "--batch-size takes a whole number"),
        ("batch_size", True, "--batch-size takes a whole number"),
        ("learning_rate", "fast", "--learning-rate takes a number"),
        ("learning_rate", None, "--learning-rate takes a number"),
        ("schedule", "liner", 'Did you mean "linear"'),
        ("gradient_checkpointing", "maybe", "--gradient-checkpointing is yes or no"),
        ("compile", 3, "--compile takes yes or no"),
    ],
)
def test_a_value_of_the_wrong_kind_says_what_is_expected(name, value, said):
    with pytest.raises(BadInput, match=said):
        sort_settings([Optimisation, Execution], {name: value})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_rate": 0}, "--learning-rate must be above 0"),
        ({"learning_rate": float("nan")}, "--learning-rate must be above 0"),
        ({"batch_size": 0}, "--batch-size must be at least 1"),
        ({"epochs": 0}, "--epochs must be above 0"),
        ({"steps": 0}, "--steps must be at least 1"),
        ({"steps": -3}, "--steps must be at least 1"),
        ({"warmup": 1.0}, "0 ≤ warmup < 1"),
    ],
)
def test_values_that_cannot_work_are_refused_by_their_option(settings, said):
    with pytest.raises(BadInput, match=said):
        Optimisation(**settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"evaluations": 0}, "--evaluations must be at least 1, not 0"),
        ({"average_from": 1.0}, "--average-from is a share"),
        ({"average_from": -0.1}, "--average-from is a share"),
    ],
)
def test_a_selection_that_could_choose_nothing_is_refused(settings, said):
    with pytest.raises(BadInput, match=said):
        Selection(**settings)


@given(st.from_type(int | float | str | None | bool))
def test_no_value_does_anything_but_convert_or_raise_one_line(value):
    for hint in (int, float, bool, str, int | None, float | None, tuple[str, ...]):
        try:
            convert("some_name", value, hint)
        except BadInput as error:
            assert str(error).startswith("--some-name")


def test_none_is_a_value_only_where_it_may_be():
    assert convert("steps", "none", int | None) is None
    assert convert("steps", None, int | None) is None


def test_numbers_of_numpy_are_numbers():
    assert convert("steps", np.int64(3), int | None) == 3
    assert convert("warmup", np.float32(0.5), float) == 0.5


def test_a_setting_keeps_its_zero():
    """0 is a value, not an absence."""

    @dataclass(frozen=True)
    class Own:
        weight: float = 1.0

    assert sort_settings([Own], {"weight": "0"}) == [{"weight": 0.0}]
