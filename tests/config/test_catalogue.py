"""The catalogue's file is taken whole or not at all, and the error names the row."""

import json
from importlib.resources import files

import pytest

from driver.config.catalogue import load_catalogue
from driver.core.errors import ConfigError

NVLINK5 = {
    "code": 145,
    "units": ["U"],
    "old": 1,
    "new": 2,
    "statuses": ["0x1"],
    "outcome": "reset",
}
GOOD = {
    "source": "a test",
    "date": "2026-09-30",
    "xids": [
        {"code": 79, "mnemonic": "M", "meaning": "m", "class": "reboot", "whole": True},
        {"code": 171, "mnemonic": "M", "meaning": "m", "class": "reset", "joins": 79},
    ],
    "nvlink5": [NVLINK5],
    "sxids": {"fatal": [23001]},
}


def written(tmp_path, **changes):
    path = tmp_path / "catalogue.json"
    path.write_text(json.dumps(GOOD | changes), encoding="utf-8")
    return path


def xid(**changes):
    row = {"code": 13, "mnemonic": "M", "meaning": "m", "class": "application"} | changes
    return [row]


def test_ours_covers_every_code_and_says_where_it_is_from():
    ours = load_catalogue()
    assert sorted(ours.xids) == list(range(1, 177))
    assert (len(ours.nvlink5.rows), len(ours.sxids)) == (95, 93)
    assert "NVIDIA" in ours.source
    assert ours.date == "2026-09-30"


def test_ours_is_ordered_by_code_so_that_a_change_is_easy_to_read():
    text = files("driver.config").joinpath("xid_catalogue.json").read_text(encoding="utf-8")
    codes = [row["code"] for row in json.loads(text)["xids"]]
    assert codes == sorted(codes)


def test_a_file_of_the_user_is_read(tmp_path):
    found = load_catalogue(written(tmp_path))
    assert found.xids[171].joins == 79
    assert found.nvlink5.rows[0].statuses == {1}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"xids": xid(**{"class": "maybe"})}, "xids: row 1 (code 13): class: "),
        ({"xids": xid(colour="red")}, "xids: row 1 (code 13): colour: "),
        ({"xids": xid(code="13")}, "xids: row 1 (code 13): code: "),
        ({"xids": [{"mnemonic": "M"}]}, "xids: row 1 (code missing): code: Field required"),
        ({"xids": xid() + xid()}, "code 13 is there twice"),
        ({"xids": xid(joins=48)}, "code 13 refers to 48: no such row"),
        ({"xids": []}, "xids: "),
        ({"sxids": {"fatal": [1], "notice": [1]}}, "sxids: code 1 is there twice"),
        ({"sxids": {"deadly": [1]}}, "sxids.deadly"),
        ({"nvlink5": [{"code": 145}]}, "nvlink5: row 1 (code 145): "),
        ({"nvlink5": [NVLINK5 | {"statuses": ["0xzz"]}]}, "nvlink5: row 1 (code 145): "),
        ({"date": "lately"}, "date: "),
    ],
)
def test_a_wrong_row_is_named_with_what_is_wrong_in_it(tmp_path, changes, says):
    path = written(tmp_path, **changes)
    with pytest.raises(ConfigError) as error:
        load_catalogue(path)
    assert str(path) in str(error.value)
    assert says in str(error.value)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"", b"{", b"\xff\xfe", b"[]"])
def test_what_is_no_catalogue_is_refused(tmp_path, content):
    path = tmp_path / "catalogue.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"catalogue\.json"):
        load_catalogue(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_catalogue(tmp_path / "none.json")
