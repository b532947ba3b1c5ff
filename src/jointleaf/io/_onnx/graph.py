"""A graph of ONNX operators that is being put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ML_DOMAIN", "Graph", "import_onnx"]

ML_DOMAIN = "ai.onnx.ml"
# Old enough for runtimes of 2022 on, new enough for reductions over axes that are inputs.
_OPSET, _ML_OPSET, _IR_VERSION = 18, 3, 8


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

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """Add an array of this type; None keeps the type that the array has."""
        array = np.asarray(values, dtype=dtype)
        name = f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Append an operator with one output."""
        return self._append(operator, inputs, [f"v{len(self._nodes)}"], domain, attributes)[0]

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Split a value into parts of these sizes."""
        names = [f"v{len(self._nodes)}_{i}" for i in range(len(sizes))]
        inputs = (value, self.constant(sizes, np.int64))
        return self._append("Split", inputs, names, "", {"axis": axis})

    def name(self, value: str, name: str) -> None:
        """Name a value as an output."""
        self._append("Identity", (value,), [name], "", {})

    def cast(self, value: str, dtype: Any) -> str:
        """Cast a value to another type."""
        number = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add("Cast", value, to=number)

    def tensor(self, values: NDArray) -> Any:
        """Return an array as an attribute of an operator."""
        return self._onnx.numpy_helper.from_array(values)

    def model(
        self, n_features: int, outputs: dict[str, tuple[Any, tuple[int, ...]]], **about: Any
    ) -> Any:
        """Return the checked model: input X (n, d) of doubles, outputs by name (type, shape).

        Shapes are those of one row; the number of rows is left open.
        """
        helper = self._onnx.helper
        double = self._onnx.TensorProto.DOUBLE
        results = [
            helper.make_tensor_value_info(name, _tensor_type(self._onnx, dtype), ["n", *shape])
            for name, (dtype, shape) in outputs.items()
        ]
        rows = helper.make_tensor_value_info("X", double, ["n", n_features])
        graph = helper.make_graph(self._nodes, "jointleaf", [rows], results, self._constants)
        versions = [
            helper.make_opsetid("", _OPSET),
            helper.make_opsetid(ML_DOMAIN, _ML_OPSET),
        ]
        model = helper.make_model(
            graph,
            opset_imports=versions,
            ir_version=_IR_VERSION,
            producer_name="jointleaf",
            **about,
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _append(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: list[str],
        domain: str,
        attributes: dict[str, Any],
    ) -> list[str]:
        node = self._onnx.helper.make_node(operator, inputs, outputs, domain=domain, **attributes)
        self._nodes.append(node)
        return outputs


def _tensor_type(onnx: Any, dtype: Any) -> int:
    if np.dtype(dtype).kind in "OU":
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
