"""ONNX graphs: operators in the order in which they run, and the package that writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import jointleaf

#: The matrix (n, d) that a model sees.
ROWS = "_rows"
ML_DOMAIN = "ai.onnx.ml"
# Old enough for runtimes of 2022 on, new enough for reductions over axes that are inputs.
_OPSET, _ML_OPSET, _IR_VERSION = 18, 3, 8
#: Type and shape of what a graph takes or returns.
Value = tuple[Any, tuple[int, ...]]


def import_onnx() -> Any:
    """Return the package onnx with what is used of it, or raise with how to install it."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as cause:
        raise ImportError("to_onnx needs onnx: pip install 'jointleaf[onnx]'") from cause
    return onnx


class Graph:
    """Operators in the order in which they run, and the constants that they use.

    Values are known by their names, which the methods return.
    """

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        #: by column: indices (n,) of categories, L for unseen ones, L + 1 for missing values
        self.codes: dict[int, str] = {}

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Append an operator with one output; inputs that are no names are constants."""
        return self._append(operator, inputs, [f"_v{len(self._nodes)}"], **attributes)[0]

    def split(self, value: str, sizes: list[int], axis: int) -> list[str]:
        """Split a value into parts of these sizes."""
        names = [f"_v{len(self._nodes)}_{i}" for i in range(len(sizes))]
        return self._append("Split", (value, sizes), names, axis=axis)

    def name(self, value: str, name: str) -> None:
        """Name a value as an output."""
        self._append("Identity", (value,), [name])

    def cast(self, value: str, dtype: Any) -> str:
        """Cast a value to another type."""
        return self.add("Cast", value, to=self._type(dtype))

    def tensor(self, values: Any, name: str | None = None) -> Any:
        """Return an array in the form of ONNX, numbers in 64 bits."""
        array = np.asarray(values)
        wide = {"i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind, array.dtype)
        return self._onnx.numpy_helper.from_array(array.astype(wide), name)

    def model(self, inputs: dict[str, Value], outputs: dict[str, Value], about: str) -> Any:
        """Return the checked model with inputs and outputs by name, as type and shape.

        Shapes are those of one row; the number of rows is left open.
        """
        helper = self._onnx.helper
        given, results = (
            [
                helper.make_tensor_value_info(name, self._type(dtype), ["n", *shape])
                for name, (dtype, shape) in values.items()
            ]
            for values in (inputs, outputs)
        )
        graph = helper.make_graph(self._nodes, "jointleaf", given, results, self._constants)
        versions = {"": _OPSET, ML_DOMAIN: _ML_OPSET}
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*version) for version in versions.items()],
            ir_version=_IR_VERSION,
            producer_name="jointleaf",
            producer_version=jointleaf.__version__,
            doc_string=about,
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _append(
        self, operator: str, inputs: Sequence[Any], outputs: list[str], **attributes: Any
    ) -> list[str]:
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self._nodes.append(self._onnx.helper.make_node(operator, names, outputs, **attributes))
        return outputs

    def _constant(self, values: Any) -> str:
        name = f"_c{len(self._constants)}"
        self._constants.append(self.tensor(values, name))
        return name

    def _type(self, dtype: Any) -> int:
        if np.dtype(dtype).kind in "OU":
            return int(self._onnx.TensorProto.STRING)
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
