"""Dataclasses as options: what is given is passed on by name, what is on by default can be switched off."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import typer

from crosslift.cli.options import with_settings


@dataclass(frozen=True)
class Some:
    """Settings of each kind."""

    shuffle_rows: bool = field(default=True, metadata={"help": "Shuffle."})
    compile: bool = field(default=False, metadata={"help": "Compile."})
    rate: float = field(default=0.5, metadata={"help": "A rate."})


@pytest.fixture
def called():
    """A function that runs the verb with some words and returns what it was given."""
    told: dict[str, Any] = {}

    def verb(name: str = "x", **settings: Any) -> None:
        told.update(settings, name=name)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(with_settings(verb, {"Some": Some}))

    def call(*words: str) -> dict[str, Any]:
        told.clear()
        app(args=list(words), standalone_mode=False)
        return dict(told)

    return call


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--shuffle-rows"], {"shuffle_rows": True}),
        (["--no-shuffle-rows"], {"shuffle_rows": False}),
        (["--compile", "--rate", "2"], {"compile": True, "rate": "2"}),
    ],
)
def test_only_what_is_given_is_passed_on(words, given, called):
    assert called(*words) == {"name": "x", **given}


def test_what_is_off_by_default_has_no_second_spelling(called):
    with pytest.raises(Exception, match="--no-compile"):
        called("--no-compile")
