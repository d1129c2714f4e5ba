"""gpt-oss (OpenAI 2025): attention with sinks and a mixture of experts, of any size."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from rose.config import FULL, SLIDING, ModelConfig
from rose.core.mapping import ParallelMapping
from rose.kernels.paged_kv import AttentionBatch, LayerKV
from rose.layers.attention import Attention
from rose.layers.embedding import Embedding
from rose.layers.linear import Head
from rose.layers.moe import MoE
from rose.layers.norm import RMSNorm
from rose.layers.rotary import Rotary
from rose.quant import quant_scheme
from rose.quant.scheme import QuantScheme


class GptOssLayer(nn.Module):
    """Attention, then experts, each on a normalised copy of the residual stream."""

    def __init__(
        self,
        config: ModelConfig,
        index: int,
        *,
        expert_scheme: QuantScheme,
        dense_scheme: QuantScheme,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        width, epsilon = config.hidden_size, config.rms_norm_eps
        slides = config.layer_types[index] == "sliding_attention"
        self.attention_norm = RMSNorm(width, epsilon, dtype=dtype, device=device)
        self.attention = Attention(
            width,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            group=SLIDING if slides else FULL,
            bias=config.attention_bias,
            scheme=dense_scheme,
            dtype=dtype,
            device=device,
        )
        self.moe_norm = RMSNorm(width, epsilon, dtype=dtype, device=device)
        self.moe = MoE(
            width,
            config.intermediate_size,
            config.num_experts,
            experts_per_token=config.experts_per_token,
            swiglu_limit=config.swiglu_limit,
            scheme=expert_scheme,
            dtype=dtype,
            device=device,
        )

    def forward(
        self,
        x: Tensor,
        normed: Tensor,
        next_norm: RMSNorm,
        cos: Tensor,
        sin: Tensor,
        batch: AttentionBatch,
        kv: LayerKV,
    ) -> tuple[Tensor, Tensor]:
        """Map the residual stream to the next layer's.

        An addition and the norm after it are one op, so a layer ends with the norm of the next.

        Args:
            x: [tokens, hidden_size].
            normed: x normalised by `attention_norm`.
            next_norm: what comes after this layer: the next one's norm, or the model's.
            cos: float32 [tokens, head_dim / 2], of each token's position.
            sin: likewise.
            batch: whose tokens these are.
            kv: this layer's cache.

        Returns:
            The stream, and the stream normalised by `next_norm`.
        """
        attended = self.attention(normed, cos, sin, batch, kv)
        x, normed = self.moe_norm.add(x, attended)
        return self.moe.add(x, normed, next_norm)


class GptOss(nn.Module):
    """The model on one rank; weights are uninitialised until a loader fills them.

    Args:
        config: the model's shape.
        scheme: stores the experts.
        mapping: this rank's place; one rank only, so far.
        dtype: of activations and of what is not quantised: bfloat16 or float32.
        device: where the weights are created.
        dense_scheme: stores the attention's projections and the head; None: in `dtype`.

    Raises:
        ValueError: the mapping has more than one rank, or a width does not suit a scheme.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        scheme: QuantScheme,
        mapping: ParallelMapping,
        dtype: torch.dtype,
        device: torch.device,
        dense_scheme: QuantScheme | None = None,
    ) -> None:
        super().__init__()
        if mapping.world_size != 1:
            raise ValueError(f"the model runs on one rank; got {mapping}, tp=1 and dp=1 would do")
        self.config = config
        dense_scheme = dense_scheme or quant_scheme("bf16")
        self.embed = Embedding(config.vocab_size, config.hidden_size, dtype=dtype, device=device)
        self.rotary = Rotary(
            config.head_dim,
            theta=config.rope.theta,
            factor=config.rope.factor,
            beta_fast=config.rope.beta_fast,
            beta_slow=config.rope.beta_slow,
            original_max_position=config.rope.original_max_position,
            truncate=config.rope.truncate,
            device=device,
        )
        self.layers = nn.ModuleList(
            GptOssLayer(
                config,
                index,
                expert_scheme=scheme,
                dense_scheme=dense_scheme,
                dtype=dtype,
                device=device,
            )
            for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.head = Head(
            config.hidden_size,
            config.vocab_size,
            scheme=dense_scheme,
            dtype=dtype,
            device=device,
        )

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        batch: AttentionBatch,
        kv: Sequence[LayerKV],
    ) -> Tensor:
        """Run the tokens of one step; their keys and values join the cache.

        Args:
            token_ids: int64 [tokens].
            positions: int64 [tokens], in each token's own sequence.
            batch: how the tokens fall into sequences, and where those lie in the cache.
            kv: one cache a layer.

        Returns:
            Hidden states after the final norm, [tokens, hidden_size] in the model's dtype.
        """
        cos, sin = self.rotary(positions)
        x = self.embed(token_ids)
        layers = cast("Iterable[GptOssLayer]", self.layers)
        first, *following = [*(layer.attention_norm for layer in layers), self.norm]
        normed: Tensor = first(x)
        for layer, next_norm, cache in zip(layers, following, kv, strict=True):
            x, normed = layer(x, normed, next_norm, cos, sin, batch, cache)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """Map hidden [rows, hidden_size] to float32 logits [rows, vocab_size]."""
        out: Tensor = self.head(hidden)
        return out
