"""Find what a kernel does to registers of wgmma while the tensor cores still use them.

`python -m tools.wgmma_hazards [WHAT ...]`: WHAT is a cubin's file, or an op that
tools/compile_kernels.py knows and that is compiled here; all ops without any. Needs no GPU.

A product runs beside the code that follows, until that waits for its group. Before, nothing may
write the registers of its left operand, nor touch those of its sums: results would be wrong, now
and then. ptxas sees to that within straight code, and neither it nor Triton does in all loops.
This goes over what ptxas made, with the products that may be in flight wherever it gets to.
"""

import argparse
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tools.compile_kernels import compile_ops, known
from tools.sass import Instruction, kernels, register


class Use(Enum):
    """What a product in flight does with a register."""

    LEFT = "left operand"
    SUMS = "sums"


InFlight = Mapping[tuple[Use, int], int]
"""Registers of products in flight: how many groups were committed since, their own included.

That is, 0 where the product belongs to no group yet. Of several paths, and of several products,
the one with the fewest counts.
"""


@dataclass(frozen=True, slots=True)
class Product:
    """A wgmma: the registers of its left operand (none where that is in memory) and of its sums."""

    left: range
    sums: range
    commits: bool


@dataclass(frozen=True, slots=True)
class Hazard:
    """An instruction that touches what it must not yet.

    Attributes:
        address: in its kernel, in bytes.
        text: the instruction.
        what: what it does, such as "writes R4, left operand in flight".
    """

    address: int
    text: str
    what: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A kernel that was gone over.

    Attributes:
        kernel: its name.
        products: instructions that are wgmma.
        from_registers: those of them whose left operand is in registers.
        hazards: in order of address; empty is well.
    """

    kernel: str
    products: int
    from_registers: int
    hazards: tuple[Hazard, ...]


def check(listing: str) -> list[Checked]:
    """Go over the kernels of a cubin.

    Args:
        listing: what `cuobjdump --dump-sass` printed.

    Raises:
        ValueError: an instruction is none that this can read.
    """
    return [_check_kernel(name, code) for name, code in kernels(listing).items()]


def _check_kernel(name: str, code: list[Instruction]) -> Checked:
    products = [found for each in code if (found := product(each))]
    hazards: list[Hazard] = []
    if products:
        states = _flow(code)
        if any(product(each) and each.address not in states for each in code):
            raise ValueError(f"no path through {name} gets to all of its products")
        for each in code:
            what = _touched(each, states.get(each.address, {}))
            hazards += [Hazard(each.address, each.text, one) for one in what]
    from_registers = sum(bool(each.left) for each in products)
    return Checked(name, len(products), from_registers, tuple(hazards))


def product(instruction: Instruction) -> Product | None:
    """The product that this instruction starts, if it is wgmma.

    Raises:
        ValueError: registers lie as none were seen to.
    """
    if not instruction.operation.endswith("GMMA"):
        return None
    _, shape, accumulator, *_ = instruction.opcode.split(".")
    columns = int(shape.split("x")[1])
    sums, left, *others = instruction.operands
    first, start = register(sums), register(left)
    # 64 rows among 128 threads; of float16 two share a register.
    count = columns // 4 if accumulator == "F16" else columns // 2
    # Vectors start at a multiple of their number, and have at most four: if these come in fours,
    # the first register of a vector tells for all.
    if first is None or first % 4 or count % 4 or (start or 0) % 4:
        raise ValueError(f"the check does not know registers as in `{instruction.text}`")
    return Product(
        left=range(0) if start is None else range(start, start + 4),
        sums=range(first, first + count),
        commits="gsb0" in others,
    )


def _flow(code: list[Instruction]) -> dict[int, InFlight]:
    """What may be in flight before each instruction that can be reached, by address."""
    at = {each.address: each for each in code}
    states: dict[int, InFlight] = {code[0].address: {}}
    changed = [code[0].address]
    while changed:
        instruction = at[changed.pop()]
        before = states[instruction.address]
        after = _step(instruction, before)
        if instruction.guarded:
            after = _either(before, after)
        for address in instruction.successors():
            if address not in at:
                raise ValueError(f"after `{instruction.text}` no code at {address:#x} is listed")
            found = states.get(address)
            joined = after if found is None else _either(found, after)
            if joined != found:
                states[address] = joined
                changed.append(address)
    return states


def _either(one: InFlight, other: InFlight) -> InFlight:
    """In flight on one of two paths."""
    if one is other:
        return one
    return {**one, **{key: min(age, one.get(key, age)) for key, age in other.items()}}


def _step(instruction: Instruction, before: InFlight) -> InFlight:
    """In flight after an instruction."""
    if instruction.opcode.startswith("WARPGROUP.DEPBAR"):
        pending = int(instruction.operands[1], 16)
        return {key: age for key, age in before.items() if age <= pending}
    started = product(instruction)
    if started is None:
        return before
    uses = {Use.LEFT: started.left, Use.SUMS: started.sums}
    new = {(use, one): 0 for use, registers in uses.items() for one in registers}
    after = {**before, **new}
    return {key: age + 1 for key, age in after.items()} if started.commits else after


def _touched(instruction: Instruction, in_flight: InFlight) -> Iterator[str]:
    """What an instruction does that it must not while these are in flight."""
    for does, registers, use in _accesses(instruction):
        if found := sorted(each for each in registers if (use, each) in in_flight):
            names = ", ".join(f"R{each}" for each in found)
            yield f"{does} {names}, {use.value} in flight"


def _accesses(instruction: Instruction) -> list[tuple[str, Collection[int], Use]]:
    """What an instruction does to which registers, and what these must not be in flight as."""
    if started := product(instruction):
        # It may add to sums in flight: products come one after the other.
        return [("writes", started.sums, Use.LEFT), ("reads", started.left, Use.SUMS)]
    one = instruction.written()
    written = () if one is None else (one,)
    return [
        ("writes", written, Use.LEFT),
        ("writes", written, Use.SUMS),
        ("reads", instruction.read(), Use.SUMS),
    ]


def main() -> None:
    """Print a line a kernel and a line a hazard; exit with 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", metavar="WHAT", help="a file.cubin or an op; all ops")
    what = parser.parse_args().what
    cubins = {Path(each).read_bytes(): each for each in what if each.endswith(".cubin")}
    ops = [each for each in what if not each.endswith(".cubin")]
    if unknown := set(ops) - set(known()):
        parser.error(f"no op {', '.join(sorted(unknown))}; there are {', '.join(known())}")
    if ops or not what:
        launches = compile_ops(ops or known())
        cubins |= {each.cubin: f"grid {each.grid}" for each in launches if each.wgmma}

    hazards = 0
    print("from: kernel products from_registers hazards")
    for origin, kernel in _check_all(cubins):
        found = kernel.hazards
        print(f"{origin}: {kernel.kernel} {kernel.products} {kernel.from_registers} {len(found)}")
        for each in found:
            print(f"  {each.address:#x} {each.text}: {each.what}")
        hazards += len(found)
    sys.exit(hazards > 0)


def _check_all(cubins: Mapping[bytes, str]) -> Iterator[tuple[str, Checked]]:
    """Each kernel of these, with where it is from."""
    from tools.sm90 import cuobjdump  # imports Triton, which the compiler must be the first to do

    with ThreadPoolExecutor() as pool:
        listings = pool.map(lambda cubin: cuobjdump(cubin, "--dump-sass"), cubins)
        for origin, listing in zip(cubins.values(), listings, strict=True):
            for kernel in check(listing):
                yield origin, kernel


if __name__ == "__main__":
    main()
