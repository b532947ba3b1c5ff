"""Configuration of the documentation site (Sphinx); `make docs` builds it into site/.

Pages are Markdown that GitHub shows as well. What only the site needs is made here: the navigation,
and docstrings in the form that Sphinx expects. Nothing is loaded from a network, neither by the
build nor by the pages.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

import jointleaf

project = "jointleaf"
copyright = "the jointleaf developers, BSD-3-Clause"
version = release = jointleaf.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
default_role = "literal"  # single backticks in docstrings are code
myst_enable_extensions = ["dollarmath"]  # as on GitHub
myst_heading_anchors = 4  # the anchors of GitHub
autodoc_typehints = "none"  # docstrings tell types, with shapes
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_google_docstring = False
napoleon_use_param = False  # types are prose here, such as "array (n, d)": no links
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "jointleaf"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_math_renderer = "mathml"

NAVIGATION = {
    "": ["getting-started", "tutorial", "user-guide", "gallery", "faq"],
    "Choosing": ["migrating", "tuning", "targets", "when-it-loses"],
    "By subject": [
        "partitions",
        "penalties",
        "losses",
        "intervals",
        "monotone",
        "multitask",
        "bouts",
        "explaining",
        "command-line",
        "model-files",
        "reliability",
        "jax",
        "scaling-out",
        "extending",
    ],
    "How it works": [
        "What fit does <recipe>",
        "Mathematics and solvers <how-it-works>",
        "architecture",
        "glossary",
        "decisions/index",
        "decisions/0001-dual-for-few-rows",
        "decisions/0002-honest-folds",
        "decisions/0003-no-compiled-code",
        "decisions/0004-own-model-files",
        "decisions/0005-flat-weights-mixed-cells",
        "decisions/0006-components-and-recipes",
        "decisions/0007-canonical-rows",
        "decisions/0008-jax-array-namespace",
    ],
    "Measured": [
        "accuracy",
        "performance",
        "reproduction",
        "limits",
        "comparison",
        "experiments-log",
    ],
    "Reference": [
        "api/index",
        "api/estimators",
        "api/penalties",
        "api/partitions",
        "api/multitask",
        "api/dask",
        "api/inspection",
        "api/displays",
        "api/fitting",
        "api/losses",
        "api/files",
        "releases",
    ],
}
#: a relative link to a page, which need not be one of the site
MARKDOWN_LINK = re.compile(r"\]\((\.\./[^)#\s]+\.md)(?:#[^)\s]*)?\)")
#: what is literal in a docstring, or a bar
LITERAL_OR_BAR = re.compile(r"(``.*?``|`[^`]*`)|\|")


def navigation() -> str:
    """Return the navigation as directives, which GitHub would show on the first page."""
    parts = []
    for caption, entries in NAVIGATION.items():
        options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
        parts.append("```{toctree}\n" + options + "\n" + "\n".join(entries) + "\n```\n")
    return "\n\n" + "\n".join(parts)


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Add the navigation to the first page, and let links to Markdown outside lead to the file."""
    here = (Path(app.srcdir) / page).parent

    def lead(match: re.Match[str]) -> str:
        inside = (here / match[1]).resolve().is_relative_to(app.srcdir)
        return match[0] if inside else f"](path:{match[1]})"

    source[0] = MARKDOWN_LINK.sub(lead, source[0])
    if page == "index":
        source[0] += navigation()


def polish(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Say to Sphinx what docstrings mean.

    Norms such as |W| are no names of substitutions, and a colon in the text of a property does not
    end a type.
    """
    if what == "property" and "----" not in (obj.__doc__ or ""):
        lines[:] = inspect.cleandoc(obj.__doc__ or "").splitlines()
    formula = False
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith("   "):
            formula = False
        if ".. math::" in line:
            formula = True
        elif not formula and not line.lstrip().startswith((">>>", "...")):
            lines[i] = LITERAL_OR_BAR.sub(lambda m: m[1] or r"\|", line)


def leave_out_foreign(
    app: Any, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn gives to every estimator."""
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return True if home.startswith(("sklearn", "builtins")) else None


def write_formula(writer: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw without scripts."""
    display = "inline" if node.tagname == "math" else "block"
    formula = convert(" ".join(node.astext().split()), display=display)
    tag = "span" if display == "inline" else "div"
    writer.body.append(f'<{tag} class="formula">{formula}</{tag}>')
    raise SkipNode


def setup(app: Any) -> None:
    """Join in what is above."""
    app.connect("source-read", prepare)
    # after napoleon, which has the usual priority of 500
    app.connect("autodoc-process-docstring", polish, priority=600)
    app.connect("autodoc-skip-member", leave_out_foreign)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
