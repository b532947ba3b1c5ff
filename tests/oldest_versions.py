"""Print constraints that pin every dependency to the lower bound which pyproject.toml declares."""

import re
import sys
from pathlib import Path

if __name__ == "__main__":
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    extras = text[text.index("\ndependencies") : text.index("[tool.")]
    bounds = dict(re.findall(r'"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)"', extras))
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(bounds.items()))
