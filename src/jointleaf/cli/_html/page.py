"""The page around the sections: head, style, tables and other elements of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["bar_cell", "charts", "page", "section", "table"]

_STYLE = """
*{box-sizing:border-box}
body{margin:0;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#20242b;
background:#f6f7f9}
main{max-width:1060px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.55rem;margin:.2em 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:0 0 .5em;overflow-wrap:anywhere}
p{margin:.4em 0 .8em;overflow-wrap:anywhere}
section{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:18px;margin:16px 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr));gap:10px;
margin:14px 0}
.facts div{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:10px 12px}
.facts b{display:block;font-size:1.2rem;overflow-wrap:anywhere}
.facts span,.small{color:#59616e;font-size:.86rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr));gap:18px}
figure{margin:0;min-width:0;max-width:520px}
figcaption{font-size:.9rem;font-weight:600;margin-bottom:4px}
figure>svg{width:100%;height:auto;display:block}
summary{cursor:pointer;padding:4px 0}
svg text{font:11px system-ui,sans-serif;fill:#3d4450}
.grid{stroke:#eceef1}.axis{stroke:#8b93a0}
.legend{font-size:.82rem;margin:.2em 0;display:flex;flex-wrap:wrap;gap:2px 14px}
.legend i{display:inline-block;width:14px;height:4px;margin-right:5px;vertical-align:middle}
.legend .dot{width:10px;height:10px;border-radius:50%}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid #eceef1;vertical-align:top;
overflow-wrap:anywhere}
th{color:#59616e;font-weight:600}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.ours td{font-weight:700}
.out td{color:#8b93a0}
.barcell{width:34%;min-width:60px}
.bar{height:13px;border-radius:2px;background:#4f86b8;margin-top:5px}
.ours .bar{background:#c1432e}
code{font:.85rem ui-monospace,monospace;overflow-wrap:anywhere}
footer{color:#59616e;font-size:.86rem}
@media(max-width:600px){
body{font-size:15px}main{padding:12px 10px 40px}section{padding:13px 12px}
.facts b{font-size:.95rem}
.cards thead{display:none}
.cards tr{display:block;border-bottom:1px solid #e3e6ea;padding:7px 0}
.cards td{display:flex;justify-content:space-between;gap:14px;border:0;padding:1px 0;
text-align:right;white-space:normal}
.cards td:before{content:attr(data-name);color:#59616e;text-align:left;flex:none}
.cards td:first-child{font-weight:700;text-align:left}
.cards td:first-child:before{display:none}
.cards td:empty{display:none}
.cards .barcell{width:auto;display:block}.cards .barcell:before{display:none}
}
"""


def page(title: str, body: str) -> str:
    """Return a whole document that loads nothing."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def section(name: str, title: str, *parts: str) -> str:
    """Return a section that can be linked to by its name."""
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{"".join(parts)}\n</section>'


def charts(*figures: tuple[str, str]) -> str:
    """Return charts (caption, SVG) side by side where there is room."""
    cells = "".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"
        for caption, svg in figures
    )
    return f'<div class="charts">{cells}</div>'


def bar_cell(value: float, largest: float) -> str:
    """Return a bar for a cell of a table."""
    share = 100 * max(value, 0.0) / largest if largest > 0 else 0.0
    return f'<div class="bar" style="width:{share:.1f}%"></div>'


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    bars: Sequence[int] = (),
    styles: Sequence[str] = (),
) -> str:
    """Return a table that becomes a list of cards on a phone.

    Parameters
    ----------
    header : names of the columns
    rows : cells as text, which is escaped, except in the columns `bars`, which are HTML
    numbers : columns of numbers
    bars : columns of `bar_cell`
    styles : class of every row
    """

    def cell(k: int, text: str) -> str:
        kind = "num" if k in numbers else "barcell" if k in bars else ""
        mark = f' class="{kind}"' if kind else ""
        name = escape(header[k], quote=True)
        return f'<td{mark} data-name="{name}">{text if k in bars else escape(text)}</td>'

    head = "".join(
        f'<th class="num">{escape(name)}</th>' if k in numbers else f"<th>{escape(name)}</th>"
        for k, name in enumerate(header)
    )
    lines = []
    for i, row in enumerate(rows):
        style = f' class="{styles[i]}"' if styles and styles[i] else ""
        lines.append(f"<tr{style}>{''.join(cell(k, text) for k, text in enumerate(row))}</tr>")
    return (
        f'<table class="cards"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{chr(10).join(lines)}</tbody></table>"
    )
