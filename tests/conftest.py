"""What all tests share: no network, few threads, and the data folder where it is at hand."""

import os
import socket
from pathlib import Path

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


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data; tests that need it are skipped where it is missing."""
    if not (SHARED / "data" / "README.md").exists():
        pytest.skip("needs the shared data folder")
    return SHARED
