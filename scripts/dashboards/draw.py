"""Boards as Grafana's JSON, made with Grafana's own builders: a field that Grafana does not know cannot be written."""

import json
import warnings
from collections.abc import Iterator
from typing import Any, Final

from dashboards.marks import MARKS, Mark
from dashboards.panels import VARIABLES, Board, Kind, Panel
from dashboards.zoom import GAP_S, POINTS_MAX, SCRAPE_S

with warnings.catch_warnings():
    # The classic schema is the one that every Grafana provisions from files; the SDK would rather have the newer one.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common as common_model
    from grafana_foundation_sdk.models import dashboard as model

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG: Final = "tidelog"
ROWS: Final = 12
"""Rows of a time line on each of its pages."""
COLUMNS: Final = 24
HEIGHTS: Final = {Kind.STAT: 4, Kind.TIMELINE: 8, Kind.GRAPH: 8}
OPENING_HEIGHTS: Final = {Kind.STAT: 3, Kind.TIMELINE: 6, Kind.GRAPH: 6}


def ref_id(number: int) -> str:
    return chr(ord("A") + number)


def bare(panel: Panel) -> Any:
    """The builder of one panel by its kind."""
    builder: Any
    if panel.kind is Kind.STAT:
        builder = stat.Panel().color_mode(common_model.BigValueColorMode.BACKGROUND)
        builder.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    elif panel.kind is Kind.TIMELINE:
        builder = statetimeline.Panel().merge_values(True).row_height(0.9).fill_opacity(80).per_page(ROWS)
        builder.legend(common.VizLegendOptions().show_legend(False))
    else:
        builder = timeseries.Panel().min(0).fill_opacity(10 if panel.legend else 0)
        many = common_model.SortOrder.DESCENDING
        builder.tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI).sort(many))
        if not panel.legend:
            builder.legend(common.VizLegendOptions().show_legend(False))
        if panel.bars:
            builder.draw_style(common_model.GraphDrawStyle.BARS).fill_opacity(80)
    if panel.kind is not Kind.STAT:
        builder.interval(f"{SCRAPE_S}s").max_data_points(POINTS_MAX[panel.kind]).insert_nulls(1000 * GAP_S[panel.kind])
    return builder


def drawn(panel: Panel, width: int, height: int) -> Any:
    """The builder of one panel, with all that it shows."""
    builder = bare(panel)
    builder.title(panel.title).description(panel.what).unit(panel.unit).datasource(SOURCE).span(width).height(height)
    if counts(panel):
        builder.decimals(0)
    if panel.colors:
        steps = [model.Threshold(value, color) for value, color in panel.colors]
        builder.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
        builder.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    if panel.names:
        shades = panel.shades or {}
        texts = {
            str(value): model.ValueMappingResult(text=text, color=shades.get(value))
            for value, text in panel.names.items()
        }
        builder.mappings([model.ValueMap(options=texts)])
    for number, (query, legend) in enumerate(panel.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id(ref_id(number))
        if panel.kind is Kind.STAT:  # of now: a range would still show the last value of what is gone
            target.instant()
        builder.with_target(target.datasource(SOURCE))
    return builder


def selection(label: str, family: str) -> Any:
    """A variable that narrows the panels: the values of a label, all of them at first."""
    return (
        dashboard.QueryVariable(label)
        .label(label.capitalize())
        .datasource(SOURCE)
        .query(f"label_values({family}, {label})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def counts(panel: Panel) -> bool:
    """An increase between two samples is spread over the window, so that 6 events may be drawn as 6.3."""
    return panel.unit == "short" and all("increase(" in query for query in panel.queries)


def marked(mark: Mark) -> Any:
    """Regions over every graph, from Prometheus alone."""
    return (
        dashboard.AnnotationQuery()
        .name(mark.name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(mark.color)
        .expr(mark.query)
        .step(f"{SCRAPE_S}s")
        .title_format(mark.title)
        .text_format(mark.text)
    )


def built(board: Board) -> Any:
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.what)
        .tags([TAG])
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            dashboard.DashboardLink("Boards")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source"))
    )
    for label in board.variables:
        made.with_variable(selection(label, VARIABLES[label]))
    for mark in MARKS:
        made.annotation(marked(mark))
    stats = sum(panel.kind is Kind.STAT for panel in board.opening)
    for panel in board.opening:
        width = COLUMNS // stats if panel.kind is Kind.STAT else COLUMNS // 2
        made.with_panel(drawn(panel, width, OPENING_HEIGHTS[panel.kind]))
    for title, panels in board.rows.items():
        row = dashboard.Row(title)
        inside = [drawn(panel, panel.width, HEIGHTS[panel.kind]) for panel in panels]
        if board.opening:
            for each in inside:
                row.with_panel(each)  # which collapses it
        made.with_row(row)
        if not board.opening:
            for each in inside:
                made.with_panel(each)
    return made.build()


def flat(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each of them, rows and what they have collapsed included."""
    for panel in panels:
        yield panel
        yield from panel.get("panels", ())


def text(board: Board) -> str:
    """Each panel has an id of its own: its place, so that a diff stays small."""
    plain: dict[str, Any] = json.loads(json.dumps(built(board), cls=JSONEncoder))
    for number, panel in enumerate(flat(plain["panels"]), 1):
        panel["id"] = number
    return json.dumps(plain, indent=2, sort_keys=True) + "\n"
