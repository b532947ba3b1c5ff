"""Model files: `save`, `load`, and the export to ONNX."""

from jointleaf.io._model_file import ModelFileError, load, load_metadata, save
from jointleaf.io._onnx import to_onnx

__all__ = ["ModelFileError", "load", "load_metadata", "save", "to_onnx"]
