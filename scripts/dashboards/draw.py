"""Boards as Grafana's JSON, made with Grafana's own builders: a field that Grafana does not know cannot be written."""

import json
import warnings
from typing import Any, Final

from dashboards.panels import RED, VARIABLES, Board, Kind, Panel

with warnings.catch_warnings():
    # The classic schema is the one that every Grafana provisions from files; the SDK would rather have the newer one.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common as common_model
    from grafana_foundation_sdk.models import dashboard as model

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG: Final = "tidelog"
FAULT_ACTIVE: Final = "max by (fault, target) (tidelog_chaos_fault_active) > 0"
GAP_MS: Final = 5_000
"""A time line holds a state until the next sample: without this it would also hold that of a series that is gone."""
HEIGHTS: Final = {Kind.STAT: 4, Kind.TIMELINE: 8, Kind.GRAPH: 8}


def ref_id(number: int) -> str:
    return chr(ord("A") + number)


def drawn(panel: Panel) -> Any:
    """The builder of one panel."""
    builder: Any
    if panel.kind is Kind.STAT:
        builder = stat.Panel().color_mode(common_model.BigValueColorMode.BACKGROUND)
        builder.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    elif panel.kind is Kind.TIMELINE:
        builder = statetimeline.Panel().merge_values(True).row_height(0.9).fill_opacity(80)
        builder.legend(common.VizLegendOptions().show_legend(False)).insert_nulls(GAP_MS)
    else:
        builder = timeseries.Panel().min(0).fill_opacity(10)
        builder.tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI))
    builder.title(panel.title).description(panel.what).unit(panel.unit).datasource(SOURCE)
    builder.span(panel.width).height(HEIGHTS[panel.kind])
    if panel.colors:
        steps = [model.Threshold(value, color) for value, color in panel.colors]
        builder.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
        builder.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    if panel.names:
        texts = {str(value): model.ValueMappingResult(text=text) for value, text in panel.names.items()}
        builder.mappings([model.ValueMap(options=texts)])
    for number, (query, legend) in enumerate(panel.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id(ref_id(number))
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


def faults() -> Any:
    """Regions over every graph while a chaos run has a fault in effect (ecosystem 2.6): they come from Prometheus alone."""
    return (
        dashboard.AnnotationQuery()
        .name("Faults")
        .datasource(SOURCE)
        .enable(True)
        .icon_color(RED)
        .expr(FAULT_ACTIVE)
        .step("2s")
        .title_format("{{fault}}")
        .text_format("{{target}}")
        .tag_keys("fault,target")
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
        .annotation(faults())
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
    for title, panels in board.rows.items():
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(drawn(panel))
    return made.build()


def text(board: Board) -> str:
    """Each panel has an id of its own: its place, so that a diff stays small."""
    plain: dict[str, Any] = json.loads(json.dumps(built(board), cls=JSONEncoder))
    for number, panel in enumerate(plain["panels"], 1):
        panel["id"] = number
    return json.dumps(plain, indent=2, sort_keys=True) + "\n"
