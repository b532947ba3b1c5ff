"""``jointleaf info``: what a model file holds."""

from __future__ import annotations

import argparse
from typing import Any

from jointleaf.cli._commands.options import add_json

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "info", help="say what a model file holds", description="Say what a model file holds."
    )
    parser.add_argument("model", metavar="MODEL", help="a file of `jointleaf fit`")
    add_json(parser, "everything")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Load and tell."""
    from jointleaf.cli._models import load_model
    from jointleaf.cli._output import print_json
    from jointleaf.cli._summaries import model_summary

    loaded = load_model(args.model)
    record = loaded.record
    found: dict[str, Any] = {"file": args.model, "model": model_summary(loaded.model)}
    found["columns"] = [kind.to_dict() for kind in loaded.preparation.columns]
    if record is not None:
        names = ("version", "made", "source", "n_rows", "target", "judgement", "convergence")
        found |= {name: record[name] for name in names}
        found["judgement"] = {k: v for k, v in record["judgement"].items() if k != "summary"}
    if args.json:
        print_json(found)
    else:
        print(_text(found))


def _text(found: dict[str, Any]) -> str:
    from jointleaf.cli._output import plural, text_table
    from jointleaf.cli._showing import error_table

    model = found["model"]
    facts = [["file", found["file"]], ["kind", model["kind"]]]
    if "version" in found:
        target = found["target"]
        facts += [
            ["version", f"jointleaf {found['version']}, fitted {found['made']}"],
            ["data", f"{found['source']}, {plural(found['n_rows'], 'row')}"],
            ["target", f"{target['name']} ({target['task']}: {target['reason']})"],
        ]
        if "classes" in target:
            facts.append(["classes", ", ".join(target["classes"])])
    used = [c["name"] for c in found["columns"] if c["kind"] in _USED]
    facts += [
        ["columns", ", ".join(used)],
        ["partitions", f"{model['partitions']} with {model['cells']:,} cells"],
        ["penalty", model["penalty"]],
    ]
    if model["setting"]:
        facts.append(["setting", ", ".join(f"{k} {v:.3g}" for k, v in model["setting"].items())])
    if "convergence" in found:
        facts.append(["solver", found["convergence"]["message"]])
    lines = [text_table(facts, indent=0)]
    if "judgement" in found:
        judged = found["judgement"]
        lines += [f"errors {judged['how']}:", error_table(judged["table"])]
    return "\n".join(lines)


_USED = ("number", "category", "boolean", "date")
