"""Elements of a report: a page that loads nothing, its sections, tables and figures.

Names of columns and classes are never broken within a word: they may break behind marks such as
"_", and only a word too long for any line is broken where it must be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_LONG_WORD = 28  # characters; longer ones are broken where they must be

_STYLE = """
*{box-sizing:border-box}
body{margin:0;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#20242b;
background:#f6f7f9;overflow-wrap:break-word}
main{max-width:1120px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.55rem;margin:.2em 0}
h2{font-size:1.15rem;margin:0 0 .5em}
p{margin:.4em 0 .8em}
section{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:18px;margin:16px 0;
min-width:0;overflow-x:auto}
#hints{border-left:4px solid #d99a2b}
ul{margin:0;padding-left:1.2em}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr));gap:10px;
margin:14px 0}
.facts div{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:10px 12px}
.facts b{display:block;font-size:1.2rem}
.facts span,.small{color:#59616e;font-size:.86rem}
.charts,.beside{display:grid;gap:18px}
figure{margin:0;min-width:0}
figcaption{font-size:.9rem;font-weight:600;margin-bottom:4px}
figure>svg{width:100%;height:auto;display:block}
summary{cursor:pointer;padding:4px 0}
svg text{font:11px system-ui,sans-serif;fill:#3d4450}
.grid{stroke:#eceef1}.axis{stroke:#8b93a0}.cell{stroke:#e3e6ea}
.legend{font-size:.82rem;margin:.2em 0;display:flex;flex-wrap:wrap;gap:2px 14px}
.legend i{display:inline-block;width:14px;height:4px;margin-right:5px;vertical-align:middle}
.legend .dot{width:10px;height:10px;border-radius:50%}
.again{display:none}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid #eceef1;vertical-align:top}
th{color:#59616e;font-weight:600}
.num.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.num+td,.num+th{padding-left:14px}
.text,.long{overflow-wrap:anywhere}
.text{min-width:11em}
.ours td{font-weight:700}
.out td{color:#6d7582}
.barcell{width:34%;min-width:60px}
.row .barcell{width:22%}
td:first-child{min-width:9em}
.bar{height:13px;border-radius:2px;background:#4f86b8;margin-top:5px}
.ours .bar{background:#c1432e}
.whole{white-space:nowrap}
code{font:.85rem ui-monospace,monospace}
footer{color:#59616e;font-size:.86rem}
@media(min-width:601px){.three,.four{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media(min-width:1080px){
.row{display:grid;grid-template-columns:minmax(0,1.8fr) minmax(0,1fr);gap:16px}
.row section{margin:0}
}
@media(min-width:860px){
.two{grid-template-columns:repeat(2,minmax(0,1fr))}
.three{grid-template-columns:repeat(3,minmax(0,1fr))}
.beside{grid-template-columns:repeat(2,minmax(0,1fr))}
.one figure{max-width:720px;margin:0 auto;width:100%}
.row .one figure{max-width:460px}
}
@media(max-width:600px){
.again{display:flex}
body{font-size:15px}main{padding:12px 10px 40px}section{padding:13px 12px}
.facts{grid-template-columns:repeat(2,minmax(0,1fr))}
.facts div:last-child:nth-child(odd){grid-column:1/-1}
.facts b{font-size:.95rem}
.cards thead{display:none}
.cards tr{display:block;border-bottom:1px solid #e3e6ea;padding:7px 0}
.cards td{display:flex;justify-content:space-between;gap:14px;border:0;padding:1px 0;
text-align:right;white-space:normal;min-width:0}
.cards td:before{content:attr(data-name);color:#59616e;text-align:left;flex:none}
.cards td:first-child{display:block;font-weight:700;text-align:left}
.cards td:first-child:before{display:none}
.cards td:empty{display:none}
.cards td[data-name=""]{display:block;text-align:left}
.cards .barcell{width:auto;display:block}.cards .barcell:before{display:none}
#importances tr{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 14px}
#importances td{order:2;gap:5px;font-size:.8rem;color:#59616e}
#importances td:first-child,#importances td[data-name=share]{order:0;font-size:.9rem;color:inherit}
#importances td:first-child{flex:1}
#importances td[data-name=share]:before{display:none}
#importances .barcell{order:1;flex:0 0 100%}
#importances .bar{height:9px;margin:2px 0}
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


def section(name: str, title: str, text: str, *parts: str) -> str:
    """Return a section that can be linked to by its name, with a text before all else."""
    body = (f"<p>{escape(text)}</p>" if text else "") + "".join(parts)
    return f'<section id="{name}">\n<h2>{breakable(title)}</h2>\n{body}\n</section>'


def row(*sections: str) -> str:
    """Return two sections side by side where there is room, the first one wider."""
    return f'<div class="row">\n{"".join(sections)}\n</div>'


def beside(*parts: str) -> str:
    """Return two parts of a section side by side where there is room."""
    cells = "".join(f"<div>{part}</div>" for part in parts)
    return f'<div class="beside">{cells}</div>'


def figures(*pictures: tuple[str, str], columns: int = 0) -> str:
    """Return charts (caption, SVG) side by side where there is room, in rows that are full."""
    cells = "".join(
        f"<figure>{f'<figcaption>{breakable(caption)}</figcaption>' if caption else ''}{svg}"
        "</figure>"
        for caption, svg in pictures
    )
    names = ("", "one", "two", "three")
    count = columns or {1: 1, 3: 3}.get(len(pictures), 2)
    return f'<div class="charts {names[count]}">{cells}</div>'


def bar(value: float, largest: float) -> str:
    """Return a bar for a cell of a table."""
    fraction = 100 * max(value, 0.0) / largest if largest > 0 else 0.0
    return f'<div class="bar" style="width:{fraction:.1f}%"></div>'


def breakable(name: str) -> str:
    """Return a name as HTML that may break behind its marks, but not within its words."""
    html = re.sub(r"([_.:/\\|,;])(?=[^\s_.:/\\|,;])", "\\1\0", name)
    parts = [
        f'<span class="long">{escape(part)}</span>' if len(part) > _LONG_WORD else escape(part)
        for part in re.split("([\0 ])", html)
    ]
    return "".join(parts).replace("\0", "<wbr/>")


def prose(text: str) -> str:
    """Return a text as HTML whose numbers with an exponent stay whole."""
    return re.sub(r"\S+e[-+]\d+\S*", r'<span class="whole">\g<0></span>', escape(text))


def folded(title: str, content: str) -> str:
    """Return content that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (),
    bars: Sequence[int] = (), texts: Sequence[int] = (), styles: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return a table that becomes a list of cards on a phone.

    Cells are text, but in the columns `bars` they are what `bar` returns; `numbers` are columns of
    numbers, `texts` those of free text, the others hold names. `styles` are classes of rows.
    """

    def cell(k: int, text: str) -> str:
        kind = "num" if k in numbers else "barcell" if k in bars else "text" if k in texts else ""
        mark = f' class="{kind}"' if kind else ""
        name = escape(header[k], quote=True)
        content = text if k in bars else prose(text) if kind else breakable(text)
        return f'<td{mark} data-name="{name}">{content}</td>'

    head = "".join(
        f'<th class="num">{escape(name)}</th>' if k in numbers else f"<th>{escape(name)}</th>"
        for k, name in enumerate(header)
    )
    lines = []
    for i, cells in enumerate(rows):
        style = f' class="{styles[i]}"' if styles and styles[i] else ""
        lines.append(f"<tr{style}>{''.join(cell(k, text) for k, text in enumerate(cells))}</tr>")
    return (
        f'<table class="cards"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{chr(10).join(lines)}</tbody></table>"
    )
