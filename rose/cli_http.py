"""The options of commands that serve HTTP: where, to whom, and how much."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rose.config import ConfigError

if TYPE_CHECKING:
    from rose.server.auth import ApiKeys
    from rose.server.serve import ServeOptions
    from rose.server.tls import Tls

Command = Callable[..., object]

_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/?#\s]+")
_FILE = click.Path(path_type=Path)
_COUNT = click.IntRange(1)


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What the command line says of serving.

    Attributes:
        host: to listen at.
        port: to listen at; 0: any free one.
        serving: the rest.
    """

    host: str
    port: int
    serving: "ServeOptions"


# In the order in which --help lists them.
_OPTIONS: Sequence[Callable[[Command], Command]] = (
    click.option("--host", default="127.0.0.1", show_default=True),
    click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True),
    click.option(
        "--drain-seconds",
        type=click.FloatRange(0),
        default=30.0,
        show_default=True,
        help="What requests in flight get on ^C.",
    ),
    click.option(
        "--chat-format", metavar="NAME", help="harmony or template.  [default: the model's own]"
    ),
    click.option("--api-key", "api_keys", multiple=True, metavar="KEY", help="Opens the server."),
    click.option("--api-key-file", type=_FILE, metavar="FILE", help="API keys, one a line."),
    click.option("--tls-cert", type=_FILE, metavar="PEM", help="Serve HTTPS with it."),
    click.option("--tls-key", type=_FILE, metavar="PEM", help="Its private key."),
    click.option(
        "--cors-origin",
        "cors_origins",
        multiple=True,
        metavar="ORIGIN",
        help="Whose pages may call; *: anyone's.",
    ),
    click.option(
        "--max-queue",
        type=_COUNT,
        default=2048,
        show_default=True,
        help="Calls that may run or wait.",
    ),
    click.option(
        "--max-body-bytes",
        type=_COUNT,
        default=32 * 2**20,
        show_default=True,
        help="Of one request.",
    ),
    click.option("--max-prompt-tokens", type=_COUNT, help="Of one prompt."),
    click.option("--max-n", type=_COUNT, help="Choices a prompt."),
    click.option("--max-output-tokens", type=_COUNT, help="Of one choice."),
    click.option(
        "--request-timeout",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="What the engine gets for a call.",
    ),
    click.option(
        "--keep-alive",
        type=click.IntRange(0),
        default=5,
        show_default=True,
        metavar="SECONDS",
        help="For connections without a request.",
    ),
    click.option(
        "--max-stored-responses",
        type=click.IntRange(0),
        default=10_000,
        show_default=True,
        help="Of /v1/responses.",
    ),
    click.option(
        "--response-ttl",
        type=click.FloatRange(0),
        default=24 * 3600.0,
        show_default=True,
        metavar="SECONDS",
        help="How long they are stored.",
    ),
    click.option("--access-log", is_flag=True, help="A line of JSON a request; no prompt text."),
)


def http_options(command: Command) -> Command:
    """Give a command the options of serving, as one `http: HttpOptions`.

    Raises (when the command runs):
        UserError: an option cannot be.
    """

    @functools.wraps(command)
    def run(
        *args: object,
        host: str,
        port: int,
        drain_seconds: float,
        chat_format: str | None,
        api_keys: Sequence[str],
        api_key_file: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        cors_origins: Sequence[str],
        max_queue: int,
        max_body_bytes: int,
        max_prompt_tokens: int | None,
        max_n: int | None,
        max_output_tokens: int | None,
        request_timeout: float | None,
        keep_alive: int,
        max_stored_responses: int,
        response_ttl: float,
        access_log: bool,
        **values: object,
    ) -> object:
        from rose.server.limits import Limits
        from rose.server.policy import Policy
        from rose.server.responses.store import StoreLimits
        from rose.server.serve import ServeOptions

        _check_origins(cors_origins)
        _check_chat_format(chat_format)
        policy = Policy(
            keys=_keys(api_keys, api_key_file),
            limits=Limits(
                max_queue=max_queue,
                max_body_bytes=max_body_bytes,
                max_prompt_tokens=max_prompt_tokens,
                max_n=max_n,
                max_output_tokens=max_output_tokens,
                request_timeout_s=request_timeout,
            ),
            stored=StoreLimits(max_responses=max_stored_responses, ttl_s=response_ttl),
            cors_origins=tuple(cors_origins),
            access_log=access_log,
        )
        serving = ServeOptions(
            drain_s=drain_seconds,
            chat_format=chat_format,
            policy=policy,
            tls=_tls(tls_cert, tls_key),
            keep_alive_s=keep_alive,
        )
        return command(*args, http=HttpOptions(host, port, serving), **values)

    decorated: Command = run
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _keys(keys: Sequence[str], file: Path | None) -> "ApiKeys":
    from rose.server.auth import ApiKeys

    given = ApiKeys.of(keys)
    return given if file is None else given | ApiKeys.read(file)


def _tls(certificate: Path | None, key: Path | None) -> "Tls | None":
    from rose.server.tls import Tls

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("HTTPS needs both --tls-cert and --tls-key")
    return Tls.checked(certificate, key)


def _check_origins(origins: Sequence[str]) -> None:
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"--cors-origin {origin!r} must be * or an origin such as https://example.com, "
                "without a path"
            )


def _check_chat_format(name: str | None) -> None:
    from rose.server.chat.registry import FORMATS

    if name is not None and name not in FORMATS:
        raise ConfigError(f"--chat-format {name!r} must be one of {', '.join(FORMATS)}")
