"""The one error of model files."""

__all__ = ["ModelFileError"]

_MOST = 400  # characters of a message, parts of which may come from a damaged file


class ModelFileError(ValueError):
    """A model cannot be saved, or a file is no valid model file; the message is one line."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        super().__init__(line if len(line) <= _MOST else f"{line[:_MOST]}...")
