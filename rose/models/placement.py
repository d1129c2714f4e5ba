"""Where every tensor of a checkpoint belongs in the model, in pieces that can come in any order.

The module tree that is filled is GptOss's. Gate and up rows, interleaved in a checkpoint, become
two parts; queries, keys and values become one matrix; a layer's experts come in runs.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from rose.config import ModelConfig
from rose.models.gpt_oss import GptOss
from rose.models.layouts import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    ExpertProjection,
    ExpertStorage,
    WeightSource,
    expert_projections,
    layer_prefix,
)
from rose.models.streaming import Placement, Source
from rose.quant.bf16 import Bf16Weight
from rose.quant.scheme import QuantWeight


def placements(
    model: GptOss, source: WeightSource, config: ModelConfig, piece_bytes: int
) -> list[Placement]:
    """All of a checkpoint, in the order of its files.

    Args:
        model: built from `config`.
        source: the checkpoint's tensors.
        config: from the same folder.
        piece_bytes: what can be cut is cut into pieces of at most so many bytes.
    """
    pieces = list(_Planner(model, source, config, piece_bytes).everything())
    return sorted(pieces, key=_position)


def _position(piece: Placement) -> tuple[str, int]:
    rows = piece.sources[0].rows
    return rows.tensor.file.name, rows.offset


class _Planner:
    """Makes placements, module after module."""

    def __init__(
        self, model: GptOss, source: WeightSource, config: ModelConfig, piece_bytes: int
    ) -> None:
        self._model = model
        self._source = source
        self._config = config
        self._piece_bytes = piece_bytes

    def everything(self) -> Iterator[Placement]:
        yield from self._parameter("embed.weight", EMBEDDING)
        for layer in range(self._config.num_layers):
            yield from self._attention(f"layers.{layer}", layer_prefix(layer))
            yield from self._experts(layer)
        yield from self._parameter("norm.weight", FINAL_NORM)
        if self._source.has_head:
            yield from self._head()

    def _head(self) -> Iterator[Placement]:
        weight = self._quant_weight("head.weight")
        if isinstance(weight, Bf16Weight):
            # The largest tensor of all: in pieces, where that is possible.
            yield from self._parameter("head.weight.values", HEAD)
        else:
            yield Placement((self._rows(HEAD),), lambda values: weight.put((), values[0]))

    def _attention(self, target: str, name: str) -> Iterator[Placement]:
        """Everything of a layer but its experts."""
        yield from self._parameter(
            f"{target}.attention_norm.weight", f"{name}.input_layernorm.weight"
        )
        queries_keys_values = [f"{name}.self_attn.{p}_proj" for p in "qkv"]
        yield from self._dense(f"{target}.attention.qkv", *queries_keys_values)
        yield from self._dense(f"{target}.attention.output", f"{name}.self_attn.o_proj")
        yield from self._parameter(f"{target}.attention.sinks", f"{name}.self_attn.sinks")
        yield from self._parameter(
            f"{target}.moe_norm.weight", f"{name}.post_attention_layernorm.weight"
        )
        for kind in ("weight", "bias"):
            yield from self._parameter(f"{target}.moe.router.{kind}", f"{name}.mlp.router.{kind}")

    def _dense(self, target: str, *names: str) -> Iterator[Placement]:
        """A dense layer's weight, whole, and, where the model has one, its bias."""
        weight = self._quant_weight(f"{target}.weight")

        def place(values: list[Tensor]) -> None:
            weight.put((), values[0] if len(values) == 1 else torch.cat(values))

        yield Placement(tuple(self._rows(f"{name}.weight") for name in names), place)
        if self._config.attention_bias:
            yield from self._parameter(f"{target}.bias", *(f"{name}.bias" for name in names))

    def _parameter(self, target: str, *names: str) -> Iterator[Placement]:
        """A plain tensor: the rows of the named ones, one after the other."""
        parameter = self._model.get_parameter(target)
        first = 0
        for name in names:
            rows = self._source.specs[name].shape[0]
            for start, stop in self._runs(rows, self._rows(name).rows.nbytes):
                target_rows = parameter[first + start : first + stop]
                yield Placement((self._rows(name, start, stop),), _copy_to(target_rows))
            first += rows

    def _experts(self, layer: int) -> Iterator[Placement]:
        projections = expert_projections(self._config, layer)
        for target, projection in zip(("gate_up", "down"), projections, strict=True):
            module = f"layers.{layer}.moe.{target}"
            weight = self._quant_weight(module)
            suffixes = _SUFFIXES[self._source.storage]
            names = [projection.name + suffix for suffix in suffixes]
            nbytes = sum(self._rows(name).rows.nbytes for name in names)
            for start, stop in self._runs(self._config.num_experts, nbytes):
                sources = tuple(self._rows(name, start, stop) for name in names)
                run = slice(start, stop)
                yield Placement(sources, self._place_experts(weight, projection, run))
            yield self._expert_bias(f"{module}_bias", projection)

    def _place_experts(
        self, weight: QuantWeight, projection: ExpertProjection, run: slice
    ) -> Callable[[list[Tensor]], None]:
        """How a run of experts' matrices is placed, as they are stored."""
        storage, parts = self._source.storage, projection.parts

        def place(values: list[Tensor]) -> None:
            for part in range(parts):
                index = (run, part)
                match storage:
                    case ExpertStorage.MXFP4:
                        blocks, scales = (value[:, part::parts] for value in values)
                        weight.put_mxfp4(index, blocks, scales)
                    case ExpertStorage.FLOAT:
                        weight.put(index, values[0].mT[:, part::parts])
                    case ExpertStorage.FP8:
                        weight.put_fp8(index, values[0][:, part], values[1][:, part])

        return place

    def _expert_bias(self, target: str, projection: ExpertProjection) -> Placement:
        parameter, parts = self._model.get_parameter(target), projection.parts

        def place(values: list[Tensor]) -> None:
            [bias] = values
            parameter.copy_(torch.cat([bias[:, part::parts] for part in range(parts)], dim=1))

        return Placement((self._rows(f"{projection.name}_bias"),), place)

    def _rows(self, name: str, start: int = 0, stop: int | None = None) -> Source:
        return Source(name, self._source.rows(name, start, stop))

    def _runs(self, rows: int, nbytes: int) -> Iterator[tuple[int, int]]:
        """Cut rows, `nbytes` in all, into runs (start, stop) of at most a piece, or of one row."""
        run = max(1, self._piece_bytes * rows // nbytes)
        for start in range(0, rows, run):
            yield start, min(start + run, rows)

    def _quant_weight(self, target: str) -> QuantWeight:
        module = self._model.get_submodule(target)
        if not isinstance(module, QuantWeight):
            raise TypeError(f"{target} should be a QuantWeight; it is a {type(module).__name__}")
        return module


_SUFFIXES = {
    ExpertStorage.MXFP4: ("_blocks", "_scales"),
    ExpertStorage.FLOAT: ("",),
    ExpertStorage.FP8: ("", "_scale_inv"),
}
"""The tensors that hold a projection's matrices."""


def _copy_to(target: Tensor) -> Callable[[list[Tensor]], None]:
    def place(values: list[Tensor]) -> None:
        target.copy_(values[0])

    return place
