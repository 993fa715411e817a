"""The PTX that is shipped computes what the host expects, thread by thread."""

from __future__ import annotations

from array import array

import pytest

from driver.cuda import kernel
from tests.cuda.ptx import Program

BASE = 0x7F00_0000_0000


@pytest.mark.parametrize("rounds", [0, 1, 2, 32])
@pytest.mark.parametrize("seed", [0, 1, 0xDEADBEEF])
def test_the_text_computes_what_the_host_computes(rounds, seed) -> None:
    program = Program(kernel.PTX.rstrip(b"\0").decode())
    assert program.entry == kernel.ENTRY
    given = kernel.words(seed)
    memory = {BASE + 4 * i: word for i, word in enumerate(array("I", given.tobytes() * 2))}
    (_, address), (_, count) = program.parameters
    parameters = {address: BASE, count: rounds}
    for block in (0, 1):
        for thread in range(0, kernel.THREADS, 37):
            special = {"%ctaid.x": block, "%ntid.x": kernel.THREADS, "%tid.x": thread}
            program.run(parameters, memory, special)
    expected = array("I", kernel.mixed(given, rounds).tobytes() * 2)
    untouched = array("I", given.tobytes() * 2)
    for i, address_ in enumerate(sorted(memory)):
        ran = i % kernel.THREADS % 37 == 0
        assert memory[address_] == (expected if ran else untouched)[i]


def test_the_text_ends_where_c_expects_it_and_is_plain() -> None:
    assert kernel.PTX.endswith(b"\0")
    assert kernel.PTX.count(b"\0") == 1
    assert kernel.PTX.isascii()


def test_words_of_a_block_differ_and_no_two_inputs_meet() -> None:
    words = kernel.words(5)
    assert len(set(words)) == kernel.THREADS
    assert len(set(kernel.mixed(words, 32))) == kernel.THREADS


@pytest.mark.parametrize(
    ("position", "bit", "text"),
    [(0, 0, "1 of 256 words are wrong, the first at 0:"), (255, 31, "the first at 255:")],
)
def test_a_difference_is_told_by_number_and_place(position, bit, text) -> None:
    words = kernel.words(5)
    found = array("I", words)
    found[position] ^= 1 << bit
    told = kernel.difference(found.tobytes(), words.tobytes())
    assert text in told
    assert f"{found[position]:#010x}, expected {words[position]:#010x}" in told
    assert not kernel.difference(words.tobytes(), words.tobytes())
