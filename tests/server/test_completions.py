"""Events of a streamed completion, from outputs as an engine sends them."""

import json

from rose.protocol import FinishReason, RequestOutput
from rose.server.completions import CompletionCall
from rose.server.openai_types import CompletionRequest
from tests.server.test_choice import CODEC, E1, E2, RETURN, A, B


def stream(outputs, *, codec=CODEC, **fields) -> list[dict]:
    """The choice that each output's event tells of."""
    fields |= {"model": "m", "prompt": [A], "stream": True}
    body = CompletionRequest.model_validate(fields)
    call = CompletionCall(body, [[A]], codec=codec, model="m")
    [request] = call.requests
    choices = []
    for ids, reason in outputs:
        event = call.events([RequestOutput(request.request_id, 0, ids, reason)])
        [choice] = json.loads(event.removeprefix(b"data: "))["choices"]
        choices.append(choice)
    return choices


def texts(*outputs, **fields) -> list[str]:
    return [choice["text"] for choice in stream(outputs, **fields)]


def test_tokens_without_text_make_chunks():
    end = ([B], FinishReason.LENGTH)
    assert texts(([A], None), ([E1], None), ([E2], None), end) == ["a", "", "é", "b"]
    assert texts(([RETURN], None), ([A, B], None), end) == ["", "ab", "b"]
    assert texts(([A], None), ([B], None), ([A], None), end, stop=["abb"]) == ["", "", "ab", "ab"]
    assert texts(([A], None), end, codec=None) == ["", ""]


def test_the_first_chunk_tells_the_prompt_even_without_text():
    first, second = stream([([E1], None), ([E2], FinishReason.LENGTH)], return_token_ids=True)
    assert (first["text"], first["token_ids"], first["prompt_token_ids"]) == ("", [E1], [A])
    assert (second["text"], second["token_ids"]) == ("é", [E2])
    assert "prompt_token_ids" not in second


def test_a_sequence_that_ends_without_a_token_tells_why():
    assert [c["finish_reason"] for c in stream([([A], None), ([], FinishReason.STOP)])] == [
        None,
        "stop",
    ]
