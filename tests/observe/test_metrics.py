import pytest
from prometheus_client.parser import text_string_to_metric_families

from driver.observe.metrics import Metrics


def samples(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_what_happened_is_counted_under_its_labels():
    metrics = Metrics(version="1.2.3")
    metrics.observe("v1.DRAPlugin/NodePrepareResources", 0.02, "ok")
    metrics.observe("v1.DRAPlugin/NodePrepareResources", 0.03, "claim_error")
    metrics.slice_written("create", "new")
    metrics.slice_written("create", "new")
    metrics.relisted("resourceclaims")
    metrics.nvml_failed("nvmlInit", 999)
    metrics.event_dropped()
    metrics.ledger_damaged()
    metrics.show_prepared_claims(lambda: 3)
    metrics.set_published_devices(8)
    metrics.set_ready(True)
    found = samples(metrics)
    method = "v1.DRAPlugin/NodePrepareResources"
    assert found["tessera_kubelet_rpc_seconds_count"] == {
        (method, "ok"): 1,
        (method, "claim_error"): 1,
    }
    assert found["tessera_kubelet_rpc_seconds_sum"][method, "ok"] == pytest.approx(0.02)
    assert found["tessera_slice_writes_total"] == {("new", "create"): 2}
    assert found["tessera_reflector_relists_total"] == {("resourceclaims",): 1}
    assert found["tessera_nvml_errors_total"] == {("nvmlInit", "999"): 1}
    assert found["tessera_events_dropped_total"] == {(): 1}
    assert found["tessera_ledger_damaged_total"] == {(): 1}
    assert found["tessera_prepared_claims"] == {(): 3}
    assert found["tessera_published_devices"] == {(): 8}
    assert found["tessera_ready"] == {(): 1}
    assert found["tessera_build_info"] == {("1.2.3",): 1}


def test_memory_and_cpu_of_the_process_are_there():
    found = samples(Metrics(version="1"))
    assert found["process_resident_memory_bytes"][()] > 1_000_000
    assert found["process_cpu_seconds_total"][()] > 0


def test_two_in_one_process_do_not_share_numbers():
    one, two = Metrics(version="1"), Metrics(version="1")
    one.show_prepared_claims(lambda: 5)
    assert samples(two)["tessera_prepared_claims"] == {(): 0}
