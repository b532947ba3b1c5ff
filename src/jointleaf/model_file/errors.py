"""The one error of model files."""

__all__ = ["ModelFileError"]


class ModelFileError(ValueError):
    """A model cannot be saved, or a file is no valid model file; the message is one line."""
