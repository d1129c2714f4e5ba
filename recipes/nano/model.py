"""gpt-oss in the form that trains: packed rows of documents, and all experts at once.

The mathematics is that of `rose.models.gpt_oss`; what differs is how it is laid out. A row holds
several documents, told apart by an id a token. With a dozen small experts it costs less to compute
all of them in two plain matrix products, with weight 0 for those that the router left out, than to
gather each expert's tokens.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rose.config import ModelConfig
from rose.kernels.rotary import rope_cos_sin, yarn_concentration, yarn_inverse_frequencies

SWIGLU_ALPHA = 1.702


@dataclass(frozen=True, slots=True)
class Packing:
    """How the tokens of a batch fall into documents.

    Attributes:
        documents: int [rows, length], an id a token; a document is a run of one id in one row.
        cos, sin: float32 [rows, 1, length, head_dim / 2] of each token's place in its document.
    """

    documents: Tensor
    cos: Tensor
    sin: Tensor


class RMSNorm(nn.Module):
    """Zhang and Sennrich 2019, in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., width] to float32 [..., width]."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return wide * scale * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on halves: x [rows, heads, length, head_dim], rounded back to its dtype."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def attend(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, sinks: Tensor) -> Tensor:
    """Softmax attention with one more logit, the sink, in each denominator.

    Args:
        query: [..., kv_heads, group, queries, head_dim], scaled already.
        key: [..., kv_heads, keys, head_dim].
        value: likewise.
        allowed: bool [..., 1, 1, queries, keys]; every query sees a key at least.
        sinks: float32 [kv_heads, group, 1, 1].

    Returns:
        The shape and dtype of query.
    """
    group, queries = query.shape[-3:-1]
    scores = query.flatten(-3, -2) @ key.transpose(-1, -2)
    scores = scores.unflatten(-2, (group, queries)).float().masked_fill(~allowed, -torch.inf)
    total = torch.logaddexp(scores.logsumexp(-1, keepdim=True), sinks)
    weights = (scores - total).exp().to(value.dtype)
    return (weights.flatten(-3, -2) @ value).unflatten(-2, (group, queries))


def with_previous_chunk(x: Tensor, size: int, dim: int) -> Tensor:
    """Cut dimension `dim` into chunks, each with the one before it in front.

    Before the first chunk lies a copy of the last one, which a causal mask must hide.
    Returns: `dim` [length] becomes [length / size, 2 * size].
    """
    chunks = x.unflatten(dim, (-1, size))
    return torch.cat((chunks.roll(1, dim), chunks), dim=dim + 1)


class Attention(nn.Module):
    """Grouped-query attention with sinks within documents, over everything or a window."""

    def __init__(self, config: ModelConfig, *, window: int | None) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        self.window = window
        width, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(width, self.heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(width, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(width, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, width, bias=bias)
        self.sinks = nn.Parameter(torch.zeros(self.heads))

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Map x [rows, length, hidden_size] to the same shape."""
        query, key, value = (
            proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        # head_dim is a power of four, so scaling before the product rounds nothing.
        query = rotate(query, packing.cos, packing.sin) * self.head_dim**-0.5
        key = rotate(key, packing.cos, packing.sin)
        query = query.unflatten(1, (self.kv_heads, -1))
        sinks = self.sinks.view(self.kv_heads, -1, 1, 1)
        if self.window is None:
            out = self._everything(query, key, value, packing.documents, sinks)
        else:
            out = self._windowed(query, key, value, packing.documents, sinks, self.window)
        mixed: Tensor = self.o_proj(out.flatten(1, 2).transpose(1, 2).flatten(2))
        return mixed

    def _everything(
        self, query: Tensor, key: Tensor, value: Tensor, documents: Tensor, sinks: Tensor
    ) -> Tensor:
        index = torch.arange(documents.shape[1], device=documents.device)
        allowed = (documents[:, :, None] == documents[:, None, :]) & (index[:, None] >= index)
        return attend(query, key, value, allowed[:, None, None], sinks)

    def _windowed(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        documents: Tensor,
        sinks: Tensor,
        window: int,
    ) -> Tensor:
        # In chunks of one window, a query's keys lie in its own chunk and the one before.
        length = documents.shape[1]
        size = min(window, length)
        index = torch.arange(length, device=documents.device)
        mine = index.view(-1, size, 1)
        # The chunk before the first is the last one, whose indices are ahead: causality hides it.
        theirs = with_previous_chunk(index, size, 0).unsqueeze(1)
        visible = (theirs <= mine) & (theirs > mine - window)
        their_documents = with_previous_chunk(documents, size, 1).unsqueeze(2)
        allowed = visible & (documents.view(-1, length // size, size, 1) == their_documents)
        out = attend(
            query.unflatten(3, (-1, size)).movedim(3, 1),
            with_previous_chunk(key, size, 2).movedim(2, 1),
            with_previous_chunk(value, size, 2).movedim(2, 1),
            allowed[:, :, None, None],
            sinks,
        )
        return out.movedim(1, 3).flatten(3, 4)


class Experts(nn.Module):
    """All experts of a layer, as two matrices.

    Attributes:
        gate_up: float32 [experts, 2, intermediate, hidden], gate then up.
        gate_up_bias: float32 [experts, 2, intermediate].
        down: float32 [experts, hidden, intermediate].
        down_bias: float32 [experts, hidden].
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        experts, hidden, inner = config.num_experts, config.hidden_size, config.intermediate_size
        self.limit = config.swiglu_limit
        self.gate_up = nn.Parameter(torch.empty(experts, 2, inner, hidden))
        self.gate_up_bias = nn.Parameter(torch.zeros(experts, 2, inner))
        self.down = nn.Parameter(torch.empty(experts, hidden, inner))
        self.down_bias = nn.Parameter(torch.zeros(experts, hidden))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """Map x [..., hidden] and weights float32 [..., experts] to [..., hidden]."""
        gate_up = F.linear(x, self.gate_up.flatten(0, 2), self.gate_up_bias.flatten())
        gate, up = gate_up.float().unflatten(-1, self.gate_up_bias.shape).unbind(-2)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        inner = gate * torch.sigmoid(SWIGLU_ALPHA * gate) * (up + 1) * weights.unsqueeze(-1)
        # Weighting before the product lets it sum over the experts, too.
        rows = inner.flatten(-2).to(gate_up.dtype)
        out = F.linear(rows, self.down.transpose(0, 1).flatten(1))
        return out + (weights @ self.down_bias)


def expert_weights(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Softmax over the best `count` experts of each token; the first of equals is better.

    Returns:
        The weights, 0 for the others, and which were chosen: both [..., experts].
    """
    # Comparing each with each fuses into one pass, which sorting a dozen numbers does not.
    index = torch.arange(logits.shape[-1], device=logits.device)
    mine, other = logits.unsqueeze(-1), logits.unsqueeze(-2)
    better = (other > mine) | ((other == mine) & (index < index.unsqueeze(-1)))
    chosen = better.sum(-1) < count
    return logits.masked_fill(~chosen, -torch.inf).softmax(-1), chosen


class MoE(nn.Module):
    """The router and its experts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.count = config.experts_per_token
        self.router = nn.Linear(config.hidden_size, config.num_experts)
        self.experts = Experts(config)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map x [rows, length, hidden] to the same shape, and the loss of imbalance.

        The loss (Fedus et al. 2021, equation 4) is 1 where all experts are chosen alike.
        """
        logits = self.router(x).float()
        weights, chosen = expert_weights(logits, self.count)
        share = chosen.float().mean((0, 1)) / self.count
        balance = logits.shape[-1] * (share * logits.softmax(-1).mean((0, 1))).sum()
        return self.experts(x, weights), balance


class Layer(nn.Module):
    """Attention, then experts, each on a normalised copy of the residual stream."""

    def __init__(self, config: ModelConfig, *, window: int | None) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, window=window)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MoE(config)

    def forward(
        self, x: Tensor, documents: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Map x [rows, length, hidden] to the next layer's, and the loss of imbalance."""
        x = x + self.self_attn(self.input_layernorm(x), Packing(documents, cos, sin))
        out, balance = self.mlp(self.post_attention_layernorm(x))
        return x + out, balance


class MTPHead(nn.Module):
    """Predicts the token after next (DeepSeek-V3, section 2.2), sharing embedding and head.

    Its input at position t is the model's hidden state after the final norm, as the engine
    returns it, and the embedding of token t + 1; its output predicts token t + 2. Its layer has
    full attention and keys of its own, one for each t, with t's position.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, epsilon = config.hidden_size, config.rms_norm_eps
        self.hidden_norm = RMSNorm(width, epsilon)
        self.embedding_norm = RMSNorm(width, epsilon)
        self.projection = nn.Linear(2 * width, width, bias=False)
        self.layer = Layer(config, window=None)
        self.norm = RMSNorm(width, epsilon)

    def forward(
        self, hidden: Tensor, following: Tensor, documents: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Map hidden states and the embeddings that follow, both [rows, length, hidden]."""
        both = torch.cat((self.hidden_norm(hidden), self.embedding_norm(following)), dim=-1)
        out, balance = self.layer(self.projection(both).float(), documents, cos, sin)
        return self.norm(out), balance


@dataclass(frozen=True, slots=True)
class Hidden:
    """What a forward pass gives.

    Attributes:
        main: float32 [rows, length, hidden], from which the head predicts the next token.
        mtp: likewise for the token after next; None without an MTP head.
        balance: the mean loss of imbalance over the layers.
    """

    main: Tensor
    mtp: Tensor | None
    balance: Tensor


class TrainingModel(nn.Module):
    """gpt-oss with an MTP head beside it.

    Args:
        config: of any size.
        mtp: whether there is an MTP head.
    """

    inverse_frequencies: Tensor

    def __init__(self, config: ModelConfig, *, mtp: bool) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Layer(config, window=config.sliding_window if kind == "sliding_attention" else None)
            for kind in config.layer_types
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.mtp = MTPHead(config) if mtp else None
        rope = config.rope
        frequencies = yarn_inverse_frequencies(
            config.head_dim,
            theta=rope.theta,
            factor=rope.factor,
            beta_fast=rope.beta_fast,
            beta_slow=rope.beta_slow,
            original_max_position=rope.original_max_position,
            truncate=rope.truncate,
        )
        self.register_buffer("inverse_frequencies", frequencies, persistent=False)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        residual = (2 * self.config.num_layers) ** -0.5
        for name, parameter in self.named_parameters():
            fan_in = parameter.shape[-1]
            if name.endswith(("bias", "sinks", "norm.weight")):
                continue
            if name == "embed_tokens.weight":
                parameter.normal_(0.0, 0.3)
            elif name.endswith(("lm_head.weight", "router.weight")):
                parameter.normal_(0.0, 0.02)
            else:
                writes = name.endswith(("o_proj.weight", "experts.down"))
                parameter.normal_(0.0, fan_in**-0.5 * (residual if writes else 1.0))

    def packing(self, documents: Tensor) -> Packing:
        """Positions, from 0 in every document, and their rotations."""
        index = torch.arange(documents.shape[1], device=documents.device)
        begins = documents != documents.roll(1, 1)
        start = torch.where(begins, index, 0).cummax(1).values
        concentration = yarn_concentration(self.config.rope.factor)
        cos, sin = rope_cos_sin(index - start, self.inverse_frequencies, concentration)
        return Packing(documents, cos.unsqueeze(1), sin.unsqueeze(1))

    def forward(self, tokens: Tensor, documents: Tensor) -> Hidden:
        """Map tokens and documents, int64 and int [rows, length], to hidden states."""
        packing = self.packing(documents)
        place = (documents, packing.cos, packing.sin)
        embedded = self.embed_tokens(tokens)
        x, balances = embedded, []
        for layer in self.layers:
            x, balance = layer(x, *place)
            balances.append(balance)
        main = self.norm(x)
        mtp = None
        if self.mtp is not None:
            mtp, balance = self.mtp(main, embedded.roll(-1, 1), *place)
            balances.append(balance)
        return Hidden(main, mtp, torch.stack(balances).mean())


def token_losses(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of each token: hidden [..., width], head [vocabulary, width]."""
    logits = F.linear(hidden, head).float()
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")


def parameter_count(model: nn.Module) -> int:
    """How many numbers a model has."""
    return sum(math.prod(parameter.shape) for parameter in model.parameters())
