"""The routes of the control socket, against a node as values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from driver.control.text import status as as_text
from driver.core.boards import kept_taint
from driver.core.choices import Choices
from driver.core.health.acknowledge import NotAcknowledged
from driver.core.health.evidence import take
from driver.core.health.items import Evidence, Identity as Boards, KnownGpu
from driver.core.health.judge import Judgements, JudgeSettings, judge, subjects
from driver.core.health.reset_told import NotReset
from driver.core.health.signals import Acknowledged, Fault, Need, ResetSeen, Scope, Source
from driver.core.inventory import build_inventory
from driver.core.ledger import Phase
from driver.core.live import Foreign, foreign_taint
from driver.core.modes import Mode, Rule
from driver.core.snapshot import PciAddress
from driver.observe.bounded_http import Request
from driver.plugin.control.facts import Facts, Release
from driver.plugin.control.routes import Control
from driver.plugin.control.status import document
from driver.plugin.node import Identity
from driver.plugin.release_window import ReleaseWindow
from driver.plugin.supervise import Wakeup
from driver.ports.events import Reason
from driver.state.kmsg import Counts
from tests.unit.core.given import cut, entry, gpu, part, snapshot, uuid

WHOLE = "gpu-00000000"
PART = part(0, "3g.40gb", 0)
OTHER = part(0, "3g.40gb", 4)
RULES = Choices(rules=(Rule(mode=Mode.EXCLUDED, index=2),))
INVENTORY = build_inventory(snapshot(cut(0), cut(1), gpu(2)), RULES)
LOST = uuid(9)


def facts(*faults: Fault, **changes: Any) -> Facts:
    """A node of three GPUs, one excluded, with a claim on a part of the first."""
    evidence = Evidence()
    for each in faults:
        boards = Boards(places={(uuid(0), 1): 0b00001111})
        evidence = take(evidence, each, boot_id="boot-1", now=each.at, identity=boards)
    found = judge(evidence, subjects(INVENTORY.devices), 100.0, JudgeSettings())
    held = replace(entry("a", INVENTORY, PART), phase=Phase.COMPLETED)
    given: dict[str, Any] = {
        "identity": Identity(driver="gpu.tessera.dev", node="node-1", boot_id="boot-1"),
        "version": "1.2",
        "leads": True,
        "inventory": INVENTORY,
        "problem": "",
        "judgements": found,
        "evidence": evidence,
        "unsaved": "",
        "entries": {held.uid: held},
        "release": None,
        "kernel": Counts(records=7, lost=2),
        "foreign": (),
        "taints": {},
    }
    return Facts(**(given | changes))


def fault(name: str, need: Need, scope: Scope, source: Source = Source.KERNEL) -> Fault:
    return Fault(source=source, scope=scope, name=name, need=need, at=60.0, detail="told")


class Library:
    held = True

    def release(self, seconds: float) -> None:
        self.held = seconds <= 0

    def resume(self) -> None:
        self.held = True


class Node:
    def __init__(self, known: Facts) -> None:
        self.known = known
        self.acknowledged: list[Acknowledged] = []
        self.resets: list[ResetSeen] = []
        self.events: list[tuple[Reason, str]] = []
        self.refuses = ""
        self.window = ReleaseWindow(Library(), wakeup=Wakeup(), wall=lambda: 50.0)
        control = Control(
            facts=lambda: self.known,
            evidence=self,
            window=self.window,
            tell=lambda reason, text: self.events.append((reason, text)),
            clock=lambda: 100.0,
        )
        self._routes = control.routes()

    def acknowledge(self, wanted: Acknowledged) -> None:
        if self.refuses:
            raise NotAcknowledged(self.refuses)
        self.acknowledged.append(wanted)

    def reset_told(self, *told: ResetSeen) -> None:
        if self.refuses:
            raise NotReset(self.refuses)
        self.resets += told

    def ask(self, method: str, path: str, *, body: str = "", **query: str) -> tuple[int, Any]:
        answer = self._routes[path][method](Request(query=query, body=body.encode()))
        assert answer.kind == "application/json"
        return answer.status, json.loads(answer.body)

    def lines(self, **query: str) -> list[str]:
        status, found = self.ask("GET", "/v1/explain", **query)
        assert status == 200, found
        return list(found["lines"])


def test_the_status_shows_each_gpu_its_partitions_and_a_gpu_that_is_missing() -> None:
    known = facts(
        fault("xid-94", Need.RESET, Scope(gpu=uuid(0), gi=1)),
        fault("gpu-lost", Need.RESET, Scope(gpu=LOST), Source.POLL),
    )
    status, found = Node(known).ask("GET", "/v1/status")
    assert status == 200
    assert [(g["uuid"], g["state"], g["mode"]) for g in found["gpus"]] == [
        (uuid(0), "reset", "dynamic"),
        (uuid(1), "ready", "dynamic"),
        (uuid(2), "ready", "excluded"),
        (LOST, "reset", None),
    ]
    assert found["gpus"][0]["since"] == "1970-01-01T00:01:00Z"
    (reason,) = found["gpus"][0]["reasons"]
    assert (reason["name"], reason["clearsBy"]) == ("xid-94", "a GPU reset, then a passed probe")
    states = {d["name"]: d["state"] for d in found["devices"]}
    assert (states[WHOLE], states[PART], states[OTHER]) == ("reset", "reset", "ready")
    (claim,) = found["claims"]
    assert (claim["name"], claim["devices"][0]["name"]) == ("a", PART)
    assert {e["name"]: e["gpuInstance"] for e in found["evidence"]} == {
        "xid-94": 1,
        "gpu-lost": None,
    }
    assert (found["kernelLog"]["lost"], found["leads"]) == (2, True)


def test_the_status_shows_where_a_gpu_was_that_is_missing_and_its_serial_number() -> None:
    known = facts(fault("gpu-missing", Need.RESET, Scope(gpu=LOST), Source.POLL))
    before = KnownGpu(pci=PciAddress(domain=0, bus=9, device=0), minor=None, serial="42")
    _, found = Node(replace(known, evidence=replace(known.evidence, gpus={LOST: before}))).ask(
        "GET", "/v1/status"
    )
    (lost,) = [g for g in found["gpus"] if g["uuid"] == LOST]
    assert (lost["pci"], lost["serial"], lost["index"]) == ("0000:09:00.0", "42", None)
    assert "42" in as_text(found)


def test_a_node_whose_hardware_was_never_read_has_a_status_too() -> None:
    known = facts(
        inventory=None, problem="no driver", entries={}, kernel=None, judgements=Judgements()
    )
    found = document(known)
    assert (found["gpus"], found["problem"], found["kernelLog"]) == ([], "no driver", None)
    text = as_text(found)
    assert "the hardware cannot be read now: no driver" in text
    assert "kernel log: not read" in text


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"leads": False}, "another plugin pod of this node leads"),
        ({"unsaved": "disk full"}, "a restart would forget it: disk full"),
        ({"release": Release(seconds_left=9.6, held=False)}, "release window: another 10 s\n"),
        ({"release": Release(seconds_left=9, held=True)}, "NVML is still held"),
        ({"kernel": Counts(lost=2)}, "0 records, 2 lost"),
    ],
)
def test_the_text_says_what_is_out_of_the_ordinary(changes: dict[str, Any], line: str) -> None:
    assert line in as_text(json.loads(json.dumps(document(facts(**changes)))))


def test_of_devices_the_text_names_those_that_are_not_as_their_gpu() -> None:
    text = as_text(document(facts(fault("xid-94", Need.WATCH, Scope(gpu=uuid(0), gi=1)))))
    assert "degraded" in text
    assert PART not in text.partition("claim ")[0]
    assert f"ns/a   {PART}" in text


def test_a_device_a_partition_in_use_and_a_gpu_are_explained() -> None:
    node = Node(facts(fault("xid-94", Need.RESET, Scope(gpu=uuid(0), gi=1))))
    assert node.lines(device=PART)[0].startswith("withheld until the GPU is reset")
    assert node.lines(device=PART)[-1] == f"claim ns/a has {PART}"
    assert node.lines(device=OTHER) == ["ready"]
    assert node.lines(gpu=uuid(1)) == ["ready"]
    assert node.lines(gpu=uuid(0))[-1] == f"claim ns/a has {PART}"


def test_why_nobody_gets_a_healthy_gpu_is_explained_too() -> None:
    node = Node(facts(release=Release(seconds_left=5, held=False), problem="NVML is let go of"))
    lines = node.lines(gpu=uuid(1))
    assert lines[0] == "ready"
    assert "a release window is open" in lines[1]
    assert "cannot be read now: NVML is let go of" in lines[2]


def test_a_taint_that_is_no_matter_of_health_is_explained_for_its_devices_and_their_gpu() -> None:
    mine, theirs = PART, part(1, "3g.40gb", 0)
    foreign = (Foreign(gpu=uuid(0), instance=7, slots=0b1111),)
    taints = {
        mine: (foreign_taint("gpu.tessera.dev"),),
        theirs: (kept_taint("gpu.tessera.dev"),),
    }
    known = facts(foreign=foreign, taints=taints, entries={})
    node = Node(known)
    lines = {name: node.lines(device=name) for name in (mine, OTHER, theirs, "gpu-00000001")}
    assert {name: [line.split(":")[0] for line in each] for name, each in lines.items()} == {
        mine: ["ready", "not given out"],
        OTHER: ["ready"],
        theirs: ["ready", "kept whole (min_whole_gpus)"],
        "gpu-00000001": ["ready"],
    }
    assert "GPU instance 7 lies there" in lines[mine][1]
    assert "the taint gpu.tessera.dev/kept" in lines[theirs][1]
    assert node.lines(gpu=uuid(0))[1:] == lines[mine][1:]
    assert node.lines(gpu=uuid(1))[1:] == lines[theirs][1:]
    text = as_text(json.loads(json.dumps(document(known))))
    assert f"{uuid(0)}: {lines[mine][1]}\n{uuid(1)}: {lines[theirs][1]}\n" in text
    _, status = node.ask("GET", "/v1/status")
    assert {d["name"]: d["taints"] for d in status["devices"] if d["taints"]} == {
        mine: ["gpu.tessera.dev/foreign=instance:NoSchedule"],
        theirs: ["gpu.tessera.dev/kept=whole:NoSchedule"],
    }


def test_a_device_that_overlaps_one_that_is_not_offered_any_more_waits_for_its_claim() -> None:
    node = Node(facts(taints={OTHER: (foreign_taint("gpu.tessera.dev"),)}))
    assert "a claim has a device there that is not offered any more" in node.lines(device=OTHER)[1]


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ({"device": f"{PART}x"}, 404, f"no device '{PART}x'; did you mean {PART}?"),
        ({"gpu": "GPU-x"}, 404, "no GPU 'GPU-x'; `tessera status --json` names all"),
        ({}, 400, "name one: device=NAME, or gpu=UUID"),
        ({"device": WHOLE, "gpu": uuid(0)}, 400, "name one"),
        ({"device": WHOLE, "x": "1"}, 400, "name one"),
    ],
)
def test_what_cannot_be_explained_is_refused_with_what_can(
    query: dict[str, str], status: int, error: str
) -> None:
    got, found = Node(facts()).ask("GET", "/v1/explain", **query)
    assert (got, error in found["error"]) == (status, True), found


ACK = {"gpu": uuid(0), "name": "xid-95", "serial": "16", "by": "ada"}


def test_an_acknowledgement_is_handed_on_with_the_time_or_refused_with_the_reason() -> None:
    node = Node(facts())
    status, found = node.ask("POST", "/v1/ack", body=json.dumps(ACK))
    assert (status, found["state"]) == (200, "ready")
    (wanted,) = node.acknowledged
    assert (wanted.gpu, wanted.name, wanted.serial, wanted.by, wanted.at) == (
        *ACK.values(),
        100.0,
    )
    node.refuses = "the board's serial number is 17"
    node.known = facts(fault("xid-95", Need.OPERATOR, Scope(gpu=uuid(0))))
    assert node.ask("POST", "/v1/ack", body=json.dumps(ACK)) == (409, {"error": node.refuses})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"gpu": uuid(7)}, f"this node has no GPU '{uuid(7)}'"),
        ({"name": "xid-94"}, "nothing is held against it by that name"),
        ({"gpu": uuid(1)}, "nothing is held against it by that name"),
    ],
)
def test_an_acknowledgement_of_what_is_not_there_is_no_refusal(
    changes: dict[str, str], error: str
) -> None:
    node = Node(facts(fault("xid-95", Need.OPERATOR, Scope(gpu=uuid(0)))))
    node.refuses = "nothing is held against it by that name"
    status, found = node.ask("POST", "/v1/ack", body=json.dumps(ACK | changes))
    assert (status, error in found["error"], node.acknowledged) == (404, True, []), found


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/v1/ack", "", "body: Invalid JSON"),
        ("/v1/ack", "[]", "body: "),
        ("/v1/ack", json.dumps(ACK | {"serial": ""}), "serial: "),
        ("/v1/ack", json.dumps(ACK | {"serial": 16}), "serial: "),
        ("/v1/ack", json.dumps(ACK | {"all": True}), "all: "),
        ("/v1/release", "{}", "seconds: "),
        ("/v1/release", '{"seconds": 0}', "seconds: "),
        ("/v1/release", '{"seconds": 3601}', "seconds: "),
        ("/v1/release", '{"seconds": "60"}', "seconds: "),
        ("/v1/release", '{"seconds": true}', "seconds: "),
    ],
)
def test_a_body_that_is_wrong_is_refused_and_changes_nothing(
    path: str, body: str, error: str
) -> None:
    node = Node(facts())
    status, found = node.ask("POST", path, body=body)
    assert (status, error in found["error"]) == (400, True), found
    assert (node.acknowledged, node.window.is_open()) == ([], False)


def test_a_release_says_whether_all_is_let_go_of_and_can_be_ended() -> None:
    node = Node(facts())
    status, found = node.ask("POST", "/v1/release", body='{"seconds": 60}')
    assert (status, found["held"]) == (200, False)
    assert 59 < found["secondsLeft"] <= 60
    assert node.ask("DELETE", "/v1/release") == (200, {"ended": True})
    assert node.ask("DELETE", "/v1/release") == (200, {"ended": False})


@pytest.mark.parametrize(
    "write",
    [
        lambda node: node.ask("POST", "/v1/ack", body=json.dumps(ACK)),
        lambda node: node.ask("POST", "/v1/release", body='{"seconds": 60}'),
        lambda node: node.ask("DELETE", "/v1/release"),
    ],
)
def test_a_plugin_that_does_not_lead_answers_and_changes_nothing(
    write: Callable[[Node], tuple[int, Any]],
) -> None:
    node = Node(facts(leads=False))
    status, found = write(node)
    assert (status, "another plugin pod of this node leads" in found["error"]) == (409, True)
    assert (node.acknowledged, node.window.is_open()) == ([], False)
    assert node.ask("GET", "/v1/status")[0] == 200


def reset(*gpus: str, by: str = "ada") -> str:
    return json.dumps({"gpus": gpus, "by": by})


def test_a_reset_is_noted_when_it_can_have_been_and_told_with_its_author() -> None:
    node = Node(facts(fault("xid-95", Need.RESET, Scope(gpu=uuid(0)))))
    node.window.open(60)
    status, found = node.ask("POST", "/v1/reset", body=reset(uuid(0), uuid(1)))
    assert status == 200
    assert node.resets == [ResetSeen(gpu=uuid(n), at=50.0, by="ada") for n in (0, 1)]
    assert node.events == [
        (Reason.DEVICE_RESET, f"GPU {uuid(n)}: was reset, as ada says") for n in (0, 1)
    ]
    assert found["gpus"][uuid(0)][0].startswith("withheld until the GPU is reset")
    assert found["gpus"][uuid(1)] == ["ready"]


@pytest.mark.parametrize(
    ("body", "refuses", "leads", "status", "error"),
    [
        (reset(uuid(0), uuid(7)), "", True, 404, f"this node has no GPU '{uuid(7)}'"),
        (reset(uuid(0)), "it cannot have been", True, 409, "it cannot have been"),
        (reset(uuid(0)), "", False, 409, "cannot take in a reset: another plugin pod"),
        (reset(uuid(0), by=""), "", True, 400, "by: "),
        (reset(), "", True, 400, "gpus: "),
    ],
)
def test_a_reset_that_cannot_be_is_refused_whole_and_told_to_nobody(
    body: str, refuses: str, leads: bool, status: int, error: str
) -> None:
    node = Node(facts(leads=leads))
    node.refuses = refuses
    found = node.ask("POST", "/v1/reset", body=body)
    assert found[0] == status
    assert error in found[1]["error"]
    assert (node.resets, node.events) == ([], [])
