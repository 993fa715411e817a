"""docs/operations.md lists every metric of the plugin, as it is."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from driver.observe.metrics import Metrics
from tests.docs.tables import check, table

Metric = Counter | Gauge | Histogram
KINDS = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}


def test_every_metric_is_listed_with_its_labels() -> None:
    registry = Metrics(version="1")._registry
    own = [each for each in registry._collector_to_names if isinstance(each, Metric)]
    rows = [
        (
            f"`{_name(each)}`",
            KINDS[type(each)],
            ", ".join(f"`{label}`" for label in each._labelnames) or "none",
            each._documentation,
        )
        for each in own
    ]
    check("metrics", table(("metric", "type", "labels", "what it says"), rows))
    families = {family.name for family in registry.collect() if family.name.startswith("tessera")}
    assert {_name(each).removesuffix("_total") for each in own} == families


def _name(metric: Metric) -> str:
    return f"{metric._name}_total" if isinstance(metric, Counter) else metric._name
