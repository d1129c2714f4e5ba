"""All that the front end and the engine share: requests, sampling parameters, outputs, events.

Only token ids cross this boundary. The types are plain dataclasses of plain values, so that they
encode to MessagePack as they are (`rose.wire`) and import neither torch nor a web framework.
"""

import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

SEED_LIMIT = 2**63
"""Seeds are integers in [0, SEED_LIMIT)."""


class UserError(ValueError):
    """What a user can mend; the message is one line: what was wrong, found and would do."""


class InvalidRequestError(UserError):
    """A request that can never be served as it stands.

    Attributes:
        message: what was wrong, what was found and what would do.
        param: the field at fault, or an empty string.
    """

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class EngineDeadError(RuntimeError):
    """The engine stopped and takes no more requests; the message says why."""


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # a stop token, eos included
    LENGTH = "length"  # max_tokens, or the longest sequence that the model or the cache can hold
    ABORT = "abort"  # the client gave up
    ERROR = "error"  # the engine failed


def _require(condition: bool, param: str, wanted: str, found: object) -> None:
    if not condition:
        raise InvalidRequestError(f"{param} must be {wanted}; got {found!r}", param)


def _finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # Compared and not converted: an integer may be too large for a float.
    return -sys.float_info.max <= value <= sys.float_info.max


def _integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose the next tokens of a request.

    The filters apply in this order: penalties and bias, temperature, top-k, top-p, min-p.

    Attributes:
        n: sequences to sample from the same prompt.
        max_tokens: the most tokens to generate; None: as many as the model and the cache hold.
        min_tokens: no stop token is sampled before this many tokens.
        temperature: 0 is greedy.
        top_k: keep the k best tokens; 0 keeps all.
        top_p: keep the smallest set of best tokens whose probability reaches top_p.
        min_p: drop tokens less likely than min_p times the best one.
        repetition_penalty: divide (multiply, if negative) the logits of tokens seen in prompt or
            output; 1 is off (CTRL, Keskar et al. 2019).
        presence_penalty: subtracted once from the logit of each token seen in the output.
        frequency_penalty: subtracted for each time that a token stands in the output.
        logit_bias: added to the logits of these token ids.
        seed: makes the sampled tokens a function of request, seed and model alone, whatever else
            is in the batch; None: the engine draws one.
        stop_token_ids: end the sequence; the stop token itself is part of the output.
        ignore_eos: do not stop at the model's own end-of-sequence tokens.
        logprobs: return the log-probability of each sampled token and of the best `logprobs`
            others (0: of the sampled token alone); None: return none.
        prompt_logprobs: the same for the prompt's tokens from the second on.

    Log-probabilities are those of the model's logits before any filter or penalty.

    Raises:
        InvalidRequestError: a value is out of range; it names the field.
    """

    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        """Check every field's range."""
        _require(_integer(self.n) and self.n >= 1, "n", "an integer of at least 1", self.n)
        if self.max_tokens is not None:
            ok = _integer(self.max_tokens) and self.max_tokens >= 1
            _require(ok, "max_tokens", "an integer of at least 1, or absent", self.max_tokens)
        ok = _integer(self.min_tokens) and self.min_tokens >= 0
        _require(ok, "min_tokens", "an integer of at least 0", self.min_tokens)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})",
                "min_tokens",
            )
        ok = _finite(self.temperature) and self.temperature >= 0
        _require(ok, "temperature", "a finite number of at least 0", self.temperature)
        ok = _integer(self.top_k) and self.top_k >= 0
        _require(ok, "top_k", "an integer of at least 0 (0 keeps all tokens)", self.top_k)
        ok = _finite(self.top_p) and 0 < self.top_p <= 1
        _require(ok, "top_p", "a number in (0, 1]", self.top_p)
        ok = _finite(self.min_p) and 0 <= self.min_p <= 1
        _require(ok, "min_p", "a number in [0, 1]", self.min_p)
        ok = _finite(self.repetition_penalty) and self.repetition_penalty > 0
        _require(ok, "repetition_penalty", "a finite number above 0", self.repetition_penalty)
        for param in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, param)
            _require(_finite(value), param, "a finite number", value)
        for token, bias in self.logit_bias.items():
            _require(_integer(token) and token >= 0, "logit_bias", "keyed by token ids", token)
            _require(_finite(bias), "logit_bias", "a map to finite numbers", bias)
        if self.seed is not None:
            ok = _integer(self.seed) and 0 <= self.seed < SEED_LIMIT
            _require(ok, "seed", "an integer in [0, 2**63)", self.seed)
        for token in self.stop_token_ids:
            ok = _integer(token) and token >= 0
            _require(ok, "stop_token_ids", "token ids of at least 0", token)
        for param in ("logprobs", "prompt_logprobs"):
            value = getattr(self, param)
            if value is not None:
                _require(_integer(value) and value >= 0, param, "an integer of at least 0", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """What a sequence's generated ids must spell, stop id included.

    Attributes:
        kind: how `source` is written: Lark as llguidance reads it, with special tokens by their
            text (`<|end|>`) and JSON schemas (`%json {...}`).
        source: the grammar; its start rule is `start`.
    """

    kind: Literal["lark"] = "lark"
    source: str


@dataclass(slots=True, kw_only=True)
class Request:
    """One prompt to continue.

    Attributes:
        request_id: unique among the requests in flight at one engine.
        prompt_token_ids: at least one id.
        sampling: how to continue.
        priority: lower runs sooner. A request of priority p is served as if it had arrived later
            by p times the scheduler's `priority_aging`, so none waits for ever.
        grammar: what the continuation must follow; None: anything goes.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    grammar: Grammar | None = None


@dataclass(slots=True)
class TokenLogprobs:
    """The log-probability of one token, and the best alternatives at its position.

    Attributes:
        token_id: the token sampled, or given in the prompt.
        logprob: its natural-log probability.
        rank: 1 if it is the most likely token at its position.
        top: (token id, logprob) of the most likely tokens, best first.
    """

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


@dataclass(slots=True)
class RequestOutput:
    """What one step added to one sequence of a request.

    Attributes:
        request_id: whose output this is.
        index: which of the request's `n` sequences.
        token_ids: the new ids, a stop token included. Empty only if the sequence ended without one.
        finish_reason: None while the sequence goes on.
        logprobs: one entry a new id, if asked for.
        prompt_logprobs: one entry for each prompt token from the second on, if asked for; only
            with the request's first output that has ids, of sequence 0 unless that was aborted.
        num_prompt_tokens: length of the prompt.
        num_cached_tokens: how many of them came from the prefix cache.
    """

    request_id: str
    index: int
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class EngineInfo:
    """What a front end needs to know of the engine behind it; sent when the engine is ready.

    Attributes:
        model: the name that the model is served under.
        model_path: local folder of the checkpoint (its tokenizer and chat template).
        max_model_len: longest sequence, prompt and output, in tokens.
        vocab_size: ids are in [0, vocab_size).
        eos_token_ids: ids that end a sequence unless `ignore_eos`.
        max_num_seqs: sequences that can be in one step.
        description: one line for people: device, precision, cache size.
        session: names this front end's registration at this run of the engine process; when it
            changes, requests submitted under the old one are lost.
    """

    model: str
    model_path: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_num_seqs: int
    description: str
    session: str = ""


@dataclass(slots=True)
class EngineStats:
    """Counters and gauges of one engine, for /metrics. Counters only grow.

    Attributes:
        running, waiting: sequences in these states now.
        kv_blocks_used, kv_blocks_total: blocks in use by sequences, per group in the order of
            the groups (full, sliding).
        steps, prompt_tokens, cached_prompt_tokens, generated_tokens, preemptions: counters.
    """

    running: int = 0
    waiting: int = 0
    kv_blocks_used: tuple[int, ...] = ()
    kv_blocks_total: tuple[int, ...] = ()
    steps: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class Abort:
    """The client no longer wants a request, or one of its sequences.

    Attributes:
        request_id: of the request.
        index: of the sequence; None: all that are left.
    """

    request_id: str
    index: int | None = None


@dataclass(slots=True)
class Rejected:
    """The engine refused a request at once; it produces no output."""

    request_id: str
    message: str
    param: str


@dataclass(slots=True)
class OutputBatch:
    """All outputs of one step that belong to one front end."""

    outputs: list[RequestOutput]


@dataclass(slots=True)
class Heartbeat:
    """Sent by the engine process at a steady interval, busy or idle."""

    stats: EngineStats


@dataclass(slots=True)
class EngineFailed:
    """The engine's last message: it cannot go on, and everything in flight is lost."""

    message: str


@dataclass(slots=True)
class Hello:
    """A front end introduces itself; the engine answers with EngineInfo once it is ready."""


@dataclass(slots=True)
class Shutdown:
    """The front end that owns the engine process asks it to leave."""
