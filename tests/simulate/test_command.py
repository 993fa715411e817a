"""`tessera simulate` as a user types it."""

import json
import xml.etree.ElementTree as ET

import pytest

from driver.cli import main
from driver.core.geometry import offers
from driver.core.static_order import static_order
from driver.simulate.boards import examples
from tests.data import mig_boards

QUICK = ["--gpus", "2", "--arrivals", "300"]
STREAM = [
    {"at": 0, "profile": "1g.10gb", "lasts": 90, "name": "notebook"},
    {"at": 10, "profile": "4g.40gb", "lasts": 90},
    {"at": 20, "profile": "gpu", "lasts": 5},
]


@pytest.fixture
def simulate(capsys):
    def run(*arguments):
        code = main(["simulate", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def lines_of(jobs):
    return "".join(json.dumps(job) + "\n" for job in jobs)


def test_the_table_has_one_line_for_each_load_and_policy(simulate):
    code, out, err = simulate(*QUICK, "--load", "0.3,0.9", "--policy", "packed,nvidia,repack")
    title, blank, heads, *rows = out.splitlines()
    assert (code, err, blank) == (0, "", "")
    assert title == "2 x H100-80, 285 jobs, mix uniform, seed 1"
    assert heads.split()[:4] == ["load", "policy", "accepted", "compute"]
    assert [row.split()[:2] for row in rows] == [
        [load, policy] for load in ("0.30", "0.90") for policy in ("packed", "nvidia", "repack")
    ]
    assert {len(row) for row in [heads, *rows]} == {len(heads)}


def test_json_has_the_same_figures_and_says_what_was_played(simulate):
    asked = [*QUICK, "--load", "0.9", "--policy", "packed", "--policy", "nvidia,repack"]
    _, table, _ = simulate(*asked)
    _, text, _ = simulate(*asked, "--json")
    found = json.loads(text)
    assert found["mix"] == dict.fromkeys(
        ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "gpu"], 1
    )
    assert (found["board"], found["gpus"], found["arrivals"]) == ("H100-80", 2, 300)
    packed, nvidia, repack = found["results"]
    assert [r["policy"] for r in found["results"]] == ["packed", "nvidia", "repack"]
    assert packed["offered"] == nvidia["offered"] == 285
    assert packed["acceptance"] == packed["accepted"] / 285
    assert packed["excessGpus"] == packed["gpusInUse"] - packed["gpusMinimum"]
    assert (nvidia["gapClosed"], repack["gapClosed"]) == (0, 1)
    assert f"{packed['computeAcceptance']:.1%}" in table.splitlines()[3].split()


def test_the_same_seed_prints_the_same_and_another_one_does_not(simulate):
    asked = [*QUICK, "--policy", "packed,nvidia-random"]
    assert simulate(*asked) == simulate(*asked)
    assert (
        simulate(*asked)[1].splitlines()[2:] != simulate(*asked, "--seed", "2")[1].splitlines()[2:]
    )


def test_a_recording_is_played_as_it_was(simulate, file):
    path = file("day.jsonl", lines_of(STREAM))
    _, text, _ = simulate(
        "--stream", path, "--gpus", "2", "--json", "--policy", "packed,distributed"
    )
    packed, distributed = json.loads(text)["results"]
    assert (packed["accepted"], distributed["accepted"]) == (3, 2)
    assert distributed["falseRefusals"] == pytest.approx(1 / 3)
    asked = (1 * 90 + 4 * 90 + 8 * 5) / (20 * 2 * 8)
    assert packed["load"] == pytest.approx(asked)


def test_the_picture_has_a_line_and_a_name_for_each_policy(simulate, tmp_path):
    path = tmp_path / "excess.svg"
    asked = ["--policy", "packed,static,repack", "--mix", "1g.10gb=70,gpu=30", "--plot", str(path)]
    code, out, _ = simulate(*QUICK, *asked)
    assert (code, len(out.splitlines())) == (0, 3 + 3 * 9)
    root = ET.parse(path).getroot()
    space = {"s": "http://www.w3.org/2000/svg"}
    texts = [t.text for t in root.iterfind(".//s:text", space)]
    assert {"packed", "static", "repack"} <= set(texts)
    assert any("mix 1g.10gb=70,gpu=30" in (t or "") for t in texts)
    points = [p.attrib["points"].split() for p in root.iterfind("s:polyline", space)]
    series = [line for line in points if len(line) == 9]
    assert len(series) == 3
    for x, y in (map(float, point.split(",")) for line in series for point in line):
        assert 0 < x < float(root.attrib["width"])
        assert 0 < y < float(root.attrib["height"])


def test_a_board_of_ones_own_comes_from_a_file(simulate, file):
    board = {
        "slots": 2,
        "profiles": [{"name": "1g.1gb", "compute": 1, "size": 1, "starts": [0, 1]}],
    }
    path = file("boards.json", {"boards": {"mine": board}})
    code, out, _ = simulate("--geometry", path, *QUICK, "--policy", "packed")
    assert code == 0
    assert out.startswith("2 x mine, ")


def test_the_examples_are_cut_as_the_boards_are():
    known = {
        "A100-40": mig_boards.A100_40,
        "A100-80": mig_boards.A100_80,
        "H100-80": mig_boards.H100,
        "H200-141": mig_boards.H200,
        "B200-180": mig_boards.B200,
        "A30-24": mig_boards.A30,
        "RTX-PRO-6000": mig_boards.RTX_PRO_6000,
    }
    found = examples()
    for name, board in known.items():
        assert found[name].slots == board.slots
        assert [_shape(p) for p in found[name].profiles] == sorted(
            (_shape(p) for p in board.base), key=lambda s: (s[1], s[2])
        )
        offer, own = offers([found[name]])[0], offers([board])[0]
        assert [p.name for p in offer.profiles] == [p.name for p in own.profiles]
        static = static_order(found[name])
        assert all(static[p.name] == static_order(board)[p.name] for p in board.base)


def _shape(profile):
    return profile.name, profile.size, profile.compute_slices, profile.starts, profile.max_instances


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--board", "H1"], "--board: there is no 'H1'; allowed: A100-40, "),
        (["--policy", "packed,best"], "--policy: there is no 'best'; allowed: packed, distributed"),
        (["--mix", "odd"], "--mix: there is no 'odd'; allowed: uniform, small"),
        (["--mix", "9g.1gb=2"], "there is no profile '9g.1gb'; allowed: 1g.10gb, "),
        (["--mix", "1g.10gb=none"], "--mix: 'none' is not a number above 0"),
        (["--profiles", "2g.10gb"], "'2g.10gb' is listed, but no GPU of this node has it"),
        (["--load", "0"], "--load: '0' is not a number above 0"),
        (["--load", ","], "--load: ',' names nothing"),
        (["--policy", ","], "--policy: ',' names nothing"),
        (["--profiles", ","], "--profiles: ',' names nothing"),
        (["--mix", "gpu=1e308,1g.10gb=1e308"], "--mix: '1e308' is not a number above 0, from"),
        (["--load", "1e-320"], "--load: '1e-320' is not a number above 0, from"),
        (["--lag", "9" * 20], "is not a whole number from 0 up to"),
        (["--seed", "9" * 5000], "is not a whole number from 0 up to"),
        (["--gpus", "0"], "--gpus: '0' is not a whole number from 1 up"),
        (["--lag", "x"], "--lag: 'x' is not a whole number from 0 up"),
        (["--plot", "a.png"], "--plot: a.png is not a name that ends in .svg"),
        (["--plot", "/nowhere/a.svg", *QUICK], "--plot: /nowhere/a.svg cannot be written"),
        (["--stream", "/nowhere"], "--stream: /nowhere cannot be read"),
        (["--stream", "x", "--mix", "small"], "--mix does not go with --stream"),
        (["--geometry", "/nowhere"], "--geometry: /nowhere cannot be read"),
        (["--polcy", "packed"], "--polcy packed is not a flag; did you mean --policy?"),
    ],
)
def test_what_cannot_be_simulated_is_named_with_what_can(simulate, arguments, said):
    code, out, err = simulate(*arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 jobs"),
        ("{\n", "day.jsonl:1: not JSON"),
        ('\n{"at": 1}\n', "day.jsonl:2: a job needs at, profile and lasts"),
        (
            lines_of([STREAM[0] | {"profile": "7g.80gb"}]),
            "day.jsonl:1: there is no profile '7g.80gb'",
        ),
        (lines_of([STREAM[0] | {"lasts": 0}]), "day.jsonl:1: lasts is 0; it must be more than 0"),
        (lines_of([STREAM[0] | {"at": "now"}]), "day.jsonl:1: at is 'now'; it must be a number"),
        (
            lines_of([STREAM[0] | {"at": 10**400}]),
            "day.jsonl:1: at is no number from -1e+20 to 1e+20",
        ),
        (f'{{"at": {"9" * 5000}}}', "day.jsonl:1: not JSON"),
        ('{"at": NaN, "profile": "gpu", "lasts": 1}', "day.jsonl:1: at is no number from"),
        ("[" * 200_000, "day.jsonl:1: not JSON"),
        (lines_of([STREAM[2], STREAM[1]]), "comes after line 1 at 20"),
        (lines_of([STREAM[0], STREAM[0]]), "come at one time"),
    ],
)
def test_a_recording_that_cannot_be_played_is_refused_by_line(simulate, file, text, said):
    code, _, err = simulate("--stream", file("day.jsonl", text))
    assert code == 2
    assert said in err


TWO = {"name": "2g", "compute": 2, "size": 2, "starts": [0, 2]}


def board_of(*profiles, slots=4):
    return {"boards": {"b": {"slots": slots, "profiles": list(profiles)}}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("9" * 5000, "not JSON"),
        ({"boards": {}}, "boards: "),
        (board_of({"name": "1g"}), "boards.b.profiles.0."),
        (board_of(TWO | {"name": ""}), "boards.b.profiles.0.name: "),
        (board_of(TWO | {"starts": []}), "boards.b.profiles.0.starts: "),
        (board_of(TWO, TWO), "board b: 2g is the name of two kinds"),
        (board_of(TWO | {"name": "gpu"}), "board b: gpu is the name of two kinds"),
        (
            board_of(TWO | {"starts": [3]}),
            "board b: 2g at slot 3 with size 2 is outside of the board's 4 slots",
        ),
        (board_of(TWO | {"starts": [0, 0]}), "MIG profile 2g is reported twice at one start"),
        (board_of(TWO, slots=64), "board b cannot be simulated: 64 slots"),
    ],
)
def test_a_file_of_boards_that_is_wrong_is_named(simulate, file, content, said):
    code, _, err = simulate("--geometry", file("boards.json", content))
    assert code == 2
    assert said in err
