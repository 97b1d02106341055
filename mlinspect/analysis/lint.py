"""What is wrong with a model: every rule asked, every answer a row."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from mlinspect.analysis import lint_graph, lint_rules  # noqa: F401 (they register the rules)
from mlinspect.analysis.columns import frame
from mlinspect.analysis.findings import Result, result
from mlinspect.analysis.operands import network_of
from mlinspect.analysis.rule import RULES, SEVERITIES, Look
from mlinspect.errors import NotFoundError, near


def lint(model: Any, rules: Iterable[str] | None = None) -> Result:
    """Look for known faults, without running the model.

    Parameters
    ----------
    model : Model or Network
    rules : iterable of str, optional
        Ids of the rules to ask; all by default.

    Returns
    -------
    DataFrame
        One row a finding, errors first, then in order of execution: rule, severity, layer, tensor, message, fix.

    Raises
    ------
    NotFoundError
        When there is no such rule; the message says which there are.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    >>> lint(model)[["rule", "severity"]].drop_duplicates().values.tolist()
    [['float-island', 'info']]
    """
    look = Look(network_of(model))
    order = {layer.index: i for i, layer in enumerate(look.layers)}
    rows: list[dict[str, Any]] = []
    for name in RULES if rules is None else [rules] if isinstance(rules, str) else rules:
        if name not in RULES:
            raise NotFoundError(f"no rule {name!r}{near(name, RULES)}; the rules are {', '.join(sorted(RULES))}")
        asked = RULES[name]
        rows += [
            {"rule": name, "severity": asked.severity, "fix": asked.fix} | finding._asdict()
            for finding in asked.check(look)
        ]
    rows.sort(key=lambda row: (SEVERITIES.index(row["severity"]), order.get(row["layer"], -1)))
    table = frame("lint", rows)
    table["severity"] = pd.Categorical(table.severity.astype(str), SEVERITIES, ordered=False)
    return result("lint", table)


def rules() -> pd.DataFrame:
    """Every lint rule: its id, severity, what it finds, what to do.

    Examples
    --------
    >>> rules().set_index("rule").severity["bias-scale"]
    'error'
    """
    return pd.DataFrame([rule[:4] for rule in RULES.values()], columns=["rule", "severity", "meaning", "fix"])


def worst(table: pd.DataFrame, limit: str) -> bool:
    """Whether a table of findings has one as bad as that, or worse.

    Examples
    --------
    >>> worst(pd.DataFrame({"severity": ["info", "warning"]}), "error")
    False
    """
    bad = SEVERITIES[: SEVERITIES.index(limit) + 1]
    return bool(table.severity.isin(bad).any())


def annotations(table: pd.DataFrame, file: str) -> str:
    """Findings as GitHub workflow commands, one a line, so that they show beside the file in a pull request.

    Examples
    --------
    >>> row = {"rule": "nan", "severity": "error", "message": "50%\\nof it"}
    >>> print(annotations(pd.DataFrame([row]), "net.ms"))
    ::error file=net.ms,title=nan::50%25%0Aof it
    """
    commands = {"error": "error", "warning": "warning", "info": "notice"}
    return "\n".join(
        f"::{commands[severity]} file={_escape(file, ':,')},title={name}::{_escape(message)}"
        for name, severity, message in zip(table["rule"], table["severity"], table["message"], strict=True)
    )


def _escape(text: str, more: str = "") -> str:
    """Workflow commands end at a line's end, properties at a comma or colon."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
