"""``mlinspect lint FILE`` and ``mlinspect report FILE``: what is wrong with a model, and all about it on one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mlinspect.cli.output import add_file, add_out, open_model, show, written


def add_commands(commands: Any) -> None:
    """Add the sub-parsers of ``lint`` and ``report``."""
    lint = commands.add_parser(
        "lint",
        help="what is wrong, or looks wrong, with a model",
        description="What is wrong, or looks wrong, with a model. Exits with 1 if a finding is as bad as --fail-on.",
    )
    add_file(lint)
    lint.add_argument("--fail-on", choices=("error", "warning", "info"), default="error", help="default: error")
    lint.add_argument("--github", action="store_true", help="print GitHub workflow annotations")
    add_out(lint)
    lint.set_defaults(run=_lint)
    report = commands.add_parser("report", help="one self-contained HTML page: card, tables, lint and plots")
    add_file(report)
    report.add_argument(
        "-o", "--out", metavar="OUT", help="where to write it (default: FILE's name with .html, in the current folder)"
    )
    report.set_defaults(run=_report)


def _lint(options: argparse.Namespace) -> int:
    from mlinspect.analysis.lint import annotations, worst

    table = open_model(options.file, options.schema).lint()
    if options.github:
        print(annotations(table, options.file))
    elif not written(table, options):
        show(table)
    return int(worst(table, options.fail_on))


def _report(options: argparse.Namespace) -> int:
    from mlinspect.report import report

    out = Path(options.out or f"{Path(options.file).name}.html")
    report(open_model(options.file, options.schema), out)
    print(f"report: {out}")
    return 0
