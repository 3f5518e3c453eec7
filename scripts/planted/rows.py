"""All anomalies by the rows of the table, in its order."""

from planted import plant_files, plant_groups, plant_logs, plant_readers
from planted.anomalies import CATALOGUE, Anomaly

_IN_ORDER = tuple(module.__name__ for module in (plant_logs, plant_readers, plant_groups, plant_files))
"""Each adds its own to the catalogue when it is imported."""


def by_row() -> dict[str, list[Anomaly]]:
    found: dict[str, list[Anomaly]] = {}
    for each in sorted(CATALOGUE, key=_place):
        found.setdefault(each.row, []).append(each)
    return found


def _place(anomaly: Anomaly) -> int:
    return _IN_ORDER.index((anomaly.plant or anomaly.spoil).__module__)
