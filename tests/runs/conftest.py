"""What several tests of runs start from."""

from pathlib import Path

import pytest

from tests.tiny_bitext import write_bitext
from tests.tiny_models import save_encoder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> Path:
    """A tiny encoder; nobody writes to its folder."""
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def linked(tmp_path) -> tuple[Path, Path]:
    """English-German sentence pairs, and the links between their words."""
    return write_bitext(tmp_path)
