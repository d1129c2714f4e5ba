"""The OpenAPI document of the front end."""

from collections.abc import Iterator

from rose.server.app import FrontEnd, create_app
from rose.server.engine_client import EngineClient


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from references(value)
    if isinstance(node, list):
        for value in node:
            yield from references(value)


async def test_every_reference_of_the_document_can_be_followed(tmp_path):
    async with EngineClient(f"ipc://{tmp_path}/nobody") as client:
        document = create_app(FrontEnd(client, None)).openapi()
    found = set(references(document))
    assert "#/components/schemas/ChatCompletionRequest.ChatMessage" in found
    for reference in found:
        node = document
        for name in reference.removeprefix("#/").split("/"):
            assert name in node, reference
            node = node[name]
