"""Hopper's machine code as cuobjdump lists it: instructions, their registers, what comes next."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\* 0x", re.MULTILINE)
_GUARD = re.compile(r"@!?U?P\w+\s+")
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)\b")
_PREDICATE = re.compile(r"U?P(\d|T)$")

_READERS = {"BAR", "FCHK", "NANOSLEEP", "WARPSYNC"}
"""They write no register, but read one in the place where others name what they write."""

_BYTES = 16
"""Of an instruction."""

_ENDS = {"EXIT", "RET", "KILL"}

_UNFOLLOWED = {"BRX", "BRXU", "JMP", "JMX", "JMXU"}
"""Jumps to where a register tells, and to absolute addresses."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        address: in its kernel, in bytes.
        text: as it is listed.
        guarded: a predicate decides whether it is executed.
        opcode: with its modifiers, such as LDG.E.128.
        operands: as they are listed.
    """

    address: int
    text: str
    guarded: bool
    opcode: str
    operands: tuple[str, ...]

    @property
    def operation(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    def written(self) -> int | None:
        """The register it writes; of several, which start at a multiple of their number, the first.

        Not for wgmma, which writes many more than it names.
        """
        if self.operation in _READERS:
            return None
        operands = self.operands
        if operands and _PREDICATE.match(operands[0]):  # SHFL, for one, writes a predicate too
            operands = operands[1:]
        return register(operands[0]) if operands else None

    def read(self) -> set[int]:
        """The registers it names besides; of several that follow each other, the first."""
        named = [int(number) for each in self.operands for number in _REGISTER.findall(each)]
        if (written := self.written()) is not None:
            named.remove(written)
        return set(named)

    def successors(self) -> Iterator[int]:
        """Addresses of what may be executed next.

        A call may return, so that what follows it is one; BSYNC waits and goes on to the next.

        Raises:
            ValueError: it jumps to where the listing does not tell.
        """
        if self.operation in _UNFOLLOWED or self.opcode.startswith("CALL.ABS"):
            raise ValueError(f"the check cannot follow the jump `{self.text}` at {self.address:#x}")
        ends = self.operation in _ENDS
        if self.operation in ("BRA", "CALL"):
            yield int(self.operands[-1], 16)
            ends = self.operation == "BRA" and len(self.operands) == 1  # others name a predicate
        if self.guarded or not ends:
            yield self.address + _BYTES


def register(operand: str) -> int | None:
    """The number of a general register that is the whole operand, as in `R4` or `R4.reuse`."""
    found = re.match(r"R(\d+)(\.\w+)*$", operand)
    return int(found[1]) if found else None


def kernels(listing: str) -> dict[str, list[Instruction]]:
    """What `cuobjdump --dump-sass` printed: each kernel's instructions by its name."""
    parts = [part.partition("\n") for part in listing.split("Function : ")[1:]]
    return {
        name.strip(): [
            _parse(int(address, 16), text) for address, text in _INSTRUCTION.findall(body)
        ]
        for name, _, body in parts
    }


def _parse(address: int, text: str) -> Instruction:
    guard = _GUARD.match(text)
    opcode, _, operands = text[guard.end() if guard else 0 :].partition(" ")
    parts = tuple(each.strip() for each in operands.split(",")) if operands else ()
    return Instruction(address, text, guard is not None, opcode, parts)
