"""The program that a probe runs on the device, and what must come out of it.

Why integers: the result is exact on every GPU, so one wrong bit is a fault and never rounding.
Why PTX: the driver compiles it for the device at hand, so no toolkit is needed and the compiler is
probed too. Why every block gets the same words: the host computes one block and knows them all.

Must not know how it gets onto the device. Standard library only: it is part of the child.
"""

from __future__ import annotations

from array import array

ENTRY = "tessera_probe"
THREADS = 256
"""Threads of a block, each with one word of 32 bits."""
WORD = 4

PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry tessera_probe(
    .param .u64 tessera_probe_words,
    .param .u32 tessera_probe_rounds
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;

    ld.param.u64 %rd1, [tessera_probe_words];
    ld.param.u32 %r1, [tessera_probe_rounds];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd2, %r5, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3];
    mov.u32 %r7, 0;

$next_round:
    setp.ge.u32 %p1, %r7, %r1;
    @%p1 bra $store;
    shr.u32 %r8, %r6, 16;
    xor.b32 %r6, %r6, %r8;
    mul.lo.u32 %r6, %r6, 0x7feb352dU;
    shr.u32 %r8, %r6, 15;
    xor.b32 %r6, %r6, %r8;
    mul.lo.u32 %r6, %r6, 0x846ca68bU;
    shr.u32 %r8, %r6, 16;
    xor.b32 %r6, %r6, %r8;
    add.u32 %r6, %r6, %r7;
    add.u32 %r7, %r7, 1;
    bra $next_round;

$store:
    st.global.u32 [%rd3], %r6;
    ret;
}
\x00"""

_MASK = 0xFFFFFFFF
_STEP = 0x9E3779B9
"""An odd number, so that all words of a block differ."""


def words(seed: int) -> array[int]:
    """What one block starts from."""
    return array("I", [(seed + i * _STEP) & _MASK for i in range(THREADS)])


def mixed(given: array[int], rounds: int) -> array[int]:
    """What the kernel makes of them: a bijection of 32 bits, so no error can hide in a collision.

    The constants are Chris Wellons' `lowbias32`.
    """
    out = array("I", given)
    for i, word in enumerate(given):
        x = word
        for step in range(rounds):
            x ^= x >> 16
            x = x * 0x7FEB352D & _MASK
            x ^= x >> 15
            x = x * 0x846CA68B & _MASK
            x ^= x >> 16
            x = (x + step) & _MASK
        out[i] = x
    return out


def difference(found: bytes, expected: bytes) -> str:
    """How two arrays of words of equal length differ, for people; empty: not at all."""
    if found == expected:
        return ""
    pairs = enumerate(zip(array("I", found), array("I", expected), strict=True))
    wrong = [(i, is_, should) for i, (is_, should) in pairs if is_ != should]
    at, is_, should = wrong[0]
    return (
        f"{len(wrong)} of {len(found) // WORD} words are wrong, the first at {at}:"
        f" {is_:#010x}, expected {should:#010x}"
    )
