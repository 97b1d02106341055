"""``mlinspect lint FILE`` and ``mlinspect report FILE``: what is wrong with a model, and all about it on one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mlinspect.cli.output import add_out, as_text, open_model, written


def add_commands(commands: Any) -> None:
    """Add the sub-parsers of ``lint`` and ``report``."""
    lint = commands.add_parser(
        "lint",
        help="what is wrong, or looks wrong, with a model",
        description="What is wrong, or looks wrong, with a model. Exits with 1 if a finding is as bad as --fail-on.",
    )
    lint.add_argument("file", metavar="FILE")
    lint.add_argument("--fail-on", choices=("error", "warning", "info"), default="error", help="default: error")
    lint.add_argument("--github", action="store_true", help="print GitHub workflow annotations")
    add_out(lint)
    lint.set_defaults(run=_lint)
    report = commands.add_parser("report", help="one self-contained HTML page: card, tables, lint and plots")
    report.add_argument("file", metavar="FILE")
    report.add_argument("-o", "--out", metavar="OUT", help="where to write it (default: FILE.html)")
    report.set_defaults(run=_report)


def _lint(options: argparse.Namespace) -> int:
    from mlinspect.analysis.lint import annotations, worst

    table = open_model(options.file).lint()
    if options.github:
        print(annotations(table, options.file))
    elif not written(table, options):
        print(as_text(table) if len(table) else "nothing found")
    return int(worst(table, options.fail_on))


def _report(options: argparse.Namespace) -> int:
    from mlinspect.report import report

    out = Path(options.out or f"{options.file}.html")
    report(open_model(options.file), out)
    print(f"report: {out}")
    return 0
