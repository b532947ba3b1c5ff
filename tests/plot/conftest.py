"""What tests of displays share: figures are drawn without a screen, and closed after each."""

import builtins

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture
def ask_for_matplotlib(monkeypatch):
    """Check that a display says how to install matplotlib where it is missing."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    def check(display, draw, *args):
        hint = rf"{display.__name__} needs matplotlib: pip install 'jointleaf\[plot\]'"
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "__import__", without)
            with pytest.raises(ImportError, match=hint):
                display(*args).plot() if draw == "plot" else getattr(display, draw)(*args)

    return check
