"""Samples a token for each row, by the parameters of its slot.

The order is that of `SamplingParams`: stop ids masked before min_tokens, bias, penalties,
temperature, top-k, top-p, min-p; then a draw by noise that is a function of (seed, position, token
id), so a row's token depends on nothing else in its batch. Work that no row of a step asks for is
skipped, by what the host knows; nothing waits for the device. A step whose rows are all greedy
uploads nothing; the draw takes two copies, one of integers and one of reals.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rose.core.step import NewSequence
from rose.decoders.decoder import SampleRows
from rose.kernels import sampling
from rose.worker.token_pool import TokenPool
from rose.worker.upload import Staging, upload

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
        logits = self._penalized(self._biased(self._masked(logits, rows), rows), rows)
        temperature = self._params.temperature[rows.slots]
        if not temperature.any():
            return sampling.sample_greedy(logits)
        return self._draw(logits, rows, temperature)

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

    def _masked(self, logits: Tensor, rows: SampleRows) -> Tensor:
        params = self._params
        generated = rows.positions - params.prompt_length[rows.slots]
        early = np.flatnonzero(generated < params.min_tokens[rows.slots])
        stops = [params.stop_ids[rows.slots[i]] for i in early]
        index = _flat(early, stops, params.vocab_size)
        if not index.size:
            return logits
        masked = logits.clone()
        masked.view(-1).index_fill_(0, upload(index, self._device), -torch.inf)
        return masked

    def _biased(self, logits: Tensor, rows: SampleRows) -> Tensor:
        params = self._params
        biased = np.flatnonzero(params.biased[rows.slots])
        if not biased.size:
            return logits
        slots = rows.slots[biased]
        index = _flat(biased, [params.bias_ids[s] for s in slots], params.vocab_size)
        values = np.concatenate([params.bias_values[s] for s in slots]).astype(np.float32)
        moved = logits.clone()
        moved.view(-1).index_add_(0, upload(index, self._device), upload(values, self._device))
        return moved

    def _penalized(self, logits: Tensor, rows: SampleRows) -> Tensor:
        params = self._params
        which = np.flatnonzero(params.penalized[rows.slots])
        if not which.size:
            return logits
        slots, lengths = rows.slots[which], rows.positions[which]
        long: Staging[np.int64] = Staging()
        for part in (which, slots, lengths, params.prompt_length[slots]):
            long.add(part)
        index, device_slots, device_lengths, prompt_lengths = long.upload(self._device)
        factors = np.stack(
            [params.repetition[slots], params.presence[slots], params.frequency[slots]]
        )
        repetition, presence, frequency = upload(factors.astype(np.float32), self._device)
        penalized = sampling.penalize(
            logits.index_select(0, index),
            self._pool.rows(device_slots, int(lengths.max())),
            prompt_lengths,
            device_lengths,
            repetition=repetition,
            presence=presence,
            frequency=frequency,
        )
        return logits.index_copy(0, index, penalized)

    def _draw(
        self, logits: Tensor, rows: SampleRows, temperature: npt.NDArray[np.float64]
    ) -> Tensor:
        params, slots = self._params, rows.slots
        which = np.flatnonzero(params.filtered[slots] & (temperature > 0))
        long: Staging[np.int64] = Staging()
        for part in (params.key[:, slots], rows.positions, which, params.top_k[slots[which]]):
            long.add(part)
        keys, positions, index, top_k = long.upload(self._device)
        rest = temperature.copy()
        rest[which] = 1  # the filters apply it to theirs
        real: Staging[np.float64] = Staging()
        for column in (rest, params.min_p[slots], temperature[which], params.top_p[slots[which]]):
            real.add(column)
        device_rest, min_p, filter_temperature, top_p = real.upload(self._device)
        if which.size:
            some = logits.index_select(0, index)
            scaled = sampling.scale_by_temperature(some, filter_temperature.float())
            kept = sampling.keep_top_k_top_p(scaled, top_k, top_p)
            logits = kept if which.size == slots.size else logits.index_copy(0, index, kept)
        return sampling.sample(logits, keys, positions, device_rest, min_p)


def _flat(
    rows: npt.NDArray[np.intp], ids: list[npt.NDArray[np.int64]], vocab_size: int
) -> npt.NDArray[np.int64]:
    """Indices of (row, each of its ids) in flattened logits."""
    parts = [row * vocab_size + own for row, own in zip(rows, ids, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
