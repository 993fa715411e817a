"""One claim, one at a time; nobody waits for ever, and recovery not at all."""

import pytest

from driver.core.errors import ClaimError
from driver.core.ids import ClaimUID
from driver.plugin.preparing.turns import Turns
from driver.state.thread_locks import ThreadLocks

A, B = ClaimUID("a"), ClaimUID("b")


def test_a_claim_in_work_is_told_to_be_busy_with_whom():
    turns = Turns(ThreadLocks(), patience=0.01)
    with turns.held(A, by="prepare of claim default/a"):
        with turns.held(B, by="prepare of claim default/b"):
            pass
        with (
            pytest.raises(ClaimError, match="busy with prepare of claim default/a for more than"),
            turns.held(A, by="unprepare of claim default/a"),
        ):
            pytest.fail("two have the turn")


def test_recovery_takes_a_turn_only_if_it_is_free():
    turns = Turns(ThreadLocks())
    with turns.try_held(A) as free:
        assert free
        with turns.try_held(A) as second:
            assert not second
        with (
            pytest.raises(ClaimError, match="busy with recovery"),
            turns.held(A, by="prepare", patience=0),
        ):
            pytest.fail("two have the turn")
    with turns.held(A, by="prepare", patience=0), turns.try_held(A) as free:
        assert not free


def test_an_error_gives_the_turn_back():
    turns = Turns(ThreadLocks())
    with pytest.raises(ZeroDivisionError), turns.try_held(A):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), turns.held(A, by="prepare"):
        raise ZeroDivisionError
    with turns.try_held(A) as free:
        assert free
