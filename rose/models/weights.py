"""Weights into a model: streamed from a checkpoint, or random.

At most one placed tensor's source is in host memory beyond the weights themselves; experts go one
by one. The module tree that is filled is GptOss's.
"""

import torch
from torch import Tensor, nn

from rose.config import ModelConfig
from rose.models.checkpoint import CheckpointError
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
from rose.progress import Progress
from rose.quant.scheme import QuantWeight

_CHECKED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)

BIAS_STD = 0.02
SINK_STD = 1.0


@torch.no_grad()
def load_weights(model: GptOss, source: WeightSource, config: ModelConfig) -> None:
    """Fill a model from a checkpoint of any layout (`rose.models.layouts`) into its own scheme.

    Args:
        model: built from `config`; its storage is overwritten.
        source: the checkpoint's tensors, accounted for.
        config: from the same folder.

    Raises:
        CheckpointError: a file cannot be read, or shrank; or a tensor holds NaN or infinity.
    """
    with Progress("Loading weights", total=source.nbytes, unit="B") as progress:
        _Loader(model, source, config, progress).load()


class _Loader:
    """Copies tensor after tensor from a source to a model."""

    def __init__(
        self, model: GptOss, source: WeightSource, config: ModelConfig, progress: Progress
    ) -> None:
        self.model = model
        self.source = source
        self.config = config
        self.progress = progress
        self.device = model.get_parameter("embed.weight").device

    def load(self) -> None:
        self.parameter("embed.weight", EMBEDDING)
        for layer in range(self.config.num_layers):
            self.attention(f"layers.{layer}", layer_prefix(layer))
            self.experts(layer)
        self.parameter("norm.weight", FINAL_NORM)
        if self.source.has_head:
            self.parameter("head.weight", HEAD)
        else:
            self.model.get_parameter("head.weight").copy_(self.model.get_parameter("embed.weight"))

    def attention(self, target: str, name: str) -> None:
        """Everything of a layer but its experts."""
        self.parameter(f"{target}.attention_norm.weight", f"{name}.input_layernorm.weight")
        queries_keys_values = [f"{name}.self_attn.{p}_proj" for p in "qkv"]
        self.dense(f"{target}.attention.qkv", *queries_keys_values)
        self.dense(f"{target}.attention.output", f"{name}.self_attn.o_proj")
        self.parameter(f"{target}.attention.sinks", f"{name}.self_attn.sinks")
        self.parameter(f"{target}.moe_norm.weight", f"{name}.post_attention_layernorm.weight")
        self.parameter(f"{target}.moe.router.weight", f"{name}.mlp.router.weight")
        self.parameter(f"{target}.moe.router.bias", f"{name}.mlp.router.bias")

    def experts(self, layer: int) -> None:
        """A layer's experts: gate and up rows, interleaved in a checkpoint, become two parts."""
        gate_up, down = expert_projections(self.config, layer)
        for target, projection in (("gate_up", gate_up), ("down", down)):
            module = f"layers.{layer}.moe.{target}"
            weight = self.quant_weight(module)
            for expert in range(self.config.num_experts):
                self.expert(weight, projection, expert)
            bias = self.read(f"{projection.name}_bias")
            parts = [bias[:, part :: projection.parts] for part in range(projection.parts)]
            self.model.get_parameter(f"{module}_bias").copy_(torch.cat(parts, dim=1))

    def expert(self, weight: QuantWeight, projection: ExpertProjection, expert: int) -> None:
        """One expert's matrices, as they are stored."""
        name, parts = projection.name, projection.parts
        match self.source.storage:
            case ExpertStorage.MXFP4:
                blocks = self.read_row(f"{name}_blocks", expert)
                scales = self.read_row(f"{name}_scales", expert)
                for part in range(parts):
                    weight.put_mxfp4(
                        (expert, part),
                        blocks[part::parts].contiguous(),
                        scales[part::parts].contiguous(),
                    )
            case ExpertStorage.FLOAT:
                matrix = self.read_row(name, expert).T
                for part in range(parts):
                    weight.put((expert, part), matrix[part::parts].contiguous())
            case ExpertStorage.FP8:
                values = self.read_row(name, expert)
                scales = self.read_row(f"{name}_scale_inv", expert)
                for part in range(parts):
                    weight.put_fp8((expert, part), values[part], scales[part])

    def parameter(self, target: str, *names: str) -> None:
        """One plain tensor: the rows of the named ones, one after the other."""
        self.model.get_parameter(target).copy_(self.concatenated(*names))

    def dense(self, target: str, *names: str) -> None:
        """A dense layer's weight and, where the model has one, its bias."""
        weight = self.quant_weight(f"{target}.weight")
        weight.put((), self.concatenated(*(f"{name}.weight" for name in names)))
        if self.config.attention_bias:
            self.parameter(f"{target}.bias", *(f"{name}.bias" for name in names))

    def quant_weight(self, target: str) -> QuantWeight:
        module = self.model.get_submodule(target)
        if not isinstance(module, QuantWeight):
            raise TypeError(f"{target} should be a QuantWeight; it is a {type(module).__name__}")
        return module

    def concatenated(self, *names: str) -> Tensor:
        parts = [self.read(name) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def read(self, name: str) -> Tensor:
        """A whole tensor, on the model's device."""
        return self._on_device(name, self.source.read(name))

    def read_row(self, name: str, row: int) -> Tensor:
        """One row of a tensor's first dimension, on the model's device."""
        return self._on_device(name, self.source.read(name, row, row + 1))[0]

    def _on_device(self, name: str, value: Tensor) -> Tensor:
        self.progress.advance(value.nbytes)
        value = value.to(self.device)
        # One such weight makes every token the same, without any error later.
        if value.dtype in _CHECKED and not bool(value.isfinite().all()):
            raise CheckpointError(
                f"{self.source.checkpoint.folder}: {name} holds values that are no finite numbers; "
                "download or convert the checkpoint again"
            )
        return value


@torch.no_grad()
def load_dummy(model: GptOss, seed: int) -> None:
    """Fill a model with random weights, in place and on its own device.

    Norms are 1 and matrices keep the size of what they multiply, so that activations stay finite
    however deep the model is. Every layer's weights differ; the same seed gives the same weights
    on the same kind of device.
    """
    generator = torch.Generator(model.get_parameter("embed.weight").device).manual_seed(seed)
    for module in model.modules():
        if isinstance(module, QuantWeight):
            module.randomize(generator, std=module.in_features**-0.5)
    for name, parameter in model.named_parameters():
        if not _is_quantised(model, name):
            _randomize(name, parameter, generator)


def _is_quantised(model: nn.Module, name: str) -> bool:
    owner = name.rpartition(".")[0]
    return isinstance(model.get_submodule(owner), QuantWeight)


def _randomize(name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    if name.endswith("norm.weight"):
        parameter.fill_(1.0)
    elif name.endswith("bias"):
        parameter.normal_(0.0, BIAS_STD, generator=generator)
    elif name.endswith("sinks"):
        parameter.normal_(0.0, SINK_STD, generator=generator)
    elif name == "embed.weight":
        parameter.normal_(0.0, 1.0, generator=generator)
    else:
        parameter.normal_(0.0, parameter.shape[-1] ** -0.5, generator=generator)
