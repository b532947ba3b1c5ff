"""Safe model files: fitted models as documented, checked data; nothing in them is ever run."""

from jointleaf.model_file.errors import ModelFileError
from jointleaf.model_file.files import load, save

__all__ = ["ModelFileError", "load", "save"]
