"""Samples a token for each row, by the parameters of its slot.

The order is that of `SamplingParams`: stop ids masked before min_tokens, bias, penalties,
temperature, top-k, top-p, min-p; then a draw by noise that is a function of (seed, position, token
id), so a row's token depends on nothing else in its batch. Work that no row of a step asks for is
skipped, by what the host knows; nothing waits for the device. What the rows ask for travels in two
copies, one of integers and one of reals; rows that only take their best token need none.
"""

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rose.core.step import NewSequence
from rose.decoders.decoder import SampleRows
from rose.kernels import sampling
from rose.worker.token_pool import TokenPool
from rose.worker.upload import Number, Staging, upload

LEAST_TEMPERATURE = 1e-6
"""Below it a row is greedy: float32 could not tell the difference."""

LARGEST = 1e30
"""Bound on penalties, biases and temperatures, so that no sum of them leaves float32."""


class SlotParams:
    """Sampling parameters of every slot, in columns; on the host.

    Attributes:
        temperature: 0 where the best token is taken.
        logprobs, prompt_logprobs: how many to return besides the token's own; -1: none at all.
        prompt_length: tokens of the prompt.
    """

    def __init__(self, max_num_seqs: int, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.temperature = np.zeros(max_num_seqs)
        self.top_p = np.ones(max_num_seqs)
        self.min_p = np.zeros(max_num_seqs)
        self.repetition = np.ones(max_num_seqs)
        self.presence = np.zeros(max_num_seqs)
        self.frequency = np.zeros(max_num_seqs)
        self.top_k = np.zeros(max_num_seqs, dtype=np.int64)
        self.key = np.zeros((2, max_num_seqs), dtype=np.int64)
        self.min_tokens = np.zeros(max_num_seqs, dtype=np.int64)
        self.prompt_length = np.zeros(max_num_seqs, dtype=np.int64)
        self.logprobs = np.full(max_num_seqs, -1, dtype=np.int64)
        self.prompt_logprobs = np.full(max_num_seqs, -1, dtype=np.int64)
        self.filtered = np.zeros(max_num_seqs, dtype=np.bool_)
        self.penalized = np.zeros(max_num_seqs, dtype=np.bool_)
        self.biased = np.zeros(max_num_seqs, dtype=np.bool_)
        none: list[npt.NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * max_num_seqs
        self.stop_ids = list(none)
        self.bias_ids = list(none)
        self.bias_values = [np.zeros(0)] * max_num_seqs

    def admit(self, new: NewSequence) -> None:
        """Take a sequence's parameters into its slot."""
        slot, params = new.slot, new.sampling
        greedy = params.temperature < LEAST_TEMPERATURE
        self.temperature[slot] = 0 if greedy else min(params.temperature, LARGEST)
        self.top_k[slot] = params.top_k if params.top_k < self.vocab_size else 0
        self.top_p[slot] = params.top_p
        self.min_p[slot] = params.min_p
        self.repetition[slot] = min(max(params.repetition_penalty, 1 / LARGEST), LARGEST)
        self.presence[slot] = _bounded(params.presence_penalty)
        self.frequency[slot] = _bounded(params.frequency_penalty)
        self.key[:, slot] = (new.seed & 0xFFFFFFFF, (new.seed >> 32) & 0xFFFFFFFF)
        self.min_tokens[slot] = params.min_tokens
        self.prompt_length[slot] = new.num_prompt_tokens
        self.logprobs[slot] = -1 if params.logprobs is None else params.logprobs
        wanted = params.prompt_logprobs
        self.prompt_logprobs[slot] = -1 if wanted is None else wanted
        self.filtered[slot] = self.top_k[slot] > 0 or params.top_p < 1
        self.penalized[slot] = (
            params.repetition_penalty != 1
            or params.presence_penalty != 0
            or params.frequency_penalty != 0
        )
        self.biased[slot] = bool(params.logit_bias)
        # A model may name an end token beyond a cut-down vocabulary; it can never be sampled.
        stops = [token for token in new.stop_token_ids if token < self.vocab_size]
        self.stop_ids[slot] = np.array(stops, dtype=np.int64)
        self.bias_ids[slot] = np.array(list(params.logit_bias), dtype=np.int64)
        self.bias_values[slot] = np.array([_bounded(b) for b in params.logit_bias.values()])


def _bounded(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Array = TypeVar("Array")


@dataclass(frozen=True, slots=True)
class _Integers(Generic[Array]):
    """int64 parameters of a step, on the host or the device; empty where no row asks.

    Attributes:
        masked: [m], indices into flattened logits.
        bias_index: [b], likewise.
        penalized: [4, p]: rows, their slots, lengths and prompts' lengths.
        keys: [2, rows], see `gumbel_noise`; this and `positions` of all rows or, if none is drawn,
            of no row.
        positions: [rows].
        filtered: [2, f]: rows, and their top-k.
    """

    masked: Array
    bias_index: Array
    penalized: Array
    keys: Array
    positions: Array
    filtered: Array


@dataclass(frozen=True, slots=True)
class _Reals(Generic[Array]):
    """float64 parameters of a step, likewise.

    Attributes:
        bias: [b], for `bias_index`.
        penalties: [3, p]: repetition, presence, frequency.
        temperature: [rows]: 0 of a greedy row, 1 of a filtered one, whose filter applies its own.
        min_p: [rows].
        filters: [2, f]: temperature and top-p.
    """

    bias: Array
    penalties: Array
    temperature: Array
    min_p: Array
    filters: Array


class Sampler:
    """A TokenSampler over the slots' parameters and the token pool."""

    def __init__(self, params: SlotParams, pool: TokenPool, device: torch.device) -> None:
        self._params = params
        self._pool = pool
        self._device = device

    def sample(self, logits: Tensor, rows: SampleRows) -> Tensor:
        """Choose a token a row.

        Args:
            logits: float32 [rows, vocabulary], left as they are.
            rows: whose logits they are.

        Returns:
            int64 [rows].
        """
        gathered = self._gather(rows)
        if gathered is None:
            return sampling.sample_greedy(logits)
        longest = int(gathered[0].penalized[2].max(initial=0))
        integers = _Integers(*_send(_columns(gathered[0]), self._device))
        reals = _Reals(*_send(_columns(gathered[1]), self._device))
        logits = self._adjusted(logits, integers, reals, longest)
        if not integers.positions.numel():
            return sampling.sample_greedy(logits)
        logits = _filtered(logits, integers, reals)
        return sampling.sample(
            logits, integers.keys, integers.positions, reals.temperature, reals.min_p
        )

    def logprobs(
        self, logits: Tensor, tokens: Tensor, rows: SampleRows
    ) -> tuple[npt.NDArray[np.int64], sampling.LogprobTensors] | None:
        """Log-probabilities of `tokens` (int64 [rows]) for the rows that ask.

        Returns:
            Those rows' indices and their log-probabilities, as many as the most demanding asks
            for; None if no row asks.
        """
        asked = self._params.logprobs[rows.slots]
        wanting = np.flatnonzero(asked >= 0)
        if not wanting.size:
            return None
        if wanting.size < rows.slots.size:
            index = upload(wanting, self._device)
            logits, tokens = logits.index_select(0, index), tokens.index_select(0, index)
        return wanting, sampling.token_logprobs(logits, tokens, int(asked.max()))

    def _gather(self, rows: SampleRows) -> tuple[_Integers[IntArray], _Reals[FloatArray]] | None:
        """What the rows ask for; None if each only takes its best token."""
        params, slots = self._params, rows.slots
        temperature = params.temperature[slots]
        masked = self._early_stops(rows)
        biased = np.flatnonzero(params.biased[slots])
        penalized = np.flatnonzero(params.penalized[slots])
        drawn = slots if temperature.any() else slots[:0]
        if not (drawn.size or masked.size or biased.size or penalized.size):
            return None
        filtered = np.flatnonzero(params.filtered[slots] & (temperature > 0))
        rest = temperature[: drawn.size].copy()
        rest[filtered] = 1
        ids = [params.bias_ids[slot] for slot in slots[biased]]
        values = [params.bias_values[slot] for slot in slots[biased]]
        whose, which = slots[penalized], slots[filtered]
        integers = _Integers(
            masked=masked,
            bias_index=_flat(biased, ids, params.vocab_size),
            penalized=np.stack(
                [penalized, whose, rows.positions[penalized], params.prompt_length[whose]]
            ),
            keys=params.key[:, drawn],
            positions=rows.positions[: drawn.size],
            filtered=np.stack([filtered, params.top_k[which]]),
        )
        reals = _Reals(
            bias=np.concatenate(values) if values else np.zeros(0),
            penalties=np.stack(
                [params.repetition[whose], params.presence[whose], params.frequency[whose]]
            ),
            temperature=rest,
            min_p=params.min_p[drawn],
            filters=np.stack([temperature[filtered], params.top_p[which]]),
        )
        return integers, reals

    def _early_stops(self, rows: SampleRows) -> IntArray:
        """Flat indices of the stop ids of rows that must not end yet."""
        params = self._params
        generated = rows.positions - params.prompt_length[rows.slots]
        early = np.flatnonzero(generated < params.min_tokens[rows.slots])
        stops = [params.stop_ids[slot] for slot in rows.slots[early]]
        return _flat(early, stops, params.vocab_size)

    def _adjusted(
        self, logits: Tensor, integers: _Integers[Tensor], reals: _Reals[Tensor], longest: int
    ) -> Tensor:
        """Masks, biases and penalties applied, to a copy if there are any.

        The longest penalized row has `longest` tokens.
        """
        if integers.masked.numel() or integers.bias_index.numel():
            logits = logits.clone()
            logits.view(-1).index_fill_(0, integers.masked, -torch.inf)
            logits.view(-1).index_add_(0, integers.bias_index, reals.bias.float())
        index, slots, lengths, prompt_lengths = integers.penalized
        if not index.numel():
            return logits
        repetition, presence, frequency = reals.penalties.float()
        penalized = sampling.penalize(
            logits.index_select(0, index),
            self._pool.rows(slots, longest),
            prompt_lengths,
            lengths,
            repetition=repetition,
            presence=presence,
            frequency=frequency,
        )
        return logits.index_copy(0, index, penalized)


def _filtered(logits: Tensor, integers: _Integers[Tensor], reals: _Reals[Tensor]) -> Tensor:
    """Top-k and top-p applied to the rows that ask, after their temperature."""
    index, top_k = integers.filtered
    if not index.numel():
        return logits
    temperature, top_p = reals.filters
    some = logits.index_select(0, index)
    scaled = sampling.scale_by_temperature(some, temperature.float())
    kept = sampling.keep_top_k_top_p(scaled, top_k, top_p)
    return kept if len(kept) == len(logits) else logits.index_copy(0, index, kept)


def _columns(
    values: _Integers[npt.NDArray[Number]] | _Reals[npt.NDArray[Number]],
) -> list[npt.NDArray[Number]]:
    return [getattr(values, field.name) for field in fields(values)]


def _send(parts: list[npt.NDArray[Number]], device: torch.device) -> list[Tensor]:
    """All parts in one copy; none if there is nothing in them."""
    if not any(part.size for part in parts):
        return [torch.empty_like(torch.from_numpy(part), device=device) for part in parts]
    staging: Staging[Number] = Staging()
    for part in parts:
        staging.add(part)
    return staging.upload(device)


def _flat(rows: npt.NDArray[np.intp], ids: list[IntArray], vocab_size: int) -> IntArray:
    """Indices of (row, each of its ids) in flattened logits."""
    parts = [row * vocab_size + own for row, own in zip(rows, ids, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
