"""Configuration: frozen, resolved once, never mutated.

`ModelConfig` is read from a checkpoint's config.json; nothing about a model's size is hard-coded.
`EngineConfig` is everything an engine needs, apart from the number of KV blocks, which is known
only once the weights are placed and the free memory measured (`CacheConfig.resolve`).
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, get_args

from rose.protocol import UserError

Quantization = Literal["bf16", "fp8", "mxfp4"]
DenseQuantization = Literal["bf16", "fp8"]
Dtype = Literal["bfloat16", "float32"]
LoadFormat = Literal["auto", "dummy"]
Kernels = Literal["auto", "triton", "reference"]
LayerType = Literal["sliding_attention", "full_attention"]

FULL, SLIDING = 0, 1
"""Indices of the two KV groups, in every tuple of groups."""

ARCHITECTURES = ("GptOssForCausalLM",)

MAX_LAYERS = 1024
MAX_SIZE = 2**31 - 1
"""Bounds on what a config.json may say, so that a damaged one is an error and not a full memory."""

HARMONY_VOCABULARY = 201088
HARMONY_STOP_IDS = (200002, 199999, 200012)
"""<|return|>, <|endoftext|>, <|call|> of o200k_harmony, the tokenizer of the published models."""


class ConfigError(UserError):
    """A configuration that cannot work; the message says what was found and what would do."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding with YaRN scaling (Peng et al. 2023); factor 1 is plain RoPE."""

    theta: float
    factor: float
    beta_fast: float
    beta_slow: float
    original_max_position: int
    truncate: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a gpt-oss model, from its config.json.

    Attributes:
        layer_types: one a layer; a sliding layer's query sees `sliding_window` keys, its own
            included.
        checkpoint_quantization: how the experts are stored: "mxfp4", "fp8" or "" (unquantised).
        eos_token_ids: from generation_config.json, else config.json.
        tie_word_embeddings: the head may be the embedding itself.
    """

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    num_experts: int
    experts_per_token: int
    layer_types: tuple[LayerType, ...]
    sliding_window: int
    max_position_embeddings: int
    rope: RopeConfig
    rms_norm_eps: float
    swiglu_limit: float
    attention_bias: bool
    checkpoint_quantization: str
    eos_token_ids: tuple[int, ...]
    tie_word_embeddings: bool = False

    def layers_of_group(self, group: int) -> int:
        """How many layers keep their KV in group FULL or SLIDING."""
        kind = "sliding_attention" if group == SLIDING else "full_attention"
        return self.layer_types.count(cast(LayerType, kind))

    @classmethod
    def load(cls, folder: Path) -> "ModelConfig":
        """Read config.json and generation_config.json of a checkpoint.

        Raises:
            ConfigError: a file is missing or unreadable, or describes no model that Rose knows.
        """
        config = _read_json(folder / "config.json")
        generation_path = folder / "generation_config.json"
        generation = _read_json(generation_path) if generation_path.exists() else {}
        return cls.from_dicts(config, generation, source=str(folder / "config.json"))

    @classmethod
    def from_dicts(
        cls, config: dict[str, object], generation: dict[str, object], *, source: str
    ) -> "ModelConfig":
        """Build from parsed JSON; `source` names it in errors."""
        if "architectures" not in config and "rope_ntk_alpha" in config:
            config = _published_form(config, source)
        return _ConfigReader(config, source).model(generation)


def _published_form(config: dict[str, object], source: str) -> dict[str, object]:
    """OpenAI's original config.json in the terms of the Hugging Face one.

    The original names no stop ids; those of the published models are its tokenizer's own.
    Source: openai/gpt-oss, gpt_oss/torch/model.py.
    """
    reader = _ConfigReader(config, source)
    factor = reader.number("rope_scaling_factor")
    context = reader.integer("initial_context_length")
    yarn: dict[str, object] = {
        "rope_type": "yarn",
        "factor": factor,
        "beta_fast": reader.number("rope_ntk_beta"),
        "beta_slow": reader.number("rope_ntk_alpha"),
        "original_max_position_embeddings": context,
        "truncate": False,
    }
    plain = {"rope_type": "default"}
    harmony = reader.integer("vocab_size") == HARMONY_VOCABULARY
    return {
        "eos_token_id": list(HARMONY_STOP_IDS) if harmony else None,
        **config,
        "architectures": list(ARCHITECTURES),
        "quantization_config": {"quant_method": "mxfp4"},
        "max_position_embeddings": int(context * max(factor, 1.0)),
        "rope_scaling": yarn if factor > 1 else plain,
    }


def _read_json(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path} not found: not a checkpoint folder") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a JSON object; found {type(value).__name__}")
    return value


class _ConfigReader:
    """Reads typed fields out of a config.json and says which one is missing or wrong."""

    def __init__(self, config: dict[str, object], source: str) -> None:
        self.config = config
        self.source = source

    def integer(
        self, key: str, *alternatives: str, default: int | None = None, at_most: int = MAX_SIZE
    ) -> int:
        value = self._get((key, *alternatives), default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.source}: {key} must be a positive integer; found {value!r}")
        if value > at_most:
            raise ConfigError(f"{self.source}: {key} must be at most {at_most}; found {value}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        value = self._get((key,), default)
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        # Compared and not converted: an integer may be too large for a float.
        if not ok or not above < cast(float, value) <= sys.float_info.max:
            wanted = f"a number above {above:g}"
            raise ConfigError(f"{self.source}: {key} must be {wanted}; found {value!r}")
        return float(cast(float, value))

    def boolean(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.source}: {key} must be true or false; found {value!r}")
        return value

    def _get(self, keys: tuple[str, ...], default: object) -> object:
        for key in keys:
            if key in self.config:
                return self.config[key]
        if default is None:
            raise ConfigError(f"{self.source}: {keys[0]} is missing")
        return default

    def model(self, generation: dict[str, object]) -> ModelConfig:
        architecture = self._architecture()
        layers = self.integer("num_hidden_layers", at_most=MAX_LAYERS)
        heads, kv_heads = self.integer("num_attention_heads"), self.integer("num_key_value_heads")
        if heads % kv_heads:
            raise ConfigError(
                f"{self.source}: {heads} attention heads do not divide into {kv_heads} KV heads"
            )
        experts = self.integer("num_local_experts", "num_experts")
        top = self.integer("num_experts_per_tok", "experts_per_token")
        if top > experts:
            raise ConfigError(f"{self.source}: {top} experts a token, but only {experts} experts")
        hidden, inter = self.integer("hidden_size"), self.integer("intermediate_size")
        head_dim = self.integer("head_dim", default=max(1, hidden // heads))
        if head_dim % 2:
            raise ConfigError(f"{self.source}: head_dim must be even (RoPE); found {head_dim}")
        vocab_size = self.integer("vocab_size")
        return ModelConfig(
            architecture=architecture,
            num_layers=layers,
            hidden_size=hidden,
            intermediate_size=inter,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=vocab_size,
            num_experts=experts,
            experts_per_token=top,
            layer_types=self._layer_types(layers),
            sliding_window=self.integer("sliding_window"),
            max_position_embeddings=self.integer("max_position_embeddings"),
            rope=self._rope(),
            rms_norm_eps=self.number("rms_norm_eps", 1e-5),
            swiglu_limit=self.number("swiglu_limit", 7.0),
            attention_bias=self.boolean("attention_bias", True),
            checkpoint_quantization=self._quantization(),
            eos_token_ids=self._eos(generation, vocab_size),
            tie_word_embeddings=self.boolean("tie_word_embeddings", False),
        )

    def _architecture(self) -> str:
        found = self.config.get("architectures")
        names = found if isinstance(found, list) else []
        for name in names:
            if name in ARCHITECTURES:
                return str(name)
        raise ConfigError(
            f"{self.source}: unknown architecture {found!r}; Rose serves {', '.join(ARCHITECTURES)}"
        )

    def _layer_types(self, layers: int) -> tuple[LayerType, ...]:
        found = self.config.get("layer_types")
        if found is None:
            # Configs older than the field: layer 0 slides and the types alternate.
            return tuple("full_attention" if i % 2 else "sliding_attention" for i in range(layers))
        known = get_args(LayerType)
        if not isinstance(found, list) or any(kind not in known for kind in found):
            raise ConfigError(f"{self.source}: layer_types must list {known}; found {found!r}")
        if len(found) != layers:
            raise ConfigError(f"{self.source}: {len(found)} layer_types for {layers} layers")
        return tuple(found)

    def _rope(self) -> RopeConfig:
        scaling = self.config.get("rope_scaling") or self.config.get("rope_parameters") or {}
        if not isinstance(scaling, dict):
            raise ConfigError(f"{self.source}: rope_scaling must be an object; found {scaling!r}")
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        reader = _ConfigReader({**self.config, **scaling}, f"{self.source}: rope_scaling")
        theta = reader.number("rope_theta", 150000.0, above=1.0)
        if kind == "default":
            return RopeConfig(theta, 1.0, 32.0, 1.0, self.integer("max_position_embeddings"), False)
        if kind != "yarn":
            raise ConfigError(f"{self.source}: rope type {kind!r}; Rose knows 'yarn' and 'default'")
        return RopeConfig(
            theta=theta,
            factor=reader.number("factor"),
            beta_fast=reader.number("beta_fast", 32.0),
            beta_slow=reader.number("beta_slow", 1.0),
            original_max_position=reader.integer(
                "original_max_position_embeddings", "initial_context_length"
            ),
            truncate=reader.boolean("truncate", True),
        )

    def _quantization(self) -> str:
        found = self.config.get("quantization_config")
        if found is None:
            return ""
        method = found.get("quant_method") if isinstance(found, dict) else found
        if method not in ("mxfp4", "fp8"):
            raise ConfigError(
                f"{self.source}: quantization method {method!r}; Rose loads 'mxfp4', 'fp8' and "
                "unquantised checkpoints"
            )
        return str(method)

    def _eos(self, generation: dict[str, object], vocab_size: int) -> tuple[int, ...]:
        found = generation.get("eos_token_id", self.config.get("eos_token_id"))
        ids = [] if found is None else found if isinstance(found, list) else [found]
        good = tuple(i for i in ids if type(i) is int and 0 <= i < vocab_size)
        if len(good) < len(ids):
            raise ConfigError(
                f"{self.source}: eos_token_id must be token ids below vocab_size {vocab_size}; "
                f"found {found!r}"
            )
        return good


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """How one replica is spread over GPUs."""

    tp: int = 1
    ep: int = 1
    dp: int = 1


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of one step, and who goes first.

    Attributes:
        max_num_seqs: sequences in one step, and slots of worker state.
        max_batched_tokens: token budget of one step.
        chunk_size: the most tokens that one sequence computes in a step, so that a long prompt
            leaves room for others.
        priority_aging: arrivals by which one level of priority is worth waiting; finite, so that
            nothing starves.
        one_ahead: schedule and enqueue step N+1 before the result of step N is known.
    """

    max_num_seqs: int = 64
    max_batched_tokens: int = 2048
    chunk_size: int = 2048
    priority_aging: int = 256
    one_ahead: bool = True

    def __post_init__(self) -> None:
        """Check the limits against each other."""
        for name in ("max_num_seqs", "max_batched_tokens", "chunk_size", "priority_aging"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} must be at least 1; got {value}")
        if self.max_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_batched_tokens ({self.max_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}), or some sequence could never decode"
            )


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The paged KV cache: two groups of blocks, one block size.

    Attributes:
        block_size: tokens a block.
        num_blocks: blocks in groups FULL and SLIDING.
        window: the sliding group's window in tokens.
        prefix_cache: keep blocks of finished work for prompts that begin alike.
    """

    block_size: int
    num_blocks: tuple[int, int]
    window: int
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        """Check that every number is positive."""
        if self.block_size < 1 or self.window < 1 or min(self.num_blocks) < 1:
            raise ConfigError(f"block sizes and counts must be at least 1; got {self}")

    def windowed_blocks(self, num_tokens: int) -> int:
        """The most sliding blocks that a sequence needs to run `num_tokens` tokens in one step.

        They span num_tokens + window - 1 positions that may begin anywhere in a block.
        """
        return (num_tokens + self.window - 3) // self.block_size + 2

    def longest_sequence(self, chunk_size: int) -> int:
        """The longest sequence, in tokens, that fits when it has the cache to itself.

        0 if not even one chunk fits the sliding group.
        """
        if self.windowed_blocks(chunk_size) > self.num_blocks[SLIDING]:
            return 0
        return self.num_blocks[FULL] * self.block_size


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """How tokens are proposed. Only the plain decoder exists so far."""

    kind: Literal["plain"] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything that an engine is built from.

    Attributes:
        path: local folder of the checkpoint.
        quantization: of the experts.
        dense_quantization: of the attention's projections and the head; "bf16" is `dtype`.
        served_name: the name that clients ask for.
        kv_cache_bytes: memory for the KV cache; None: measured (GPU) or a modest default (CPU).
        num_blocks: overrides kv_cache_bytes with block counts for the groups FULL and SLIDING.
        max_model_len: longest sequence; None: what the model and the cache hold.
        cpu_threads: threads of this process on a CPU; None: by the model's size.
        cuda_graphs: capture decoding at the start, on a GPU.
        kernels: which implementations may serve.
        seed: of the engine's own random choices.
    """

    model: ModelConfig
    path: Path
    served_name: str
    quantization: Quantization = "bf16"
    dense_quantization: DenseQuantization = "bf16"
    dtype: Dtype = "bfloat16"
    device: Literal["cpu", "cuda"] = "cpu"
    load_format: LoadFormat = "auto"
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    block_size: int = 16
    kv_cache_bytes: int | None = None
    num_blocks: tuple[int, int] | None = None
    prefix_cache: bool = True
    max_model_len: int | None = None
    cpu_threads: int | None = None
    cuda_graphs: bool = True
    kernels: Kernels = "auto"
    seed: int = 0

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest sequence that may ever run; the cache may hold less."""
        limit = self.model.max_position_embeddings
        return min(self.max_model_len or limit, limit)

    @property
    def quantization_name(self) -> str:
        """The experts' quantization, and the dense layers' where it is another than bf16."""
        dense = self.dense_quantization
        return self.quantization if dense == "bf16" else f"{self.quantization}+{dense}"
