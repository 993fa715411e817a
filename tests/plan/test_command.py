"""`tessera plan` on what kubectl prints."""

import io
import json
from typing import Any

import pytest

from driver.cli import main
from driver.core.boards import Binding
from driver.core.geometry import Placement
from driver.core.snapshot import ComputeFacts, InstanceFacts, MigState
from tests.data.mig_boards import A30, H100
from tests.plan.given_cluster import claim_of, list_of, slices_of, taint


@pytest.fixture
def plan(capsys, monkeypatch):
    def run(objects, *arguments):
        text = objects if isinstance(objects, str) else json.dumps(list_of(*objects))
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        source = () if {"--slices", "--claims"} & {*arguments} else ("--dump", "-")
        code = main(["plan", *source, *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def nodes(plan):
    """The JSON, node by node."""

    def run(objects, *arguments):
        code, out, err = plan(objects, "--json", *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)["nodes"]

    return run


SCATTERED = [
    *slices_of("node-1", 2),
    claim_of("left", "node-1", "0:1g.10gb@6"),
    claim_of("right", "node-1", "1:1g.10gb@2", "1:2g.20gb@4"),
    claim_of("waiting", "node-1"),
]


def test_the_table_says_what_fits_and_whose_end_makes_room(plan):
    code, out, _ = plan([*SCATTERED, *slices_of("node-2")], "--want", "gpu")
    assert code == 0
    assert out.splitlines() == [
        "node    GPUs  fragmentation  still fits, each alone",
        "node-1     2           0.25  1g.10gb 10, 1g.20gb 5, 2g.20gb 4, 3g.40gb 1, 4g.40gb 1",
        "node-2     1           0.00  1g.10gb 7, 1g.20gb 4, 2g.20gb 3, 3g.40gb 2, 4g.40gb 1, gpu 1",
        "",
        "room for gpu:",
        "  node-2: fits now, gpu-00000000 is free",
        "  node-1: gpu-00000000 is free once this claim ends",
        "    ai/left",
    ]


def test_json_has_the_same(nodes):
    (one,) = nodes(SCATTERED, "--want", "4g.40gb")
    assert one["node"] == "node-1"
    assert one["fits"]["gpu"] == 0
    assert 0 < one["fragmentation"] < 1
    assert one["room"] == {"device": "gpu-00000000-mig-4g40gb-0", "claims": []}


def test_one_claim_with_many_devices_is_one_claim(nodes):
    claims = [claim_of(f"c{n}", "node-1", f"0:1g.10gb@{n}") for n in range(4)]
    many = claim_of("many", "node-1", "0:1g.10gb@4", "0:1g.10gb@5", "0:1g.10gb@6")
    (one,) = nodes([*slices_of("node-1"), *claims, many], "--want", "3g.40gb")
    assert one["room"] == {"device": "gpu-00000000-mig-3g40gb-4", "claims": ["ai/many"]}


def test_a_tainted_device_neither_fits_nor_is_worth_an_end(nodes):
    slices = slices_of("node-1", 2, ("1g.10gb", "3g.40gb"))
    whole = ["0", *(f"0:1g.10gb@{n}" for n in range(7)), "0:3g.40gb@0", "0:3g.40gb@4"]
    taint(slices, "NoSchedule", *whole)
    claims = [claim_of("a", "node-1", "0:1g.10gb@0"), claim_of("b", "node-1", "1")]
    (one,) = nodes([*slices, *claims], "--want", "3g.40gb")
    assert one["fits"] == {"1g.10gb": 0, "3g.40gb": 0, "gpu": 0}
    assert one["room"] == {"device": "gpu-00000001-mig-3g40gb-4", "claims": ["ai/b"]}
    taint(slices, "None", *whole)
    (two,) = nodes([*slices, *claims], "--want", "3g.40gb")
    assert two["fits"] == {"1g.10gb": 6, "3g.40gb": 1, "gpu": 0}


def test_a_withheld_node_has_no_way_to_make_room(plan):
    slices = slices_of("node-1", mig=MigState(capable=False))
    taint(slices, "NoExecute", "0")
    _, out, _ = plan([*slices, claim_of("a", "node-1", "0")], "--want", "gpu")
    assert out.endswith("room for gpu:\n  node-1: no end of claims makes room\n")


def test_a_gpu_that_is_kept_whole_holds_no_partition(nodes):
    slices = slices_of("node-1", 2, ("3g.40gb",))
    taint(slices, "NoSchedule", "1:3g.40gb@0", "1:3g.40gb@4")
    claims = [claim_of(f"c{n}", "node-1", f"0:3g.40gb@{n}") for n in (0, 4)]
    (one,) = nodes([*slices, *claims], "--want", "3g.40gb")
    assert one["fits"] == {"3g.40gb": 0, "gpu": 1}
    assert one["room"] == {"device": "gpu-00000000-mig-3g40gb-0", "claims": ["ai/c0"]}


def test_partitions_that_an_administrator_made_are_free_or_held_by_one_claim(nodes):
    made = [(19, Placement(start=0, size=1)), (9, Placement(start=4, size=4))]
    instances = tuple(
        InstanceFacts(
            id=n,
            profile_id=profile,
            placement=place,
            compute=(ComputeFacts(id=0, uuid=f"MIG-{n}"),),
        )
        for n, (profile, place) in enumerate(made)
    )
    slices = slices_of(
        "node-1",
        mig=MigState(capable=True, enabled=True, pending=True, geometry=H100, instances=instances),
    )
    held = claim_of("a", "node-1", "0:3g.40gb@4")
    (one,) = nodes([*slices, held], "--want", "3g.40gb")
    assert (one["gpus"], one["problems"]) == (1, [])
    assert one["fits"] == {"gpu": 0, "1g.10gb": 1, "3g.40gb": 0}
    assert one["room"] == {"device": "gpu-00000000-mig-3g40gb-4", "claims": ["ai/a"]}
    (two,) = nodes([*slices, held], "--want", "1g.10gb")
    assert two["room"] == {"device": "gpu-00000000-mig-1g10gb-0", "claims": []}


def test_admin_access_holds_nothing_and_other_drivers_do_not_count(nodes):
    other = claim_of("other", "node-1", "0", driver="gpu.nvidia.com")
    admin = claim_of("admin", "node-1", "0", adminAccess=True)
    (one,) = nodes([*slices_of("node-1"), other, admin])
    assert one["fits"]["gpu"] == 1


@pytest.mark.parametrize(
    "profiles", [None, ("1g.10gb", "1g.10gb+me"), ("1g.10gb+me", "2g.20gb", "7g.80gb")]
)
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_boards_are_read_back_from_slices_of_any_version(nodes, profiles, version):
    (one,) = nodes(slices_of("node-1", 3, profiles, version=version))
    assert one["problems"] == []
    assert one["gpus"] == 3
    if profiles:
        most = {"1g.10gb": 7, "1g.10gb+me": 1, "2g.20gb": 3, "7g.80gb": 1}
        assert one["fits"] == {**{p: 3 * most[p] for p in profiles}, "gpu": 3}


def test_a_board_with_four_slots_is_read_too(nodes):
    claims = [claim_of("a", "n", "0:1g.6gb@2")]
    (one,) = nodes([*slices_of("n", geometry=A30), *claims], "--want", "2g.12gb")
    assert one["fits"] == {"1g.6gb": 3, "2g.12gb": 1, "gpu": 0}
    assert one["room"]["claims"] == []


@pytest.mark.parametrize(
    ("name", "total", "said"),
    [
        ("decoders", "5", "its counters are not those that this version derives"),
        ("memory-slice-7", None, "lie on slots that its counter set does not have"),
        ("memory-slice-9", "1", "lie on slots that its counter set does not have"),
    ],
)
def test_counters_of_another_making_are_not_guessed_at(nodes, name, total, said):
    slices = slices_of("node-1", 1)
    counters = slices[0]["spec"]["sharedCounters"][0]["counters"]
    counters[name] = {"value": total}
    if total is None:
        del counters[name]
    (one,) = nodes(slices)
    assert one["gpus"] == 0
    assert said in one["problems"][0]


def test_a_gpu_whose_partitions_get_their_places_late_is_left_out_and_told(nodes):
    (one,) = nodes(slices_of("node-1", 1, ("1g.10gb",), binding=Binding.PREPARE))
    assert (one["gpus"], one["fits"]) == (0, {"gpu": 0})
    (problem,) = one["problems"]
    assert "get their places late; the slices do not say what fits" in problem


def test_an_incomplete_pool_and_unknown_content_are_told(nodes):
    slices = slices_of("node-1", 1)
    slices[-1]["spec"]["perDeviceNodeSelection"] = True
    (one,) = nodes([*slices[:-2], slices[-1]])
    assert one["problems"] == [
        f"slice {slices[-1]['metadata']['name']} has content that we do not know",
        f"{len(slices) - 1} of the pool's {len(slices)} slices are there",
    ]


def test_only_the_newest_generation_of_a_pool_counts(nodes):
    old = slices_of("node-1", 4)
    new = slices_of("node-1", 1)
    for each in new:
        each["spec"]["pool"]["generation"] = 2
    (one,) = nodes([*old, *new])
    assert (one["gpus"], one["problems"]) == (1, [])


def test_slices_and_claims_can_be_two_files(plan, tmp_path):
    slices, claims = tmp_path / "slices.json", tmp_path / "claims.json"
    items = [{k: v for k, v in s.items() if k != "kind"} for s in slices_of("node-1")]
    slices.write_text(json.dumps(list_of(*items, kind="ResourceSliceList")))
    claims.write_text(json.dumps(claim_of("one", "node-1", "0")))
    code, out, _ = plan("", "--slices", str(slices), "--claims", str(claims))
    assert (code, out.splitlines()[1].split()[-1]) == (0, "nothing")
    code, piped, _ = plan(claims.read_text(), "--slices", str(slices), "--claims", "-")
    assert (code, piped) == (0, out)


NAMELESS: list[dict[str, Any]] = [
    {"metadata": None},
    {"metadata": "x", "spec": {}},
    {"metadata": {}},
]


def given_slice(**changes):
    metadata: dict[str, Any] = {"name": "one", "uid": "u", "resourceVersion": "1"}
    return {"kind": "ResourceSlice", "metadata": metadata, **changes}


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("", ["--slices", "x"], "--claims is missing: "),
        ("", ["--claims", "x"], "--slices is missing: "),
        ("", ["--dump", "-", "--claims", "x"], "--dump has both kinds"),
        ("", ["--slices", "-", "--claims", "-"], "only one of them can be standard input"),
        ("", ["--slices", "/nowhere", "--claims", "-"], "--slices: /nowhere cannot be read"),
        ("", ["--context", "x"], "give one or the other"),
        ("NAME  AGE", [], "standard input: not JSON"),
        ("[]", [], "standard input: no Kubernetes object"),
        (json.dumps(list_of({"kind": "Pod"})), [], "found a Pod; only ResourceSlices"),
        (json.dumps(list_of({"kind": "ResourceSlice"})), [], "ResourceSlice  is not complete"),
        ("[" * 200_000, [], "standard input: not JSON"),
        ('{"kind": "List", "items": null}', [], "its items are no list of objects"),
        ('{"kind": "List", "items": [5]}', [], "its items are no list of objects"),
        *(
            (json.dumps({"kind": kind, **body}), [], f"{kind}  is not complete")
            for kind in ("ResourceSlice", "ResourceClaim")
            for body in NAMELESS
        ),
        (json.dumps(given_slice(spec=5)), [], "ResourceSlice one is not complete"),
        (json.dumps(given_slice(spec={"driver": "x"})), [], "ResourceSlice one is not complete"),
        (json.dumps(list_of()), [], "no ResourceSlice of driver gpu.tessera.dev"),
        (
            json.dumps(list_of(*SCATTERED)),
            ["--driver-name", "x.y"],
            "no ResourceSlice of driver x.y",
        ),
        (json.dumps(list_of(*SCATTERED)), ["--node", "n"], "there is no 'n'; allowed: node-1"),
        (
            json.dumps(list_of(*SCATTERED)),
            ["--want", "9g"],
            "there is no profile '9g'; allowed: 1g.10gb, ",
        ),
    ],
)
def test_what_cannot_be_planned_is_named(plan, text, arguments, said):
    code, out, err = plan(text, *arguments)
    assert (code, out) == (2, "")
    assert said in err
