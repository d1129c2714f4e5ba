"""What some commands need besides the front end's packages: torch and its company, or a client."""

from collections.abc import Sequence
from importlib.util import find_spec

from rose.protocol import UserError

ENGINE_PACKAGES = ("torch", "numpy", "safetensors")
LOAD_PACKAGES = ("aiohttp", "numpy")


class MissingPackageError(UserError, ImportError):
    """A package is not installed without which no model can run."""


def require_engine() -> None:
    """Check that this installation can run a model; imports nothing.

    Raises:
        MissingPackageError: it lacks a package; the message says how to install it.
    """
    missing = _missing(ENGINE_PACKAGES)
    if missing:
        raise MissingPackageError(
            f"{missing} not installed, which running a model needs: pip install "
            "torch (the build for your device), then pip install 'rose[engine]'"
        )


def require_load_generator() -> None:
    """Check that this installation can put load on a server; imports nothing.

    Raises:
        MissingPackageError: it lacks a package; the message says how to install it.
    """
    missing = _missing(LOAD_PACKAGES)
    if missing:
        raise MissingPackageError(
            f"{missing} not installed, which rose bench serve needs: pip install 'rose[bench]'"
        )


def _missing(names: Sequence[str]) -> str:
    """Those that are not installed, in words; empty: all are."""
    return " and ".join(name for name in names if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # an import hook forbids it
        return False
