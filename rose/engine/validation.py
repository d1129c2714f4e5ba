"""What a request must satisfy to be served by one engine; everything else is refused at once."""

import itertools
from collections.abc import Iterable, Sequence

from rose.config import EngineConfig
from rose.protocol import InvalidRequestError, Request, SamplingParams

MAX_N = 128
"""The most sequences of one request. More than fit in a step take turns."""

MAX_LOGPROBS = 64
"""The most alternatives to report a token: each costs a sorted entry and its bytes on the wire."""


MAX_PRIORITY = 1000
"""Levels of priority, up and down: each is worth `priority_aging` arrivals."""


def check_prompts(
    config: EngineConfig,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams] | None = None,
) -> None:
    """Refuse, before the model is loaded, prompts that no engine of this model could serve.

    The engine may refuse more of them: its cache may hold less than the model allows.

    Raises:
        InvalidRequestError: it names the prompt, if there are several, and the field.
    """
    make_requests(
        prompts,
        params,
        request_ids=map(str, itertools.count()),
        vocab_size=config.model.vocab_size,
        longest=config.longest_sequence,
    )


def make_requests(
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams] | None,
    *,
    request_ids: Iterable[str],
    vocab_size: int,
    longest: int,
) -> list[Request]:
    """A valid request for each prompt.

    Args:
        prompts: token ids of each prompt.
        params: for all prompts alike, or one for each; None: the defaults.
        request_ids: at least as many as prompts.
        vocab_size: as for `check_request`.
        longest: as for `check_request`.

    Raises:
        InvalidRequestError: it names the prompt, if there are several, and the field.
    """
    requests = []
    each = _params_of_each(prompts, params)
    for index, (prompt, own, name) in enumerate(zip(prompts, each, request_ids, strict=False)):
        where = f"prompt {index}: " if len(prompts) > 1 else ""
        if isinstance(prompt, str | int):
            message = f"{where}a prompt must be a list of token ids; got {prompt!r}"
            raise InvalidRequestError(message, "prompt_token_ids")
        request = Request(request_id=name, prompt_token_ids=list(prompt), sampling=own)
        try:
            check_request(request, vocab_size=vocab_size, longest=longest)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{where}{error.message}", error.param) from None
        requests.append(request)
    return requests


def _params_of_each(
    prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams] | None
) -> Sequence[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if len(params) != len(prompts):
        raise InvalidRequestError(
            f"{len(prompts)} prompts, but {len(params)} sampling parameters: give one for all, or "
            "one for each",
            "params",
        )
    return params


def check_request(request: Request, *, vocab_size: int, longest: int) -> None:
    """Check what `SamplingParams` alone cannot: lengths, vocabulary, this engine's bounds.

    Args:
        request: any.
        vocab_size: ids are in [0, vocab_size).
        longest: the longest sequence, prompt and output, that model and cache hold, in tokens.

    Raises:
        InvalidRequestError: it names the field, what was found and what would do.
    """
    sampling = request.sampling
    _check_prompt(request.prompt_token_ids, vocab_size)
    _check_length(len(request.prompt_token_ids), sampling.max_tokens, longest)
    _check_ids(sampling.stop_token_ids, vocab_size, "stop_token_ids")
    _check_ids(sampling.logit_bias, vocab_size, "logit_bias")
    if request.grammar is not None:
        _check_no_other_end(sampling)
    if sampling.n > MAX_N:
        raise InvalidRequestError(f"n must be at most {MAX_N}; got {sampling.n}", "n")
    if abs(request.priority) > MAX_PRIORITY:
        raise InvalidRequestError(
            f"priority must be from -{MAX_PRIORITY} to {MAX_PRIORITY}; got {request.priority}",
            "priority",
        )
    most = min(MAX_LOGPROBS, vocab_size)
    for param, count in (
        ("logprobs", sampling.logprobs),
        ("prompt_logprobs", sampling.prompt_logprobs),
    ):
        if count is not None and count > most:
            raise InvalidRequestError(f"{param} must be at most {most}; got {count}", param)


def _check_no_other_end(sampling: SamplingParams) -> None:
    """A grammar alone says where its sequence may end."""
    if sampling.ignore_eos:
        raise InvalidRequestError(
            "ignore_eos does not go with a grammar, which ends with an end token", "ignore_eos"
        )
    if sampling.min_tokens:
        raise InvalidRequestError(
            "min_tokens does not go with a grammar, which may end sooner: leave it out",
            "min_tokens",
        )


def _check_prompt(prompt: list[int], vocab_size: int) -> None:
    if not prompt:
        raise InvalidRequestError(
            "the prompt is empty; it needs at least one token id", "prompt_token_ids"
        )
    for kind in set(map(type, prompt)):
        if kind is not int:
            raise InvalidRequestError(
                f"prompt_token_ids must be integers; found one of type {kind.__name__}",
                "prompt_token_ids",
            )
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        _check_ids(prompt, vocab_size, "prompt_token_ids")


def _check_ids(ids: Iterable[int], vocab_size: int, param: str) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"{param} holds id {token}; this model's ids are 0 to {vocab_size - 1}", param
            )


def _check_length(num_prompt: int, max_tokens: int | None, longest: int) -> None:
    if num_prompt >= longest:
        raise InvalidRequestError(
            f"the prompt has {num_prompt} tokens; this engine holds {longest} tokens a sequence, "
            f"prompt and output together: shorten the prompt to at most {longest - 1}",
            "prompt_token_ids",
        )
    if max_tokens is not None and num_prompt + max_tokens > longest:
        raise InvalidRequestError(
            f"prompt ({num_prompt} tokens) and max_tokens ({max_tokens}) add up to "
            f"{num_prompt + max_tokens}; this engine holds {longest} tokens a sequence: ask for "
            f"max_tokens of at most {longest - num_prompt}, or shorten the prompt",
            "max_tokens",
        )
