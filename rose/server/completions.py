"""POST /v1/completions: one HTTP call, the engine requests it makes and the answer."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rose.protocol import EngineDeadError, FinishReason, Request, RequestOutput
from rose.server.admission import PROMPT_FIELD
from rose.server.choice import Choice, Delta, TokenEntry, prompt_entries
from rose.server.detokenize import TextCodec
from rose.server.errors import ApiError
from rose.server.openai_types import CompletionRequest

_encode = msgspec.json.encode
DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class _PromptState:
    """One prompt of the call.

    Attributes:
        token_ids: the prompt.
        text: what is echoed before the completion.
        num_cached: tokens that came from the prefix cache.
    """

    token_ids: list[int]
    text: str
    num_cached: int = 0


class CompletionCall:
    """Turns the outputs of a call's engine requests into OpenAI's completion objects.

    Each prompt is one engine request of n sequences; choice numbers count prompt by prompt.

    Args:
        body: what the client posted, checked.
        prompts: its prompts as token ids.
        codec: the tokenizer; None: all text is empty.
        model: the served name.

    Attributes:
        requests: to submit to the engine.
        field_names: the body's name of each engine field that goes by another.

    Raises:
        InvalidRequestError: a sampling parameter is out of range.
    """

    field_names: Mapping[str, str] = {PROMPT_FIELD: "prompt"}

    def __init__(
        self,
        body: CompletionRequest,
        prompts: Sequence[list[int]],
        *,
        codec: TextCodec | None,
        model: str,
    ) -> None:
        self._body, self._codec = body, codec
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._n = body.num_choices()
        sampling = body.sampling()
        self._prompts = [_PromptState(ids, self._echo_of(ids)) for ids in prompts]
        self.requests = [
            Request(
                request_id=f"{self._id}-{number}",
                prompt_token_ids=ids,
                sampling=sampling,
                priority=body.priority or 0,
            )
            for number, ids in enumerate(prompts)
        ]
        self._numbers = {request.request_id: i for i, request in enumerate(self.requests)}
        self._choices = [self._choice(prompt) for prompt in self._prompts for _ in range(self._n)]
        self._wholes = [Delta() for _ in self._choices]
        self._cut_short: list[tuple[str, int]] = []
        self._echoed = [not body.echo] * len(self._choices)
        self._begun = [False] * len(self._choices)
        fields = {
            "id": self._id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._head = _encode(fields)[:-1]  # without its closing brace: choices follow
        options = body.stream_options
        self._streams_usage = bool(options and options.include_usage)
        self._chunk_tail = b',"usage":null}\n\n' if self._streams_usage else b"}\n\n"

    def _echo_of(self, prompt: list[int]) -> str:
        if not self._body.echo or self._codec is None:
            return ""
        return self._codec.decode(prompt, skip_special_tokens=False)

    def _choice(self, prompt: _PromptState) -> Choice:
        return Choice(
            self._codec,
            stop=self._body.stop_strings(),
            min_tokens=self._body.min_tokens or 0,
            skip_special_tokens=self._body.skip_special_tokens is not False,
            offset=len(prompt.text),
        )

    def collect(self, outputs: Sequence[RequestOutput]) -> None:
        """Take outputs of an answer that is not streamed."""
        for number, delta in self._feed(outputs):
            self._wholes[number].add(delta)

    def events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """Take outputs of a streamed answer; the events that they make."""
        return b"".join([self._chunk(number, delta) for number, delta in self._feed(outputs)])

    def _feed(self, outputs: Sequence[RequestOutput]) -> Iterator[tuple[int, Delta]]:
        """Deltas that outputs make, each with its choice's number.

        Raises:
            EngineDeadError: the engine gave up a sequence.
        """
        for output in outputs:
            prompt_number = self._numbers[output.request_id]
            prompt = self._prompts[prompt_number]
            prompt.num_cached = max(prompt.num_cached, output.num_cached_tokens)
            number = prompt_number * self._n + output.index
            choice = self._choices[number]
            if choice.finished:
                continue
            if output.finish_reason is FinishReason.ERROR:
                raise EngineDeadError("the engine failed to run this request")
            delta = choice.feed(output)
            if self._body.scores_only():
                delta = Delta(finish_reason=FinishReason.LENGTH.value)
            if not self._echoed[number]:
                self._echoed[number] = True
                delta = self._with_echo(prompt, output, delta)
            if choice.finished and output.finish_reason is None:
                self._cut_short.append((output.request_id, output.index))
            yield number, delta

    def _with_echo(self, prompt: _PromptState, output: RequestOutput, delta: Delta) -> Delta:
        entries: list[TokenEntry] = []
        if self._body.logprobs is not None:
            logprobs = output.prompt_logprobs or []  # of the second token on
            entries = prompt_entries(self._codec, prompt.token_ids, logprobs)
        echo = Delta(prompt.text, [], entries)
        echo.add(delta)
        return echo

    def take_cut_short(self) -> list[tuple[str, int]]:
        """Sequences (request id, index) that met a stop string since the last call."""
        cut_short, self._cut_short = self._cut_short, []
        return cut_short

    def _chunk(self, number: int, delta: Delta) -> bytes:
        """One event of a stream.

        Every output makes one, with empty text where a token has none (yet): clients that time
        tokens time chunks.
        """
        return b'data: %b,"choices":[%b]%b' % (
            self._head,
            self._choice_json(number, delta, begins=self._begins(number)),
            self._chunk_tail,
        )

    def failure_event(self, error: ApiError) -> bytes:
        """The end of a stream that failed."""
        return b"data: %b\n\n" % error.body()

    def closing_events(self) -> bytes:
        """The end of a stream: the usage, if asked for, and the end mark."""
        if not self._streams_usage:
            return DONE
        usage = _encode(self._usage())
        return b'data: %b,"choices":[],"usage":%b}\n\n%b' % (self._head, usage, DONE)

    def whole(self) -> bytes:
        """The answer that is not streamed, once all outputs are collected."""
        choices = b",".join(
            self._choice_json(i, delta, begins=True) for i, delta in enumerate(self._wholes)
        )
        return b'%b,"choices":[%b],"usage":%b}' % (self._head, choices, _encode(self._usage()))

    def _begins(self, number: int) -> bool:
        """Whether this is the choice's first chunk."""
        begins = not self._begun[number]
        self._begun[number] = True
        return begins

    def _choice_json(self, number: int, delta: Delta, *, begins: bool) -> bytes:
        logprobs, extra = b"null", b""
        if self._body.logprobs is not None:
            logprobs = _encode(_logprobs(delta.entries))
        if self._body.return_token_ids:
            ids = self._prompts[number // self._n].token_ids
            extra = b',"token_ids":%b' % _encode(delta.token_ids)
            if begins:
                extra += b',"prompt_token_ids":%b' % _encode(ids)
        reason = b'"%b"' % delta.finish_reason.encode() if delta.finish_reason else b"null"
        return b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b%b}' % (
            number,
            _encode(delta.text),
            logprobs,
            reason,
            extra,
        )

    def _usage(self) -> dict[str, object]:
        prompt_tokens = sum(len(prompt.token_ids) for prompt in self._prompts)
        generated = 0
        if not self._body.scores_only():
            generated = sum(choice.num_tokens for choice in self._choices)
        cached = sum(prompt.num_cached for prompt in self._prompts)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": prompt_tokens + generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


def _logprobs(entries: Sequence[TokenEntry]) -> dict[str, object]:
    return {
        "tokens": [entry.token for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [entry.top for entry in entries],
        "text_offset": [entry.offset for entry in entries],
    }
