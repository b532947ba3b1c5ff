"""Tables of results as text."""

from __future__ import annotations

from typing import Any

from jointleaf.cli._html.sections import MEASURES, measured
from jointleaf.cli._output import seconds, text_table

__all__ = ["error_table"]


def error_table(table: list[dict[str, Any]]) -> str:
    """Errors of all models, one line each."""
    shown = [name for name in table[0] if name in MEASURES]
    rows = [["model", *(MEASURES[name] for name in shown), "a fit"]]
    for record in table:
        rows.append(
            [
                record["model"],
                *(measured(name, record[name]) for name in shown),
                seconds(record["seconds"]),
            ]
        )
    return text_table(rows, right=tuple(range(1, len(rows[0]))))
