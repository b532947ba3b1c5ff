"""The paper's Figure 1: regression and binary classification on the sets of PMLB.

    python -m experiments.pmlb run --data FOLDER [--task regression] [--trials 50] ...
    python -m experiments.pmlb report [--results FILE] [--paper FILE]

`run` splits every set into 0.8/0.1/0.1, searches every method's hyperparameters, and appends one
row per (set, method) to a file; what is in the file is not run again. `report` prints tables and
tests and draws the figure. README.md in this folder says where this differs from the paper.
"""
