"""Who may use a front end, for how much, and what it keeps and tells of that."""

from dataclasses import dataclass, field

from rose.server.auth import ApiKeys
from rose.server.limits import Limits
from rose.server.responses.store import StoreLimits


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's choices about clients.

    Attributes:
        keys: that open the server; none: it is open to all who reach it.
        limits: of what clients ask for.
        stored: of the responses that are kept.
        cors_origins: origins whose pages may call this server from a browser; "*": all.
        access_log: write a line of JSON a request to standard error.
    """

    keys: ApiKeys = field(default_factory=ApiKeys)
    limits: Limits = field(default_factory=Limits)
    stored: StoreLimits = field(default_factory=StoreLimits)
    cors_origins: tuple[str, ...] = ()
    access_log: bool = False
