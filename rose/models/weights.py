"""Weights into a model: streamed from a checkpoint, or random."""

import torch
from torch import Tensor, nn

from rose.config import ModelConfig
from rose.models.checkpoint import CheckpointError
from rose.models.gpt_oss import GptOss
from rose.models.layouts import WeightSource
from rose.models.placement import placements
from rose.models.streaming import Placement, Streaming, stream
from rose.progress import Progress
from rose.quant.scheme import QuantWeight

_CHECKED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)

BIAS_STD = 0.02
SINK_STD = 1.0


@torch.no_grad()
def load_weights(
    model: GptOss, source: WeightSource, config: ModelConfig, streaming: Streaming | None = None
) -> None:
    """Fill a model from a checkpoint of any layout (`rose.models.layouts`) into its own scheme.

    Args:
        model: built from `config`; its storage is overwritten.
        source: the checkpoint's tensors, accounted for.
        config: from the same folder.
        streaming: how to read; None: what suits the model's device.

    Raises:
        CheckpointError: a file cannot be read, or shrank; or a tensor holds NaN or infinity, or
            what the scheme cannot store.
    """
    embedding = model.get_parameter("embed.weight")
    streaming = streaming or Streaming.for_device(embedding.device)
    pieces = placements(model, source, config, streaming.piece_bytes)
    check = _FiniteCheck()
    with Progress("Loading weights", total=source.nbytes, unit="B") as progress:

        def arrived(piece: Placement, tensors: list[Tensor]) -> None:
            for part, tensor in zip(piece.sources, tensors, strict=True):
                check.add(part.name, tensor)
            progress.advance(piece.nbytes)

        stream(pieces, embedding.device, streaming, arrived)
        bad = check.failed()
    for name in source.specs:
        if name in bad:
            raise CheckpointError(
                f"{source.checkpoint.folder}: {name} holds values that are no finite numbers; "
                "download or convert the checkpoint again"
            )
    if not source.has_head:
        model.head.weight.put((), embedding)


class _FiniteCheck:
    """Finds tensors with NaN or infinity: one such weight makes every token the same.

    The device keeps the answers until the end, so that no tensor waits for the one before it.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._extremes: list[Tensor] = []

    def add(self, name: str, value: Tensor) -> None:
        """Check a tensor, or a part of it."""
        if value.dtype in _CHECKED:
            self._names.append(name)
            # Both are NaN if any value is. This takes one pass; `isfinite` takes four.
            self._extremes += value.aminmax()

    def failed(self) -> set[str]:
        """The names of all that failed; waits for the device."""
        finite = torch.stack([extreme.double() for extreme in self._extremes]).isfinite()
        good = finite.view(-1, 2).all(dim=1).tolist()
        return {name for name, ok in zip(self._names, good, strict=True) if not ok}


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
