"""Against decimal arithmetic of the standard library, with digits to spare."""

from decimal import ROUND_UP, Decimal, localcontext

from hypothesis import given, strategies as st

from api.resource.quantity import format_quantity, parse_quantity
from tests.property.server import respelled

SUFFIXES = {
    **{s: Decimal(10) ** e for s, e in zip("num", (-9, -6, -3), strict=True)},
    **{s: Decimal(10) ** (3 * i) for i, s in enumerate(["", *"kMGTPE"])},
    **{f"{s}i": Decimal(2) ** (10 * i) for i, s in enumerate("KMGTPE", start=1)},
    **{f"{e}{n}": Decimal(10) ** n for e in "eE" for n in (-9, 0, 3, 12)},
}
NUMBERS = st.from_regex(r"[+-]?([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})", fullmatch=True)


@given(NUMBERS, st.sampled_from(sorted(SUFFIXES)))
def test_a_quantity_is_its_number_times_its_unit_rounded_away_from_zero(number, suffix):
    with localcontext(prec=100):
        exact = Decimal(number) * SUFFIXES[suffix]
        assert parse_quantity(number + suffix) == int(exact.to_integral_value(ROUND_UP))


@given(st.integers(-(2**63), 2**63 - 1))
def test_what_is_written_is_read_as_the_same_number(value):
    assert parse_quantity(format_quantity(value)) == value


@given(st.integers(0, 2**63 - 1), st.integers(0, 6))
def test_what_the_server_respells_is_the_same_number(value, zeros):
    value *= 1000**zeros
    assert parse_quantity(respelled(str(value))) == value


@given(st.integers(1, 2**20), st.integers(0, 6))
def test_no_shorter_binary_spelling_is_left(value, power):
    text = format_quantity(value * 1024**power)
    digits = int(text.rstrip("KMGTPEi"))
    assert digits % 1024 or text.endswith("Ei")
