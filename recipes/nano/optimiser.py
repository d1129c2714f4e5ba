"""The optimisers: AdamW, and Muon for the matrices inside the layers.

Muon (Jordan et al. 2024) makes a matrix's momentum nearly orthogonal before it is applied. Its
step is scaled by 0.2 * sqrt(longer side), which gives it the size of AdamW's, so that one learning
rate and weight decay serve both (Liu et al. 2025, "Muon is scalable for LLM training").
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

ADAM_BETAS = (0.9, 0.95)
MUON_MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


def orthogonalised(value: Tensor) -> Tensor:
    """Matrices [..., rows, columns] with their singular values moved to about 1."""
    a, b, c = NEWTON_SCHULZ
    x = value.to(torch.bfloat16)
    wide = x.shape[-2] <= x.shape[-1]
    if not wide:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x if wide else x.mT).to(value.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal; parameters of one shape are stacked and treated at once.

    Args:
        parameters: of two dimensions or more; the last two are the matrix.
        lr: as AdamW's.
        weight_decay: as AdamW's.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, lr: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for parameters in shapes.values():
                self._step_together(parameters, group["lr"], group["weight_decay"])

    def _step_together(
        self, parameters: list[nn.Parameter], lr: float, weight_decay: float
    ) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        momenta = [self._momentum(p) for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - MUON_MOMENTUM)
        # Nesterov: look one step ahead.
        ahead = torch._foreach_lerp(gradients, momenta, MUON_MOMENTUM)
        updates = orthogonalised(torch.stack(ahead))
        rows, columns = parameters[0].shape[-2:]
        torch._foreach_mul_(parameters, 1 - lr * weight_decay)
        step = lr * 0.2 * max(rows, columns) ** 0.5
        torch._foreach_add_(parameters, list(updates.unbind(0)), alpha=-step)

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"]
        return momentum


def _inner_matrix(name: str, parameter: nn.Parameter) -> bool:
    outer = ("embed_tokens", "lm_head", "bias", "router")
    return parameter.ndim >= 2 and not any(part in name for part in outer)


def make_optimisers(
    model: nn.Module, kind: str, *, lr: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Optimisers of all parameters.

    Args:
        model: with its parameters where they will stay.
        kind: "adamw" for everything, or "muon" for the matrices inside the layers.
        lr: at its peak.
        weight_decay: of matrices; vectors have none.
    """
    named = list(model.named_parameters())
    muon = [p for name, p in named if kind == "muon" and _inner_matrix(name, p)]
    taken = set(map(id, muon))
    rest = [(name, p) for name, p in named if id(p) not in taken]
    matrices = [p for name, p in rest if p.ndim >= 2 and "bias" not in name]
    vectors = [p for name, p in rest if p.ndim < 2 or "bias" in name]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = named[0][1].is_cuda
    adam = torch.optim.AdamW(groups, lr=lr, betas=ADAM_BETAS, eps=1e-8, fused=fused)
    return [adam, Muon(muon, lr=lr, weight_decay=weight_decay)] if muon else [adam]
