"""The report of a fit as one HTML document."""

from __future__ import annotations

from typing import Any

from jointleaf.cli._html.page import page
from jointleaf.cli._html.sections import build_body

__all__ = ["render_report"]


def render_report(record: dict[str, Any], fresh: dict[str, Any] | None = None) -> str:
    """Give the report.

    Parameters
    ----------
    record : dict
        Of a fit, see `jointleaf.cli._summaries`.
    fresh : dict, optional
        The same model's judgement on further data.
    """
    return page(f"jointleaf: {record['target']['name']}", build_body(record, fresh))
