"""From an allocated claim to what is wanted here, and every way to refuse."""

import pytest

from api.resource.claim import ResourceClaim
from driver.core.claims import Intent, Wanted, read_intent
from driver.core.errors import ClaimError
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from tests.unit.core.given import DRIVER, POOL, claim, gpu, result, snapshot

INVENTORY = build_inventory(snapshot(gpu(1), gpu(2)))
ONE, TWO = INVENTORY.devices.values()


def read(given, uid="uid-1"):
    return read_intent(given, uid=ClaimUID(uid), driver=DRIVER, pool=POOL, inventory=INVENTORY)


def test_results_of_this_driver_are_wanted_in_their_order():
    given = claim(
        result("gpu-00000002", request="big/second"),
        result("nic-7", driver="nic.example.com", pool="node-1"),
        result("gpu-00000001", request="watch", adminAccess=True, shareID="share-1"),
    )
    assert read(given) == Intent(
        namespace="default",
        name="train",
        uid=ClaimUID("uid-1"),
        wanted=(
            Wanted(request="big", device=TWO),
            Wanted(request="watch", device=ONE, admin_access=True, share_id="share-1"),
        ),
    )


def test_a_claim_that_is_allocated_elsewhere_wants_nothing_here():
    given = claim(result("nic-7", driver="nic.example.com"))
    assert read(given).wanted == ()


def test_configuration_for_another_driver_is_none_of_our_business():
    theirs = {"source": "FromClaim", "opaque": {"driver": "nic.example.com", "parameters": {}}}
    assert len(read(claim(result("gpu-00000001"), config=[theirs])).wanted) == 1


def test_fields_of_a_later_server_are_ignored():
    given = claim(result("gpu-00000001", consumedCapacity={"memory": "1Gi"}, later=1))
    assert read(given).wanted == (Wanted(request="gpu", device=ONE),)


UNALLOCATED = ResourceClaim.model_validate(
    {"metadata": {"name": "train", "namespace": "default", "uid": "uid-1"}}
)
OPAQUE = {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
UNKNOWN = {"source": "FromClass", "requests": ["gpu"]}


@pytest.mark.parametrize(
    ("given", "words", "retryable"),
    [
        (UNALLOCATED, "claim default/train is not allocated", True),
        (claim(result("gpu-1", pool="old/tessera")), "is in pool old/tessera, this node", True),
        (claim(result("gpu-9")), "device gpu-9 of pool node-1/tessera is not on this node", True),
        (claim(result("gpu-00000001"), config=[OPAQUE]), r"configuration \(FromClaim\)", False),
        (claim(result("gpu-00000001"), config=[UNKNOWN]), r"configuration \(FromClass\)", False),
    ],
)
def test_a_refusal_names_the_claim_and_says_whether_to_try_again(given, words, retryable):
    with pytest.raises(ClaimError, match=words) as refusal:
        read(given)
    assert "claim default/train" in str(refusal.value)
    assert refusal.value.retryable is retryable


def test_a_later_claim_of_the_same_name_is_not_prepared_for_the_earlier_pod():
    with pytest.raises(ClaimError, match="asked for UID uid-0, the API has uid-1"):
        read(claim(result("gpu-00000001")), uid="uid-0")
