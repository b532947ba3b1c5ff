"""Every display of jointleaf: runs the code of docs/gallery.md and saves its pictures.

python examples/gallery.py [--output FOLDER]           needs the extra `plot`, and pandas
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image

PAGE = Path(__file__).parents[1] / "docs" / "gallery.md"
#: a block of code, and the picture that follows it
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*!\[[^]]*\]\(images/(\w+\.png)\))?", re.DOTALL)


def save(figure: Any, path: Path) -> None:
    """Save a picture with 256 colours, half of the bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90)
    Image.open(buffer).convert("RGB").quantize(256).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    for code, picture in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        exec(compile(code, PAGE.name, "exec"), names)
        if picture:
            save(names["display"].figure_, args.output / picture)
            print(f"picture: {args.output / picture}")


if __name__ == "__main__":
    main()
