import hashlib
import json

import pytest
from hypothesis import given, strategies as st

from driver.core.errors import StateDamaged, StateTooNew
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Holding, Phase
from driver.state.ledger_file import decode, encode

texts = st.text(st.characters(codec="utf-8"), max_size=12)
holdings = st.builds(
    Holding,
    request=texts,
    pool=texts.map(PoolName),
    device=texts.map(DeviceName),
    gpu=texts.map(GpuUuid),
    cdi_id=texts.map(CdiId),
    admin_access=st.booleans(),
    share_id=st.none() | texts,
)
entries = st.builds(
    Entry,
    uid=texts.map(ClaimUID),
    namespace=texts,
    name=texts,
    boot_id=texts,
    holdings=st.lists(holdings, max_size=3).map(tuple),
    phase=st.sampled_from(Phase),
    given=st.booleans(),
)
ONE = Entry(
    uid=ClaimUID("c0ffee-1"),
    namespace="default",
    name="train",
    boot_id="b1",
    holdings=(
        Holding(
            request="gpu",
            pool=PoolName("n1/tessera"),
            device=DeviceName("gpu-01234567"),
            gpu=GpuUuid("GPU-01234567-89ab-cdef-0123-456789abcdef"),
            cdi_id=CdiId("tessera.dev/claim=c0ffee-1-gpu-01234567"),
        ),
    ),
)


def read(data: bytes, node: str = "n1") -> Entry:
    return decode(data, node=node, name="c0ffee-1.json")


def sealed(body: bytes, **header: object) -> bytes:
    """A file as a program with other ideas would write it."""
    head = {
        "format": "tessera-ledger",
        "version": 1,
        "sha256": hashlib.sha256(body).hexdigest(),
        "node": "n1",
    } | header
    return json.dumps(head).encode() + b"\n" + body + b"\n"


@given(entries, texts)
def test_what_was_written_is_read_again(entry, node):
    assert decode(encode(entry, node=node), node=node, name="x") == entry


@given(st.data())
def test_no_change_of_a_byte_gives_another_entry(data):
    whole = encode(ONE, node="n1")
    place = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = whole[:place] + bytes([byte]) + whole[place + 1 :]
    try:
        assert read(changed) == ONE
    except (StateDamaged, StateTooNew):
        assert changed != whole


def test_a_file_cut_anywhere_is_damaged():
    whole = encode(ONE, node="n1")
    for length in range(len(whole)):
        with pytest.raises(StateDamaged):
            read(whole[:length])


BODY = encode(ONE, node="n1").split(b"\n")[1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not two whole lines"),
        (b"\x00\xff\n{}\n", "unreadable header"),
        (b"[]\n{}\n", "unreadable header"),
        (sealed(BODY, version="1"), "unreadable header: version"),
        (sealed(BODY, version=0), "not a tessera-ledger file"),
        (sealed(BODY, format="other"), "not a tessera-ledger file"),
        (sealed(BODY, sha256="0" * 64), "checksum"),
        (sealed(BODY, node="n2"), "written on node 'n2', this is 'n1'"),
        (sealed(b"{}"), "uid: Field required"),
        (sealed(b"not json"), "Invalid JSON"),
        (sealed(BODY.replace(b'"holdings":[', b'"holdings":[7,')), "holdings.0"),
        (sealed(BODY) + b"more\n", "not two whole lines"),
    ],
)
def test_what_is_not_a_whole_file_of_ours_is_damaged_with_a_reason(data, reason):
    with pytest.raises(StateDamaged) as caught:
        read(data)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("c0ffee-1.json: ")


def test_a_field_that_a_later_version_added_is_ignored():
    body = json.loads(BODY) | {"partition": {"start": 4}}
    body["holdings"][0]["instance"] = 3
    assert read(sealed(json.dumps(body).encode())) == ONE


def test_a_file_without_the_fields_of_later_versions_is_read():
    """As the first version wrote it, which knew whole GPUs only."""
    body = json.loads(BODY)
    del body["phase"]
    del body["given"]
    for holding in body["holdings"]:
        for later in ("admin_access", "share_id", "slot"):
            del holding[later]
    found = read(sealed(json.dumps(body).encode()))
    assert found.phase is Phase.COMPLETED
    assert [(h.device, h.admin_access, h.slot) for h in found.holdings] == [
        (h.device, False, None) for h in ONE.holdings
    ]


def test_a_later_format_is_named_with_what_to_do():
    with pytest.raises(StateTooNew, match=r"version 2.*reads up to 1.*drain the node"):
        read(sealed(b"whatever it is", version=2))
