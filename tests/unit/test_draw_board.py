"""A board as a picture: the points that are asked for, regions of marks, gaps, and what is said when nothing answers."""

import json
import struct
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dashboards import picture
from dashboards.boards import BOARDS
from dashboards.panels import Kind
from dashboards.picture import Region
from dashboards.proof import Series
from dashboards.zoom import Zoom
from helpers.scripts import load_script
from tidelog.cluster.free_ports import free_ports

draw_board = load_script("draw_board")
END = "2026-01-31T14:05:00"
LABELS = {"topic": "events", "partition": "0"}


class Answers(BaseHTTPRequestHandler):
    """One series for each query, with a value at each step, or what `body` says instead."""

    asked: list[dict[str, str]]
    body: bytes | None = None

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        given = dict(urllib.parse.parse_qsl(address.query))
        self.asked.append(given)
        found: dict[str, Any] = {"metric": LABELS}
        if address.path.endswith("query_range"):
            times = range(int(float(given["start"])), int(float(given["end"])) + 1, int(given["step"]))
            found["values"] = [[at, "1"] for at in times]
        else:
            found["value"] = [float(given["time"]), "1"]
        body = json.dumps({"data": {"result": [found]}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body if self.body is None else self.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[str]:
    Answers.asked, Answers.body = [], None
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["draw_board.py", *words])
    return int(draw_board.main())


@pytest.mark.parametrize("board", BOARDS[:2], ids=lambda board: str(board.uid))
def test_the_first_screen_of_a_board_is_drawn(board: Any, prometheus: str, tmp_path: Path) -> None:
    out = tmp_path / "board.png"
    words = ("--prometheus", prometheus, "--board", board.uid, "--range", "5m", "--end", END, "--out", str(out))
    subprocess.run([sys.executable, draw_board.__file__, *words], check=True)
    png = out.read_bytes()
    assert png.startswith(b"\x89PNG") and struct.unpack(">II", png[16:24]) == (1920, 1080)
    first = [panel for panel in board.panels if panel.title in picture.first_screen(board)]
    queries = {Zoom(300).filled(query, panel.kind) for panel in first for query in panel.queries}
    assert len(first) >= 4 and queries <= {each["query"] for each in Answers.asked}


def test_the_story_of_a_fault_fits_one_screen() -> None:
    (board,) = (board for board in BOARDS if board.opening)
    assert list(picture.first_screen(board)) == [panel.title for panel in board.opening]


def test_without_prometheus_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert run(monkeypatch, "--prometheus", url, "--out", str(tmp_path / "board.png")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"draw_board: Prometheus does not answer at {url}: ") and "refused" in line


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]"])
def test_an_answer_of_something_else_is_one_line(
    body: bytes, prometheus: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Answers.body = body
    assert run(monkeypatch, "--prometheus", prometheus) == 1
    assert capsys.readouterr().err.endswith("what answers is no Prometheus\n")


@pytest.mark.parametrize("words", [("--range", "15"), ("--range", "48h"), ("--range", "0m"), ("--board", "none")])
def test_bad_usage_is_refused(words: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *words)
    assert ended.value.code == 2


def test_a_region_ends_where_samples_do() -> None:
    series = Series({}, [(at, 1.0) for at in (0.0, 2.0, 4.0, 60.0, 62.0)])
    assert list(picture.regions(series, 15)) == [(0.0, 4.0), (60.0, 62.0)]
    assert list(picture.regions(Series({}, []), 15)) == []


def test_regions_of_a_colour_are_drawn_once() -> None:
    marks = [Region(5, 9, "red"), Region(1, 2, "red"), Region(8, 12, "red"), Region(6, 7, "orange")]
    assert list(picture.merged(marks)) == [Region(1, 2, "red"), Region(5, 12, "red"), Region(6, 7, "orange")]
    assert list(picture.merged([])) == []


def test_a_legend_names_labels_that_may_be_missing() -> None:
    assert picture.legend("{{topic}}-{{partition}} {{other}}", LABELS) == "events-0"


@pytest.mark.parametrize(
    ("hours", "timeline_s", "graph_s", "rate"),
    [(0.25, 2, 2, "8s"), (1, 2, 2, "8s"), (12, 5, 5, "8s"), (24, 10, 15, "17s")],
)
def test_points_are_as_far_apart_as_in_grafana(hours: float, timeline_s: int, graph_s: int, rate: str) -> None:
    zoom = Zoom(hours * 3600)
    assert (zoom.step_s(Kind.TIMELINE), zoom.step_s(Kind.GRAPH)) == (timeline_s, graph_s)
    assert zoom.filled('x{topic=~"$topic"}[$__rate_interval]', Kind.GRAPH) == f'x{{topic=~".*"}}[{rate}]'
