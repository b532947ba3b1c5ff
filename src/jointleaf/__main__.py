"""``python -m jointleaf`` is the command line."""

import sys

from jointleaf.cli import main

if __name__ == "__main__":
    sys.exit(main())
