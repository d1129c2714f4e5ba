"""Several GPUs of one host that train one model: each has its own rows, gradients are averaged."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

PORT = 29_517
"""Where the ranks of this host meet."""


class Ranks:
    """This process among those that train together.

    Args:
        rank: its number.
        count: how many there are; 1: there is nothing to agree on.
        device: what it computes on.
    """

    def __init__(self, rank: int, count: int, device: torch.device) -> None:
        self.rank = rank
        self.count = count
        if count > 1:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                init_method=f"tcp://127.0.0.1:{PORT}",
                rank=rank,
                world_size=count,
            )

    @property
    def first(self) -> bool:
        """Whether this one speaks for all."""
        return self.rank == 0

    def agree(self, value: float) -> float:
        """The mean of what the ranks say, so that all do the same."""
        if self.count == 1:
            return value
        # On the CPU, so that nobody waits for a GPU.
        shared = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(shared)
        return shared.item() / self.count

    @torch.no_grad()
    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every rank the mean gradients."""
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.count
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def close(self) -> None:
        """Part company."""
        if self.count > 1:
            dist.barrier()
            dist.destroy_process_group()
