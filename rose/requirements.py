"""What an engine needs besides the front end's packages: torch and its company."""

from importlib.util import find_spec

from rose.protocol import UserError

ENGINE_PACKAGES = ("torch", "numpy", "safetensors")


class MissingPackageError(UserError, ImportError):
    """A package is not installed without which no model can run."""


def require_engine() -> None:
    """Check that this installation can run a model; imports nothing.

    Raises:
        MissingPackageError: it lacks a package; the message says how to install it.
    """
    missing = [name for name in ENGINE_PACKAGES if not _is_installed(name)]
    if missing:
        raise MissingPackageError(
            f"{' and '.join(missing)} not installed, which running a model needs: pip install "
            "torch (the build for your device), then pip install 'rose[engine]'"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # an import hook forbids it
        return False
