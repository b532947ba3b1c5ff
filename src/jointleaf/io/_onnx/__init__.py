"""Fitted models as ONNX graphs, for prediction where there is no Python."""

from jointleaf.io._onnx.exporting import to_onnx

__all__ = ["to_onnx"]
