"""Safe model files: fitted models as documented, checked data; nothing in them is ever run."""

from jointleaf.io._model_file.container import ModelFileError
from jointleaf.io._model_file.files import load, load_metadata, save

__all__ = ["ModelFileError", "load", "load_metadata", "save"]
