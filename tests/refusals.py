"""What a loader says when it refuses a file."""

import pytest

from crosslift.data import load
from crosslift.errors import BadInput


def message(path, **options):
    """Return the message with which `load` refuses a file, without the folder it is in."""
    with pytest.raises(BadInput) as error:
        load(path, **options)
    return str(error.value).replace(f"{path.parent}/", "")
