"""What all tests share: no network, few threads, a cache of their own, and the data folder where it is at hand."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

SHARED = Path(os.environ.get("CROSSLIFT_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Any attempt to reach another machine fails the test."""
    real = socket.socket.connect

    def connect(self, address):
        local = self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost")
        if not local:
            raise AssertionError(f"a test tried to reach {address}")
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory) -> Iterator[Path]:
    """A folder for caches, also of what tests share: nothing is written to the user's, and nothing is found there."""
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSLIFT_CACHE", str(folder / "shared"))
        yield folder


@pytest.fixture(autouse=True)
def cache(caches, monkeypatch) -> Path:
    """A cache of the test's own."""
    folder = caches / uuid4().hex
    monkeypatch.setenv("CROSSLIFT_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data; tests that need it are skipped where it is missing."""
    if not (SHARED / "data" / "README.md").exists():
        pytest.skip("needs the shared data folder")
    return SHARED
