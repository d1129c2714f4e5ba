"""The layouts of a gpt-oss checkpoint, all seen under the names of the Hugging Face one.

Two things differ between checkpoints: how tensors are named and fused (Hugging Face, or OpenAI's
original) and how the experts are stored. Both are decided from the tensor names. `WeightSource`
checks every tensor against the model's config before any data is read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from torch import Tensor

from rose.config import ModelConfig
from rose.kernels.quantize import FP8_BLOCK, MXFP4_GROUP, ceil_div
from rose.models.checkpoint import Checkpoint, CheckpointError, StoredRows, abbreviate

FLOATS = ("BF16", "F16", "F32")
EMBEDDING, HEAD, FINAL_NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


class Naming(Enum):
    """Whose names the tensors have."""

    HUGGING_FACE = "Hugging Face"
    OPENAI = "OpenAI"


class ExpertStorage(Enum):
    """How the experts' matrices are stored."""

    MXFP4 = "MXFP4"
    FLOAT = "unquantised"
    FP8 = "FP8"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a tensor must be: its shape, and one of these dtypes."""

    shape: tuple[int, ...]
    dtypes: tuple[str, ...] = FLOATS


@dataclass(frozen=True, slots=True)
class ExpertProjection:
    """One of the two matrices of every expert of a layer.

    Attributes:
        name: of the tensors, without a suffix.
        parts: 2 for gate and up, 1 for down.
        out_features, in_features: of each part.
    """

    name: str
    parts: int
    out_features: int
    in_features: int


def layer_prefix(layer: int) -> str:
    """What the names of a layer's tensors begin with."""
    return f"model.layers.{layer}"


def expert_projections(config: ModelConfig, layer: int) -> tuple[ExpertProjection, ...]:
    """A layer's gate-and-up and down projections."""
    experts = f"{layer_prefix(layer)}.mlp.experts"
    hidden, inter = config.hidden_size, config.intermediate_size
    return (
        ExpertProjection(f"{experts}.gate_up_proj", 2, inter, hidden),
        ExpertProjection(f"{experts}.down_proj", 1, hidden, inter),
    )


def expected_tensors(
    config: ModelConfig, storage: ExpertStorage, *, head: bool
) -> dict[str, TensorSpec]:
    """Every tensor of a checkpoint in the Hugging Face layout, in the order of the model.

    `head` says whether it has a head of its own, besides the embedding.
    """
    table = TensorSpec((config.vocab_size, config.hidden_size))
    specs = {EMBEDDING: table}
    for layer in range(config.num_layers):
        specs.update(_layer_tensors(config, layer))
        for projection in expert_projections(config, layer):
            specs.update(_expert_tensors(projection, config.num_experts, storage))
    specs[FINAL_NORM] = TensorSpec((config.hidden_size,))
    if head:
        specs[HEAD] = table
    return specs


def _layer_tensors(config: ModelConfig, layer: int) -> Iterator[tuple[str, TensorSpec]]:
    prefix, hidden = layer_prefix(layer), config.hidden_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield f"{prefix}.input_layernorm.weight", TensorSpec((hidden,))
    for name, size in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        yield f"{prefix}.self_attn.{name}.weight", TensorSpec((size, hidden))
        if config.attention_bias:
            yield f"{prefix}.self_attn.{name}.bias", TensorSpec((size,))
    yield f"{prefix}.self_attn.sinks", TensorSpec((config.num_heads,))
    yield f"{prefix}.self_attn.o_proj.weight", TensorSpec((hidden, queries))
    if config.attention_bias:
        yield f"{prefix}.self_attn.o_proj.bias", TensorSpec((hidden,))
    yield f"{prefix}.post_attention_layernorm.weight", TensorSpec((hidden,))
    yield f"{prefix}.mlp.router.weight", TensorSpec((config.num_experts, hidden))
    yield f"{prefix}.mlp.router.bias", TensorSpec((config.num_experts,))


def _expert_tensors(
    projection: ExpertProjection, experts: int, storage: ExpertStorage
) -> Iterator[tuple[str, TensorSpec]]:
    name, parts = projection.name, projection.parts
    rows, columns = projection.out_features, projection.in_features
    match storage:
        case ExpertStorage.MXFP4:
            groups = (experts, parts * rows, columns // MXFP4_GROUP)
            yield f"{name}_blocks", TensorSpec((*groups, MXFP4_GROUP // 2), ("U8",))
            yield f"{name}_scales", TensorSpec(groups, ("U8",))
        case ExpertStorage.FLOAT:
            yield name, TensorSpec((experts, columns, parts * rows))
        case ExpertStorage.FP8:
            grid = (ceil_div(rows, FP8_BLOCK), ceil_div(columns, FP8_BLOCK))
            yield name, TensorSpec((experts, parts, rows, columns), ("F8_E4M3",))
            yield f"{name}_scale_inv", TensorSpec((experts, parts, *grid), ("F32",))
    yield f"{name}_bias", TensorSpec((experts, parts * rows))


_OPENAI_NAMES = (
    (EMBEDDING, "embedding.weight"),
    (FINAL_NORM, "norm.scale"),
    (HEAD, "unembedding.weight"),
    ("model.layers.", "block."),
    ("input_layernorm.weight", "attn.norm.scale"),
    ("self_attn.sinks", "attn.sinks"),
    ("self_attn.o_proj.", "attn.out."),
    ("post_attention_layernorm.weight", "mlp.norm.scale"),
    ("mlp.router.", "mlp.gate."),
    ("mlp.experts.gate_up_proj_blocks", "mlp.mlp1_weight.blocks"),
    ("mlp.experts.gate_up_proj_scales", "mlp.mlp1_weight.scales"),
    ("mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias"),
    ("mlp.experts.down_proj_blocks", "mlp.mlp2_weight.blocks"),
    ("mlp.experts.down_proj_scales", "mlp.mlp2_weight.scales"),
    ("mlp.experts.down_proj_bias", "mlp.mlp2_bias"),
)
_FUSED = ("q_proj", "k_proj", "v_proj")


def openai_name(name: str) -> str:
    """The OpenAI name of the tensor that holds what Hugging Face calls `name`."""
    for projection in _FUSED:
        name = name.replace(f"self_attn.{projection}.", "attn.qkv.")
    for ours, theirs in _OPENAI_NAMES:
        name = name.replace(ours, theirs)
    return name


@dataclass(frozen=True, slots=True)
class _Span:
    """Rows of a stored tensor: where one tensor of the Hugging Face layout lies."""

    stored: str
    start: int
    stop: int


class WeightSource:
    """The tensors of a checkpoint under their Hugging Face names, whatever its layout.

    Attributes:
        checkpoint: its files.
        naming, storage: its layout.
        has_head: whether it has a head besides the embedding.
        specs: every tensor, in the order of the model.
        nbytes: the size of all of them.

    Raises:
        CheckpointError: tensors are missing, surplus, wrongly shaped or of a wrong dtype; the
            message names the first of each kind.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self.checkpoint = Checkpoint(folder)
        stored = self.checkpoint.tensors
        self.naming = _detect_naming(stored, folder)
        self.storage = _detect_storage(stored)
        if self.storage is ExpertStorage.MXFP4:
            _check_mxfp4_sizes(config, folder)
        self.has_head = self._rename(HEAD) in stored or not config.tie_word_embeddings
        self.specs = expected_tensors(config, self.storage, head=self.has_head)
        self._spans = self._make_spans()
        self._account()
        self.nbytes = sum(tensor.nbytes for tensor in stored.values())

    def dtype(self, name: str) -> str:
        """The stored dtype, as safetensors spells it."""
        return self.checkpoint.tensors[self._spans[name].stored].dtype

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Rows [start, stop) of a tensor's first dimension, on the CPU, in its stored dtype."""
        return self.rows(name, start, stop).read()

    def rows(self, name: str, start: int = 0, stop: int | None = None) -> StoredRows:
        """Where rows [start, stop) of a tensor's first dimension lie."""
        span = self._spans[name]
        last = span.stop if stop is None else span.start + stop
        return StoredRows(self.checkpoint.tensors[span.stored], span.start + start, last)

    def _rename(self, name: str) -> str:
        return openai_name(name) if self.naming is Naming.OPENAI else name

    def _make_spans(self) -> dict[str, _Span]:
        spans = {}
        filled: dict[str, int] = {}
        for name, spec in self.specs.items():
            stored = self._rename(name)
            start = filled.get(stored, 0)
            filled[stored] = start + spec.shape[0]
            spans[name] = _Span(stored, start, filled[stored])
        return spans

    def _account(self) -> None:
        wanted: dict[str, TensorSpec] = {}
        for name, span in self._spans.items():
            spec = self.specs[name]
            wanted[span.stored] = TensorSpec((span.stop, *spec.shape[1:]), spec.dtypes)
        stored = self.checkpoint.tensors
        missing = [name for name in wanted if name not in stored]
        surplus = [name for name in stored if name not in wanted]
        wrong = []
        for name, spec in wanted.items():
            if name in stored and stored[name].shape != spec.shape:
                wrong.append(f"{name} {list(stored[name].shape)}, not {list(spec.shape)}")
            elif name in stored and stored[name].dtype not in spec.dtypes:
                wrong.append(f"{name} {stored[name].dtype}, not {' or '.join(spec.dtypes)}")
        found = (("missing", missing), ("surplus", surplus), ("wrong", wrong))
        problems = [f"{len(names)} {kind}: {abbreviate(names)}" for kind, names in found if names]
        if problems:
            raise CheckpointError(
                f"{self.checkpoint.folder}: the tensors ({self.naming.value} layout, "
                f"{self.storage.value} experts) are not those that config.json describes; "
                + "; ".join(problems)
            )


def _detect_naming(names: Iterable[str], folder: Path) -> Naming:
    names = list(names)
    if any(name.startswith("model.") for name in names):
        return Naming.HUGGING_FACE
    if any(name.startswith("block.") for name in names):
        return Naming.OPENAI
    raise CheckpointError(
        f"{folder}: tensors of no known layout: {abbreviate(sorted(names), 3) or 'none at all'}; "
        "Rose reads gpt-oss with names like model.layers.0.… or block.0.…"
    )


def _detect_storage(names: Iterable[str]) -> ExpertStorage:
    names = list(names)
    if any(name.endswith("proj_scale_inv") for name in names):
        return ExpertStorage.FP8
    if any(name.endswith((".gate_up_proj", ".down_proj")) for name in names):
        return ExpertStorage.FLOAT
    return ExpertStorage.MXFP4


def _check_mxfp4_sizes(config: ModelConfig, folder: Path) -> None:
    if config.hidden_size % MXFP4_GROUP or config.intermediate_size % MXFP4_GROUP:
        raise CheckpointError(
            f"{folder}: MXFP4 experts need sizes that are multiples of {MXFP4_GROUP}; config.json "
            f"has hidden {config.hidden_size} and intermediate {config.intermediate_size}"
        )
