"""Apertium: rule-based translation, offline, with Debian packages such as `apertium-eng-spa`."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from crosslift.errors import BadInput, CrossliftError
from crosslift.translate.languages import short_code, spellings


class Apertium:
    """The program `apertium` in one of its directions."""

    chunk = 1000

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.mode = _mode(source, target)
        self.name = f"apertium {self.mode}"
        self.fingerprint = f"apertium-{_version(self.mode)}"

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts; unknown words are left as they are."""
        flat = [" ".join(text.split()) for text in texts]
        # An empty line ends a sentence for Apertium; with less between two texts it carries words across.
        parts = self._run("\n\n".join(flat) + "\n\n").split("\n\n")[:-1]
        if len(parts) != len(flat):
            if len(flat) == 1:
                raise CrossliftError(f"{self.name} cannot translate {flat[0][:60]!r}.")
            return [translation for text in flat for translation in self.translate([text])]
        return [" ".join(part.split()) for part in parts]

    def _run(self, text: str) -> str:
        ran = subprocess.run(["apertium", "-u", self.mode], input=text.encode(), capture_output=True, check=False)
        if ran.returncode:
            said = ran.stderr.decode(errors="replace").strip() or f"exit code {ran.returncode}"
            raise CrossliftError(f"{self.name} failed: {said.splitlines()[-1]}")
        return ran.stdout.decode(errors="replace")


def directions() -> list[str]:
    """Return the directions that are installed, such as `eng-spa`."""
    if shutil.which("apertium") is None:
        raise BadInput("apertium is not installed.", "On Debian:  apt-get install apertium apertium-eng-spa")
    listed = subprocess.run(["apertium", "-l"], capture_output=True, text=True, check=False).stdout
    return listed.split()


def _mode(source: str, target: str) -> str:
    here = directions()
    for first in spellings(source):
        for second in spellings(target):
            if f"{first}-{second}" in here:
                return f"{first}-{second}"
    wanted = f"{spellings(source)[-1]}-{spellings(target)[-1]}"
    raise BadInput(
        f"apertium has no direction from {short_code(source)} to {short_code(target)} here "
        f"(installed: {', '.join(here) or 'none'}).",
        f"On Debian look for it with:  apt-cache search apertium-{wanted}",
    )


@cache
def _version(mode: str) -> str:
    """Return a digest of the program's version and of the sizes of the language data that a direction reads."""
    said = subprocess.run(["apertium", "-V"], capture_output=True, text=True, check=False).stdout
    data = Path(shutil.which("apertium") or "").resolve().parents[1] / "share" / "apertium" / "modes" / f"{mode}.mode"
    steps = data.read_text(encoding="utf-8") if data.is_file() else ""
    files = [Path(name) for name in re.findall(r"'([^']+)'", steps)]
    sizes = [file.stat().st_size for file in files if file.is_file()]
    return hashlib.blake2b(f"{said}{steps}{sizes}".encode(), digest_size=8).hexdigest()
