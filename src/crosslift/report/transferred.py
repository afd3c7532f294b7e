"""The main job with its page: what `crosslift.transfer` and the command line call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosslift.errors import MissingExtra
from crosslift.report.page import report
from crosslift.runs import transfer as job
from crosslift.runs.progress import Silent
from crosslift.runs.transfer import Transferred


def transfer(**given: Any) -> Transferred:  # noqa: ANN401  the arguments of `crosslift.runs.transfer.transfer`
    """Run a transfer and write its report; arguments and result are those of `crosslift.runs.transfer.transfer`."""
    done = job.transfer(**given)
    write_page(done, given.get("watch") or Silent())
    return done


def write_page(done: Transferred, watch: Any) -> Path | None:  # noqa: ANN401  a `Watch`
    """Write `report.html` beside the model; without test data there is nothing to show, and that is said."""
    if not done.scores:
        watch.say("report    none: it shows scores, and there is no test data (--test)")
        return None
    try:
        return report([done.path], done.path / "report.html")
    except MissingExtra as missing:
        watch.say(f"report    not written: {missing.seen} {missing.remedy}")
        return None
