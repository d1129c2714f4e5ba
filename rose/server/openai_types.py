"""What clients post: OpenAI's request types, and what they mean to the engine."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rose.protocol import InvalidRequestError, SamplingParams

MAX_CHOICES = 128
MAX_CALL_CHOICES = 4096
"""Prompts times n of one call, so that none keeps everybody else waiting for long."""

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024
MAX_ID_DIGITS = 10
DEFAULT_MAX_TOKENS = 16
"""OpenAI's, of the legacy completions API."""

Prompt = str | list[int]
"""Text, or token ids."""


class StreamOptions(BaseModel):
    """How to stream."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # never done; harmless


class SamplingFields(BaseModel):
    """What the bodies of completions and of chat completions have in common.

    Fields that are null count as absent. Unknown fields are refused, lest a setting that matters
    be ignored in silence.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None  # of no effect here

    # Beyond OpenAI's.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    priority: int | None = None

    @field_validator("stop", mode="after")
    @classmethod
    def _check_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        stops = [stop] if isinstance(stop, str) else stop or []
        if len(stops) > MAX_STOP_STRINGS:
            raise ValueError(f"stop: at most {MAX_STOP_STRINGS} strings; got {len(stops)}")
        if not all(0 < len(s) <= MAX_STOP_LENGTH for s in stops):
            raise ValueError(f"stop: strings of 1 to {MAX_STOP_LENGTH} characters; got {stops!r}")
        return stop

    def stop_strings(self) -> tuple[str, ...]:
        """The strings that end the text."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def num_choices(self) -> int:
        """How many choices a prompt gets."""
        return 1 if self.n is None else self.n

    def check_shared(self) -> None:
        """Refuse too many choices, and stream options without a stream.

        Raises:
            InvalidRequestError: it names the field.
        """
        if self.num_choices() > MAX_CHOICES:
            raise InvalidRequestError(f"n must be at most {MAX_CHOICES}; got {self.n}", "n")
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options needs stream: true", "stream_options")

    def shared_sampling(
        self,
        *,
        max_tokens: int | None,
        logprobs: int | None,
        prompt_logprobs: int | None = None,
        stop_token_ids: tuple[int, ...] = (),
    ) -> SamplingParams:
        """The engine's parameters.

        Args:
            max_tokens: as the endpoint means it.
            logprobs: likewise.
            prompt_logprobs: likewise.
            stop_token_ids: besides the client's own.

        Raises:
            InvalidRequestError: a value is out of range; it names the field.
        """
        given = {name: value for name in _PASSED_ON if (value := getattr(self, name)) is not None}
        return SamplingParams(
            **given,
            max_tokens=max_tokens,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            logit_bias=token_keys(self.logit_bias or {}),
            stop_token_ids=(*stop_token_ids, *(self.stop_token_ids or ())),
        )


class CompletionRequest(SamplingFields):
    """The body of POST /v1/completions."""

    prompt: object = Field(
        description="a string, a list of strings, a list of token ids, or a list of such lists"
    )
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None  # refused unless it changes nothing
    suffix: str | None = None  # refused

    # Beyond OpenAI's.
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None

    def prompts(self) -> Sequence[Prompt]:
        """The prompts, one or more.

        Raises:
            InvalidRequestError: it is none of the four shapes, or holds too many.
        """
        prompts = self._prompts()
        if len(prompts) * self.num_choices() > MAX_CALL_CHOICES:
            raise InvalidRequestError(
                f"{len(prompts)} prompts times n ({self.num_choices()}) make more than "
                f"{MAX_CALL_CHOICES} choices: post them in several calls",
                "prompt",
            )
        return prompts

    def _prompts(self) -> Sequence[Prompt]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if isinstance(prompt, list) and prompt:
            if _all_of(str, prompt):
                return prompt
            if _all_of(int, prompt):
                return [prompt]
            if _all_of(list, prompt) and all(_all_of(int, ids) for ids in prompt):
                return prompt
        shown = repr(prompt)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise InvalidRequestError(
            "prompt must be a string, a list of strings, a list of token ids or a list of lists of "
            f"token ids; got {shown}",
            "prompt",
        )

    def scores_only(self) -> bool:
        """Whether only the prompt's own log-probabilities are wanted (max_tokens 0)."""
        return self.max_tokens == 0

    def check(self) -> None:
        """Refuse what Rose does not do, and combinations that make no sense.

        Raises:
            InvalidRequestError: it names the field.
        """
        if self.suffix:
            raise InvalidRequestError("suffix is not supported: leave it out", "suffix")
        if self.best_of not in (None, self.num_choices()):
            raise InvalidRequestError(
                f"best_of is not supported: leave it out, or set it to n ({self.num_choices()})",
                "best_of",
            )
        self.check_shared()
        if (self.logprobs or 0) > MAX_LOGPROBS:
            raise InvalidRequestError(
                f"logprobs must be at most {MAX_LOGPROBS}; got {self.logprobs}", "logprobs"
            )
        if self.scores_only() and not self.echo:
            raise InvalidRequestError(
                "max_tokens must be at least 1; got 0, which needs echo: true", "max_tokens"
            )
        if self.echo and self.logprobs is not None and self.num_choices() > 1:
            raise InvalidRequestError("echo with logprobs needs n: 1", "n")

    def sampling(self) -> SamplingParams:
        """The parameters of one prompt's request.

        Raises:
            InvalidRequestError: a value is out of range; it names the field.
        """
        return self.shared_sampling(
            max_tokens=self._engine_max_tokens(),
            logprobs=self.logprobs,
            prompt_logprobs=self.logprobs if self.echo else None,
        )

    def _engine_max_tokens(self) -> int:
        if self.max_tokens is None:
            return DEFAULT_MAX_TOKENS
        return 1 if self.scores_only() else self.max_tokens  # that one token is dropped


_PASSED_ON = (
    "n",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "ignore_eos",
)


def _all_of(kind: type, values: list[object]) -> bool:
    return all(type(value) is kind for value in values)


def token_keys(bias: dict[str, float]) -> dict[int, float]:
    """A `logit_bias` field by token id.

    Raises:
        InvalidRequestError: a key is no token id.
    """
    for key in bias:
        if not (key.isascii() and key.isdecimal() and len(key) <= MAX_ID_DIGITS):
            raise InvalidRequestError(
                f"logit_bias must be keyed by token ids; got {key[:80]!r}", "logit_bias"
            )
    return {int(key): value for key, value in bias.items()}
