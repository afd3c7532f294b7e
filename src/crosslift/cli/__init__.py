"""The command line: one short file per verb; nothing heavy is imported before a verb runs."""

import os
import sys
from difflib import get_close_matches

import typer

from crosslift.cli import (
    advise,
    align,
    augment,
    compare,
    demo,
    env,
    evaluate,
    export,
    extend_vocabulary,
    fit,
    ls,
    measure,
    plug,
    predict,
    pretrain,
    report,
    reproduce,
    sweep,
    transfer,
    translate,
    trim,
)
from crosslift.cli.options import with_settings
from crosslift.cli.reading import FileOptions
from crosslift.errors import CrossliftError

UsageError = typer.BadParameter.__base__
"""What typer raises for a bad option; its home has moved between versions."""


def build(arguments: list[str]) -> typer.Typer:
    """Return the application; the options of `fit METHOD` are read from the method only when it is called."""
    app = typer.Typer(
        name="crosslift",
        help="From the language you have to the languages you need.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("demo")(demo.demo)
    app.command("advise")(advise.advise)
    app.command("transfer")(transfer.command(arguments))
    app.add_typer(fit.app(arguments), name="fit")
    files = {"Reading files": FileOptions}
    app.command("evaluate")(with_settings(evaluate.evaluate, files))
    app.command("predict")(with_settings(predict.predict, files))
    app.command("compare")(compare.compare)
    app.command("pretrain")(pretrain.command(arguments))
    app.command("plug")(plug.plug)
    app.command("export")(export.export)
    app.add_typer(measure.app, name="measure")
    app.command("sweep")(sweep.sweep)
    app.command("report")(report.report)
    app.command("reproduce")(reproduce.reproduce)
    app.command("augment")(augment.command(arguments))
    app.command("translate")(with_settings(translate.translate, files))
    app.command("align")(align.command(arguments))
    app.command("trim")(trim.trim)
    app.command("extend-vocabulary")(extend_vocabulary.command(arguments))
    app.command("ls")(ls.ls)
    app.command("env")(env.env)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted and resumable."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        code = build(arguments)(args=arguments, prog_name="crosslift", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except CrossliftError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except UsageError as error:  # type: ignore[misc]
        print(_usage(error), file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("Interrupted. Start the same command again to go on.", file=sys.stderr)
        return 130
    except SystemExit:  # how typer ends when the reader of our output (head, less) has gone
        return 0


def _usage(error: Exception) -> str:
    option = getattr(error, "option_name", None)
    if option is not None:
        near = get_close_matches(option, getattr(error, "possibilities", None) or (), n=1)
        return f"Unknown option {option}." + (f" Did you mean {near[0]}?" if near else "")
    return str(getattr(error, "format_message", lambda: error)())
