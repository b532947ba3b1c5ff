"""The command line: ``python -m experiments all`` and ``repeat``."""

from experiments.everything import main

if __name__ == "__main__":
    main()
