"""httpx's functions with patience: by default they give up after 5 s, which a pause can take."""

import contextlib
import functools
import http.client
import json
from collections.abc import Iterator

import httpx

from tests.engine_processes import PATIENCE_S

get = functools.partial(httpx.get, timeout=PATIENCE_S)
head = functools.partial(httpx.head, timeout=PATIENCE_S)
options = functools.partial(httpx.options, timeout=PATIENCE_S)
post = functools.partial(httpx.post, timeout=PATIENCE_S)
delete = functools.partial(httpx.delete, timeout=PATIENCE_S)
request = functools.partial(httpx.request, timeout=PATIENCE_S)
stream = functools.partial(httpx.stream, timeout=PATIENCE_S)
Client = functools.partial(httpx.Client, timeout=PATIENCE_S)


@contextlib.contextmanager
def posted(url: str, body: object, headers: dict[str, str] | None = None) -> Iterator[None]:
    """Post a body and read nothing of the answer; the client hangs up at the end of the context."""
    target = httpx.URL(url)
    connection = http.client.HTTPConnection(target.host, target.port or 80, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("POST", target.path, json.dumps(body), headers or {})
        yield
