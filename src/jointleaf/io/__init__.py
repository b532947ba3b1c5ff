"""Model files: `save`, `load`, and the exports to ONNX and SQL."""

from jointleaf.io._model_file.container import ModelFileError
from jointleaf.io._model_file.files import load, load_metadata, save
from jointleaf.io._onnx import to_onnx
from jointleaf.io._sql import to_sql

__all__ = ["ModelFileError", "load", "load_metadata", "save", "to_onnx", "to_sql"]
