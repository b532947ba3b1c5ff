"""The same fits on the workers of a Dask cluster (extra ``dask``).

Rows stay on the workers where they are. Weights of cells go to the workers and sums over rows come
back, once for every pass; solvers run in the process of the client, and are those of a local fit.
"""

from __future__ import annotations

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as cause:
    raise ImportError("jointleaf.dask needs Dask: pip install 'jointleaf[dask]'") from cause

from jointleaf.dask._estimators import DaskJOPLEnClassifier, DaskJOPLEnRegressor
from jointleaf.dask._fitting import dask_fit_cells

__all__ = ["DaskJOPLEnClassifier", "DaskJOPLEnRegressor", "dask_fit_cells"]
