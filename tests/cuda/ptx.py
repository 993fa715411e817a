"""An interpreter for the little PTX that a probe uses.

Why it exists: the simulated driver recognises a kernel by its name and never reads the text, so
without this no machine without a GPU would notice a wrong register. Semantics: NVIDIA's PTX ISA.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MASKS = {"u32": 2**32 - 1, "b32": 2**32 - 1, "u64": 2**64 - 1}

ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "cvta.to.global": lambda a: a,
    "add": lambda a, b: a + b,
    "shr": lambda a, b: a >> b,
    "xor": lambda a, b: a ^ b,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
}


class Program:
    """One `.entry` with its parameters, registers and instructions."""

    def __init__(self, text: str) -> None:
        match = re.fullmatch(
            r"\s*\.version \d\.\d\s+\.target sm_\d+\s+\.address_size 64\s+"
            r"\.visible \.entry (\w+)\(([^)]*)\)\s*\{(.*)\}\s*",
            text,
            re.DOTALL,
        )
        assert match, "not one entry with a header"
        self.entry = match[1]
        self.parameters = re.findall(r"\.param \.(u32|u64) (\w+)", match[2])
        self.registers: dict[str, str] = {
            f"{name}{i}": kind
            for kind, name, count in re.findall(r"\.reg \.(\w+) (%\w+)<(\d+)>;", match[3])
            for i in range(int(count))
        }
        self.labels: dict[str, int] = {}
        self.code: list[tuple[str, str, list[str]]] = []  # guard, operation, operands
        body = re.sub(r"\.reg [^;]*;", "", match[3])
        for label, guard, operation, operands in re.findall(
            r"(?:(\$\w+):\s*)?(?:@(%\w+)\s+)?([a-z][\w.]*)\s*([^;]*);", body
        ):
            if label:
                self.labels[label] = len(self.code)
            self.code.append(
                (guard, operation, [each for each in re.split(r",\s*", operands) if each])
            )

    def run(self, parameters: Mapping[str, int], memory: dict[int, int], special: dict[str, int]):
        """One thread. `memory`: words by address."""
        values = dict(special)
        at = 0
        while True:
            guard, operation, operands = self.code[at]
            at += 1
            if guard and not values[guard]:
                continue
            if operation == "ret":
                return
            if operation == "bra":
                at = self.labels[operands[0]]
                continue
            name, _, kind = operation.rpartition(".")
            target, *rest = operands
            if name == "st.global":
                memory[values[_inner(target)]] = self._value(rest[0], values, kind)
                continue
            values[target] = self._compute(name, kind, rest, values, parameters, memory)
            self._check(target, name, kind)

    def _compute(
        self,
        name: str,
        kind: str,
        operands: list[str],
        values: Mapping[str, int],
        parameters: Mapping[str, int],
        memory: Mapping[int, int],
    ) -> int:
        if name == "ld.param":
            assert (kind, _inner(operands[0])) in self.parameters
            return parameters[_inner(operands[0])]
        if name == "ld.global":
            return memory[values[_inner(operands[0])]]
        given = [self._value(each, values, kind) for each in operands]
        if name == "setp.ge":
            return int(given[0] >= given[1])
        if name == "mul.wide":
            return given[0] * given[1]
        return ARITHMETIC[name](*given) & MASKS[kind]

    def _value(self, text: str, values: Mapping[str, int], kind: str) -> int:
        if text.startswith("%"):
            assert text.startswith(("%ctaid", "%ntid", "%tid")) or self._width(text) == kind[1:]
            return values[text]
        return int(text.removesuffix("U"), 0) & MASKS[kind]

    def _check(self, target: str, name: str, kind: str) -> None:
        """Registers are declared, and as wide as what is put into them."""
        if name == "setp.ge":
            assert self.registers[target] == "pred"
        else:
            assert self._width(target) == ("64" if name == "mul.wide" else kind[1:])

    def _width(self, register: str) -> str:
        return self.registers[register][1:]


def _inner(operand: str) -> str:
    assert operand.startswith("[")
    assert operand.endswith("]")
    return operand[1:-1]
