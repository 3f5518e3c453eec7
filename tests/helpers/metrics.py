"""What a process of a local cluster says of itself; its metrics port is no link, so no cut hides it."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tidelog.cluster.local import LocalCluster

TIMEOUT_S = 10.0


def metric(cluster: LocalCluster, name: str, sample: str, **labels: str) -> float:
    """The sum of all samples of that name which carry `labels`; 0 where there is none yet."""
    with urllib.request.urlopen(f"http://{cluster.plan[name].addresses['METRICS']}/metrics", timeout=TIMEOUT_S) as page:
        text = page.read().decode()
    return sum(
        each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    )
