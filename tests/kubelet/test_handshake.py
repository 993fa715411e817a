"""Playbooks: what the kubelet does, and whether the socket must be made anew."""

from __future__ import annotations

import pytest

from driver.kubelet.handshake import (
    Handshake,
    Recreate,
    Unseen,
    Wait,
    decide,
    info_asked,
    missed,
    notified,
    recreated,
)


def run(*events, at):
    """`events`: (time, what), what being ask, ok or an error text."""
    h = Handshake(since=0.0)
    for now, what in events:
        if what == "ask":
            h = info_asked(h, now=now)
        else:
            error = "" if what == "ok" else what
            h = notified(h, registered=what == "ok", error=error, now=now)
    return decide(h, patience=30.0, now=at)


@pytest.mark.parametrize(
    ("events", "at", "action"),
    [
        ([], 29.0, Wait(1.0)),
        ([], 30.0, Unseen()),
        ([(5, "ask")], 34.0, Wait(1.0)),
        ([(5, "ask")], 35.0, Recreate()),
        ([(5, "ask"), (20, "ask")], 35.0, Recreate()),
        ([(5, "ask"), (6, "ok")], 1000.0, Wait(None)),
        ([(5, "ask"), (6, "no such version")], 35.0, Recreate()),
        ([(5, "ask"), (6, "timeout"), (7, "ask"), (8, "ok")], 1000.0, Wait(None)),
        ([(5, "ask"), (6, "ok"), (50, "ask")], 79.0, Wait(1.0)),
        ([(5, "ask"), (6, "ok"), (50, "ask")], 80.0, Recreate()),
    ],
    ids=[
        "not asked yet",
        "never asked",
        "asked",
        "asked, then silence",
        "asking again buys no time",
        "registered",
        "refused",
        "refused, then registered",
        "asked again after a kubelet restart",
        "restart, then silence",
    ],
)
def test_the_socket_is_made_anew_only_when_a_question_had_no_good_end(events, at, action):
    assert run(*events, at=at) == action


def test_a_missing_kubelet_is_reported_once():
    assert decide(missed(Handshake(since=0.0)), patience=30.0, now=99.0) == Wait(None)


def test_a_new_socket_starts_over_but_remembers_why():
    h = notified(Handshake(since=0.0), registered=False, error="timeout", now=1.0)
    h = recreated(h, now=40.0)
    assert (h.error, decide(h, patience=30.0, now=69.0)) == ("timeout", Wait(1.0))
