"""The spellings that an API server accepts, and the one that it stores."""

import pytest

from api.resource.quantity import format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        (16, 16),
        ("80Gi", 80 * 2**30),
        ("1.5Ki", 1536),
        (".5Ki", 512),
        ("2.", 2),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("16k", 16_000),
        ("500m", 1),
        ("1n", 1),
        ("1000000u", 1),
        ("-1500m", -2),
        ("-2", -2),
        ("9223372036854775807", 2**63 - 1),
        ("7.999999999999999999Ei", 8 * 2**60 - 1),
    ],
)
def test_every_spelling_is_read_as_its_value(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "0x10", "1.2.3", "--1", "1e", "5KB", "80gi"])
def test_what_is_no_quantity_is_named_in_the_refusal(text):
    with pytest.raises(ValueError, match="quantity") as refusal:
        parse_quantity(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (1000, "1000"),
        (1024, "1Ki"),
        (1536, "1536"),
        (2**40, "1Ti"),
        (80 * 2**30, "80Gi"),
        (2**60, "1Ei"),
    ],
)
def test_the_largest_binary_suffix_that_divides_is_written(value, text):
    assert format_quantity(value) == text
