"""How to serve."""

from dataclasses import dataclass, field
from pathlib import Path

from rose.server.policy import Policy
from rose.server.supervisor import RestartPolicy
from rose.server.tls import Tls


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve.

    Attributes:
        tokenizer_folder: holds tokenizer.json; None: the folder of the engine's checkpoint.
        drain_s: seconds that requests in flight get to finish on ^C or SIGTERM.
        engine_exit_s: seconds that the engine process gets to leave before it is killed.
        dead_after_s: seconds of silence after which the engine counts as dead.
        chat_format: name of the model's chat format; None: found from its files.
        policy: about clients.
        tls: serve HTTPS; None: HTTP.
        keep_alive_s: seconds that a connection without a request stays open.
        restart: how an engine process that died is started again; None: not at all.
        num_engines: engine processes to start.
        num_front_ends: front-end processes, this one included. With several, the socket must be
            a shared one.
    """

    tokenizer_folder: Path | None = None
    drain_s: float = 30.0
    engine_exit_s: float = 10.0
    dead_after_s: float = 10.0
    chat_format: str | None = None
    policy: Policy = field(default_factory=Policy)
    tls: Tls | None = None
    keep_alive_s: int = 5
    restart: RestartPolicy | None = field(default_factory=RestartPolicy)
    num_engines: int = 1
    num_front_ends: int = 1
