"""The certificate that HTTPS is served with."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from rose.protocol import UserError


class TlsError(UserError):
    """A certificate and key that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's certificate.

    Attributes:
        certificate: PEM file with it, and those of who signed it.
        key: PEM file with its private key, not encrypted.
    """

    certificate: Path
    key: Path

    @classmethod
    def checked(cls, certificate: Path, key: Path) -> "Tls":
        """These files, if they belong together.

        Raises:
            TlsError: they do not, or are no certificate and key.
            OSError: one cannot be read.
        """
        for path in (certificate, key):
            path.open("rb").close()  # an error that names the file, as the next one does not
        try:
            # The password is never asked for at a terminal: servers start without one.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key, password=_no_password)
        except ssl.SSLError as error:
            reason = error.reason or "not PEM"
            raise TlsError(
                f"{certificate} and {key} must be a certificate and its key, both PEM, the key not "
                f"encrypted: {reason}"
            ) from None
        return cls(certificate, key)


def _no_password() -> bytes:
    return b""
