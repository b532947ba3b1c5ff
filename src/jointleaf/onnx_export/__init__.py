"""Fitted models as ONNX graphs, for prediction where there is no Python."""

from jointleaf.onnx_export.exporting import to_onnx

__all__ = ["to_onnx"]
