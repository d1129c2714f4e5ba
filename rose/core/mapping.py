"""Where a rank stands in the parallel layout: pure arithmetic, no communication."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParallelMapping:
    """One rank's coordinates. Ranks are numbered with tp innermost, dp outermost.

    Experts are spread over the ep ranks, which are taken from the tp x dp ranks of a replica.

    Attributes:
        rank: in [0, tp * dp).
        tp: tensor-parallel size.
        ep: expert-parallel size; divides tp * dp.
        dp: data-parallel size.
    """

    rank: int = 0
    tp: int = 1
    ep: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        """Check the sizes against each other."""
        if min(self.tp, self.ep, self.dp) < 1:
            raise ValueError(f"tp, ep and dp must be at least 1; got {self}")
        if self.world_size % self.ep:
            raise ValueError(f"ep must divide tp * dp; got {self}")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be in [0, {self.world_size}); got {self.rank}")

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self.tp * self.dp

    @property
    def tp_rank(self) -> int:
        """Coordinate in the tensor-parallel group."""
        return self.rank % self.tp

    @property
    def dp_rank(self) -> int:
        """Coordinate in the data-parallel group."""
        return self.rank // self.tp

    @property
    def ep_rank(self) -> int:
        """Coordinate in the expert-parallel group."""
        return self.rank // (self.world_size // self.ep)

    def local_experts(self, num_experts: int) -> range:
        """The experts that this rank holds.

        Raises:
            ValueError: the experts do not divide over ep ranks.
        """
        if num_experts % self.ep:
            raise ValueError(f"{num_experts} experts do not divide over ep={self.ep}")
        each = num_experts // self.ep
        return range(self.ep_rank * each, (self.ep_rank + 1) * each)
