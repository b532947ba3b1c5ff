"""``jointleaf info``: what a model file holds."""

from __future__ import annotations

import argparse
from typing import Any

from jointleaf.cli._models import load_model
from jointleaf.cli._output import plural, print_json, text_table
from jointleaf.cli._record import model_summary, without_charts
from jointleaf.cli._validation import error_table

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Load and print."""
    loaded = load_model(args.model)
    if loaded.record is None:
        contents: dict[str, Any] = {"model": model_summary(loaded.model)}
    else:
        contents = without_charts(loaded.record)
    contents["file"] = args.model
    contents["columns"] = [kind.to_dict() for kind in loaded.preparation.columns]
    if args.json:
        print_json(contents)
    else:
        print(_text(contents, loaded.preparation.names))


def _text(contents: dict[str, Any], columns: list[str]) -> str:
    model = contents["model"]
    facts = [["file", contents["file"]], ["kind", model["kind"]]]
    if "target" in contents:
        target = contents["target"]
        facts += [
            ["version", f"jointleaf {contents['version']}, fitted {contents['created']}"],
            ["data", f"{contents['source']}, {plural(contents['n_rows'], 'row')}"],
            ["target", f"{target['name']} ({target['task']}: {target['reason']})"],
        ]
        if "classes" in target:
            facts.append(["classes", ", ".join(target["classes"])])
    facts += [["columns", ", ".join(columns)], *model["lines"]]
    text = text_table(facts, indent=0)
    return f"{text}\n{error_table(contents['validation'])}" if "validation" in contents else text
