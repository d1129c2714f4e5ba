"""What a conversion changed."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TensorChange:
    """How the values of one tensor differ from the source's.

    Attributes:
        name: of the tensor.
        values: how many it has.
        changed: how many of them differ.
        max_absolute: the largest |new - old|.
        max_relative: the largest |new - old| / |old|; infinite where a zero changed.
    """

    name: str
    values: int
    changed: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0

    def __add__(self, other: "TensorChange") -> "TensorChange":
        return TensorChange(
            self.name,
            self.values + other.values,
            self.changed + other.changed,
            max(self.max_absolute, other.max_absolute),
            max(self.max_relative, other.max_relative),
        )


def compare(name: str, old: Tensor, new: Tensor) -> TensorChange:
    """The change from `old` to `new`, float32 tensors of one shape; `old` is finite."""
    if torch.equal(old, new):
        return TensorChange(name, old.numel())
    difference = (new - old).abs_()
    changed = int(torch.count_nonzero(difference))
    if not changed:
        return TensorChange(name, old.numel())
    absolute = float(difference.max())
    mask = difference != 0
    relative = float((difference[mask].double() / old[mask].double().abs()).max())
    return TensorChange(name, old.numel(), changed, absolute, relative)


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The result of a conversion, all of it read back from the disk and found to be so.

    Attributes:
        target: the folder that was written.
        shards: how many weight files it has.
        nbytes: the size of their data.
        changes: one entry a converted tensor. All other tensors are the source's bytes.
    """

    target: Path
    shards: int
    nbytes: int
    changes: tuple[TensorChange, ...]

    @property
    def values(self) -> int:
        """Values in the converted tensors."""
        return sum(change.values for change in self.changes)

    @property
    def changed(self) -> int:
        """Values that differ from the source's."""
        return sum(change.changed for change in self.changes)

    @property
    def inexact(self) -> tuple[TensorChange, ...]:
        """The tensors in which anything changed, the largest relative change first."""
        found = [change for change in self.changes if change.changed]
        return tuple(sorted(found, key=lambda change: -change.max_relative))

    def summary(self, limit: int = 5) -> str:
        """A few lines for people, with the `limit` worst tensors."""
        head = f"{self.target}: {self.shards} shards, {self.nbytes / 1e9:.2f} GB, verified. "
        if not self.changed:
            return head + f"All {self.values} converted values are exact."
        share = self.changed / self.values
        lines = [
            head + f"{self.changed} of {self.values} converted values changed ({share:.2g} of "
            f"them), in {len(self.inexact)} of {len(self.changes)} tensors. The largest:"
        ]
        lines += [
            f"  {c.name}: {c.changed} of {c.values}, at most {c.max_absolute:.3g} absolute, "
            f"{c.max_relative:.3g} relative"
            for c in self.inexact[:limit]
        ]
        return "\n".join(lines)
