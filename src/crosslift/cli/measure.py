"""`crosslift measure`: what a model's vectors say about transfer, before any task is learnt."""

from __future__ import annotations

import typer

from crosslift.cli import igap
from crosslift.cli.alignment import alignment
from crosslift.cli.options import with_settings
from crosslift.runs.igap_settings import Training
from crosslift.runs.settings import Execution

app = typer.Typer(help="Measure transferability: alignment, IGAP, ranking of languages.", no_args_is_help=True)
"""The group; every measurement is one command in it, and imports what it needs when it runs."""

_TRAINING = {"Optimisation": Training, "Execution": Execution}
app.command("igap")(with_settings(igap.igap, _TRAINING))
app.command("rank")(with_settings(igap.rank, _TRAINING))
app.command("alignment")(alignment)
