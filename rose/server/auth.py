"""API keys: which requests may come in, and whose they are."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from rose.protocol import UserError
from rose.server.errors import ApiError

OPEN_PATHS = frozenset({"/health", "/ready", "/metrics", "/version"})
"""Of those who watch the server; they need no key and show nothing of anyone's requests."""

MAX_KEY_LENGTH = 512
NOBODY = ""
"""Owner of all requests of a server without keys."""


class ApiKeyError(UserError):
    """A key, or a file of keys, that cannot be used; the message does not show the key."""


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """The keys that open this server. Only their hashes are kept.

    Attributes:
        digests: SHA-256 of each; none: the server is open to all.
    """

    digests: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, keys: Iterable[str]) -> "ApiKeys":
        """These keys.

        Raises:
            ApiKeyError: one is empty, too long, or has characters that no header carries.
        """
        return cls(tuple(_digest(_checked(key, "an API key").encode()) for key in keys))

    @classmethod
    def read(cls, path: Path) -> "ApiKeys":
        """Those of a file: one a line; empty lines and lines that begin with # are skipped.

        Raises:
            ApiKeyError: it holds none, or one that cannot be used.
            OSError: it cannot be read.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise ApiKeyError(f"{path} is no UTF-8 text; put one key a line") from None
        found = []
        for number, line in enumerate(lines, 1):
            key = line.strip()
            if key and not key.startswith("#"):
                found.append(_digest(_checked(key, f"{path} line {number}").encode()))
        if not found:
            raise ApiKeyError(f"{path} holds no API key; put one a line")
        return cls(tuple(found))

    def __or__(self, other: "ApiKeys") -> "ApiKeys":
        return ApiKeys(tuple(dict.fromkeys(self.digests + other.digests)))

    def owner(self, key: bytes) -> str | None:
        """A name for who holds this key; None: it is none of these.

        It takes as long whichever key is right, and however much of it.
        """
        presented = _digest(key)
        matches = [hmac.compare_digest(presented, digest) for digest in self.digests]
        return presented.hex() if any(matches) else None


def _checked(key: str, what: str) -> str:
    if not key or len(key) > MAX_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise ApiKeyError(
            f"{what} must be 1 to {MAX_KEY_LENGTH} printable ASCII characters; it has {len(key)} "
            "characters"
        )
    if " " in key:
        raise ApiKeyError(f"{what} must hold no spaces")
    return key


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class KeyGate:
    """Lets in requests with a key, and names their owner in the state (ASGI).

    Args:
        app: what is behind it.
        keys: that open it; it stands open if there are none.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or pass the request on."""
        owner: str | None = NOBODY
        if self._keys.digests and scope["type"] != "lifespan" and scope["path"] not in OPEN_PATHS:
            owner = self._keys.owner(_bearer(scope))
        if owner is None:
            await _unauthorized(scope).response()(scope, receive, send)
            return
        scope.setdefault("state", {})["owner"] = owner
        await self._app(scope, receive, send)


def _bearer(scope: Scope) -> bytes:
    """What stands behind `Authorization: Bearer`; empty if nothing does."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = bytes(value).partition(b" ")
            return key.strip() if scheme.lower() == b"bearer" else b""
    return b""


def _unauthorized(scope: Scope) -> ApiError:
    given = _bearer(scope)
    message = (
        "this API key does not open this server; ask its operator for one"
        if given
        else "this server needs an API key: send the header Authorization: Bearer KEY"
    )
    headers = {"WWW-Authenticate": "Bearer"}
    return ApiError(401, message, code="invalid_api_key", headers=headers)
