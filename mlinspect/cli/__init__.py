"""The command line, ``mlinspect COMMAND ...``: inspect models, run them, write them.

Exit codes: 0 success; 1 unreadable file or failed check; 2 wrong usage. Errors are one line on stderr.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence

import mlinspect
from mlinspect.cli import edit, judge, run, tables, tour
from mlinspect.cli.output import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The process's own by default.

    Returns
    -------
    int
        The exit code: 0, 1 or 2.

    Examples
    --------
    >>> main(["info", "no_such_file.ms"])
    1
    """
    for stream in (sys.stdout, sys.stderr):  # a name may hold what the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 2
    from mlinspect.errors import MlinspectError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _say(str(message))
            code = options.run(options)
        sys.stdout.flush()
    except UsageError as error:
        return _fail(error, 2)
    except BrokenPipeError:  # the reader (`head`, say) has closed the pipe: do not flush into it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (MlinspectError, OSError) as error:
        return _fail(error, 1)
    return code or 0


def _say(text: str) -> None:
    from mlinspect.card import printable

    print(f"mlinspect: {printable(text)}", file=sys.stderr)


def _fail(error: Exception, code: int) -> int:
    reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    _say(reason)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlinspect", description="Inspect, run and change Arm NN (.armnn) and MindSpore Lite (.ms) models."
    )
    parser.add_argument("--version", action="version", version=f"mlinspect {mlinspect.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for module in (tables, run, judge, edit, tour):
        module.add_commands(commands)
    return parser
