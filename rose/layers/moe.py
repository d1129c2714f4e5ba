"""Mixture of experts."""

import torch
from torch import Tensor, nn

from rose.kernels.routing import Routing, combine, combine_norm, route_linear
from rose.layers.norm import RMSNorm
from rose.quant.scheme import QuantScheme


class Router(nn.Module):
    """Scores the experts. Never quantised: a small error here picks another expert.

    Attributes:
        weight: dtype [num_experts, hidden_size].
        bias: dtype [num_experts].
        arrivals: int32 [1], zero whenever no kernel runs: see `route_linear`. A layer has its own,
            as engines of one process may run at the same time.
    """

    arrivals: Tensor

    def __init__(
        self,
        hidden_size: int,
        num_experts: int,
        *,
        experts_per_token: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.experts_per_token = experts_per_token
        weight = torch.empty(num_experts, hidden_size, dtype=dtype, device=device)
        bias = torch.empty(num_experts, dtype=dtype, device=device)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        arrivals = torch.zeros(1, dtype=torch.int32, device=device)
        self.register_buffer("arrivals", arrivals, persistent=False)

    def forward(self, x: Tensor) -> Routing:
        """Choose experts for x [tokens, hidden_size]."""
        return route_linear(x, self.weight, self.bias, self.experts_per_token, self.arrivals)


class MoE(nn.Module):
    """Each token goes through its best experts, whose outputs are summed by router weight.

    Attributes:
        gate_up: QuantWeight of batch (num_experts, 2), [intermediate_size, hidden_size] each;
            part 0 is the gate, part 1 the linear part.
        gate_up_bias: dtype [num_experts, 2 * intermediate_size], gate then linear part.
        down: QuantWeight of batch (num_experts, 1), [hidden_size, intermediate_size].
        down_bias: dtype [num_experts, hidden_size].
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        num_experts: int,
        *,
        experts_per_token: int,
        swiglu_limit: float,
        scheme: QuantScheme,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.swiglu_limit = swiglu_limit
        self.router = Router(
            hidden_size,
            num_experts,
            experts_per_token=experts_per_token,
            dtype=dtype,
            device=device,
        )
        self.gate_up = scheme.create_weights(
            (num_experts, 2), intermediate_size, hidden_size, dtype=dtype, device=device
        )
        self.down = scheme.create_weights(
            (num_experts, 1), hidden_size, intermediate_size, dtype=dtype, device=device
        )
        gate_up_bias = torch.empty(num_experts, 2 * intermediate_size, dtype=dtype, device=device)
        down_bias = torch.empty(num_experts, hidden_size, dtype=dtype, device=device)
        self.gate_up_bias = nn.Parameter(gate_up_bias, requires_grad=False)
        self.down_bias = nn.Parameter(down_bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [tokens, hidden_size] to the same shape and dtype."""
        rows, routing = self._experts(x)
        return combine(rows, routing)

    def add(self, residual: Tensor, x: Tensor, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """Add what x gives to the residual stream; the sum, and the sum normalised by `norm`."""
        rows, routing = self._experts(x)
        return combine_norm(rows, routing, residual, norm.weight, norm.epsilon)

    def _experts(self, x: Tensor) -> tuple[Tensor, Routing]:
        """What each token's experts compute [tokens * experts_per_token, hidden_size]."""
        routing = self.router(x)
        rows = self.gate_up.expert_mlp(
            self.down, x, routing, self.gate_up_bias, self.down_bias, self.swiglu_limit
        )
        return rows, routing
