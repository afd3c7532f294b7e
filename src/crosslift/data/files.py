"""Text files as lists of lines: plain, gzip or xz, always UTF-8.

Records end at a line feed and nowhere else. Other control characters that Python's `splitlines` takes
for line ends (U+001C to U+001E, U+0085, U+2028 …) occur inside real sentences and stay there.
"""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from pathlib import Path

from crosslift.errors import BadFile, nearest

COMPRESSED = (".xz", ".gz")
_MAGIC = {".xz": b"\xfd7zXZ\0", ".gz": b"\x1f\x8b"}
_ARCHIVES = (".zip", ".tar", ".tgz", ".txz", ".bz2", ".zst", ".7z", ".rar")


def format_suffix(path: Path) -> str:
    """Return what the file is once unpacked: `.tsv` for `a.tsv` and for `a.tsv.xz`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED else suffix


def find_file(path: Path) -> Path | None:
    """Return the file under its own name or its compressed one, or `None` if there is neither."""
    candidates = (path, *(path.with_name(path.name + suffix) for suffix in COMPRESSED))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in `.gz` or `.xz`."""
    suffix = path.suffix.lower()
    if suffix in _ARCHIVES or format_suffix(path) == ".tar":
        raise BadFile(path, None, "is an archive; crosslift reads plain, .gz and .xz files.", "Unpack it first.")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise _missing(path) from None
    except IsADirectoryError:
        raise BadFile(path, None, "is a folder, not a file.", "Name a file in it.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadFile(path, None, f"cannot be read: {reason}.") from None
    if raw and not raw.startswith(_MAGIC.get(suffix, b"")):
        raise BadFile(path, None, f"is not a {suffix} file.", f"If it is plain text, take {suffix} off its name.")
    try:
        if suffix == ".gz" and raw:
            return gzip.decompress(raw)
        if suffix == ".xz" and raw:
            return lzma.decompress(raw)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise BadFile(
            path, None, f"is not a complete {suffix} file ({error}).", "It may be cut short: fetch it again."
        ) from None
    return raw


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without byte order mark and with line feeds as line ends.

    Raises:
        BadFile: Missing or unreadable, cut short, empty, not UTF-8, or with a NUL in it.
    """
    raw = read_bytes(path)
    if raw.startswith(codecs.BOM_UTF8):
        raw = raw[len(codecs.BOM_UTF8) :]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        raise BadFile(
            path,
            raw.count(b"\n", 0, error.start) + 1,
            f"is not UTF-8 (byte 0x{raw[error.start]:02x}).",
            f"Convert it:  iconv -f {'UTF-16' if utf16 else 'LATIN1'} -t UTF-8",
        ) from None
    if not text.strip():
        raise BadFile(path, None, "is empty.")
    if (nul := text.find("\0")) >= 0:
        raise BadFile(path, text.count("\n", 0, nul) + 1, "has a NUL character, so it is not a text file.")
    return text.replace("\r\n", "\n") if "\r" in text else text


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file without their ends; line number n is item n - 1."""
    lines = read_text(path).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _missing(path: Path) -> BadFile:
    folder = path.parent
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return BadFile(path, None, f"there is no folder {folder}.")
    return BadFile(path, None, f"there is no such file.{nearest(path.name, names)}")
