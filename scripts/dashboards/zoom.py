"""Grafana's way to ask Prometheus: how far the points of a panel are apart, and what takes the place of variables."""

from dataclasses import dataclass
from typing import Final

from dashboards.panels import Kind

SCRAPE_S: Final = 2
"""The least time between two points, which the data source tells Grafana."""
POINTS_MAX: Final = {Kind.TIMELINE: 10_000, Kind.GRAPH: 6_000}
"""A point every 10 s of a day in a time line, every 15 s in a graph. A time line shows what was there at these moments alone, a
graph rates and peaks of the time between them. Prometheus gives at most 11,000."""
GAP_S: Final = {Kind.TIMELINE: 15, Kind.GRAPH: 20}
"""Without samples for so long there is a gap: else a time line goes on with the state of a series that is gone, and a graph draws
a line to where it is back. More than two points of a day are apart, or there would be nothing but gaps."""
STEPS_S: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600)
"""Grafana takes the one that is nearest."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """`range_s`: how much time is shown, up to a day."""

    range_s: float
    scrape_s: int = SCRAPE_S

    def step_s(self, kind: Kind) -> int:
        wanted = self.range_s / POINTS_MAX[kind]
        return max(self.scrape_s, min(STEPS_S, key=lambda step: abs(step - wanted)))

    def filled(self, query: str, kind: Kind) -> str:
        """With all topics and groups."""
        rate_s = 4 * self.scrape_s if kind is Kind.STAT else max(4 * self.scrape_s, self.step_s(kind) + self.scrape_s)
        values = {"$__rate_interval": f"{rate_s}s", "$__range": f"{self.range_s:g}s", "$topic": ".*", "$group": ".*"}
        for variable, value in values.items():
            query = query.replace(variable, value)
        return query
