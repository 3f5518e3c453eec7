"""The page of a run: what it says, whatever is missing, and that nothing on it comes from elsewhere or is taken for markup."""

import json
import re

import pytest
from bokeh.core.validation.check import check_integrity
from bokeh.embed import components

from helpers.chaos_runs import BROKEN, SOUND, write_run
from tidelog.chaos import history as h
from tidelog.chaos import samples as s
from tidelog.chaos import scenario_file
from tidelog.chaos.checker.verdict import Anomaly, Kept, Verdict
from tidelog.chaos.checking import CannotCheck
from tidelog.chaos.report import canvas
from tidelog.chaos.report import page as p
from tidelog.chaos.report.timeline import Timeline
from tidelog.chaos.scenario import Column

PLOTS = re.compile(r'<div id="[^"]+" data-root-id="[^"]+"')
BOKEH = re.compile(r"<script type=\"text/javascript\">.*?</script>", re.DOTALL)


SMALL = {"partitions": 1, "rate": 20.0}
"""A page costs most of a second; most of what it says does not depend on how much there is."""


def text_of(directory):
    """The page without Bokeh and its data."""
    page = p.write_report(directory)
    assert page == directory / "report.html"
    return BOKEH.sub("", page.read_text())


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return text_of(write_run(tmp_path_factory.mktemp("sound")))


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Directory and text of a page, of which Bokeh has looked through the plots."""
    directory = write_run(tmp_path_factory.mktemp("broken"), BROKEN)

    def checked(figures):
        issues = [check_integrity(each.references()) for each in figures]
        assert not any(found.error or found.warning for found in issues), issues
        return components(figures)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canvas, "components", checked)
        return directory, text_of(directory)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Directory and text of a page with one partition."""
    directory = write_run(tmp_path_factory.mktemp("small"), **SMALL)
    return directory, text_of(directory)


@pytest.fixture
def undrawn(monkeypatch):
    """A page gets no plots, which take most of its time."""
    monkeypatch.setattr(p, "embedded", lambda figures: ("", [""] * len(figures)))


def test_the_verdict_stands_first_then_the_promises_then_the_plots(sound):
    text = sound
    order = [
        text.index(mark) for mark in ('id="verdict"', 'id="promises"', "data-root-id", "<h2>Anomalies", 'id="repeat"')
    ]
    assert order == sorted(order)
    assert 'class="verdict good"' in text and "Nothing is wrong in the history, and every promise was kept." in text
    assert "None was found." in text and "there is no verdict" not in text
    assert "tidelog chaos run row-01-kill-leader --on local --column all/2 --seed 7 --duration 20s" in text
    # faults, sends, latency, leaders, ISR, elections, processes, three partitions, groups, lag
    assert len(PLOTS.findall(text)) == 12


def story_of(text):
    """The paragraph at the top, without its markup."""
    (found,) = re.findall(r'<p id="story">(.*?)</p>', text, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", found).split())


def test_the_paragraph_tells_what_was_done_and_seen(sound):
    text = sound
    assert text.index('id="verdict"') < text.index('id="story"') < text.index('id="promises"')
    story = story_of(text)
    for said in (
        "Scenario (what is meant to happen): a leader dies under load. SIGKILL to the leader of partition 0",
        "Tested: 3 brokers, 2 controllers and 1 ZooKeeper server, as processes of this machine; topic chaos with 3 partitions, "
        "3 replicas of each, and a min ISR of 2. Column all/2 of the fault matrix: a record of acks=all is acknowledged when "
        "every replica in sync has it, and refused while fewer than 2 are in sync. Seed 7 repeats what was drawn at random.",
        "Load: 300 records a second, from 2 producers with acks=all and 1 producer with acks=1, read meanwhile by "
        "1 consumer of every partition and a group of 2 members.",
        "Faults: kill leader of 0 (broker-1) from 8.00 s to 14.80 s.",
        "Seen: 3,000 records were sent and 2,978 acknowledged, 13 refused, 9 without a known outcome.",
        "The longest wait for an acknowledgement was 2.1 s, of acks=all in chaos-0, at 8.00 s (promised: at most 8 s).",
        "2 leaders were elected. Every ISR was full 2.1 s after the last fault of a server was over.",
    ):
        assert said in story
    assert 'from <a href="#timeline" data-t="8.00">8.00 s</a>' in text


@pytest.mark.usefixtures("undrawn")
def test_the_paragraph_tells_of_a_run_what_is_known_of_it(tmp_path):
    story = story_of(text_of(write_run(tmp_path, None, until=5.0, **SMALL)))
    assert "Faults: none." in story and "Nothing was read back at the end." in story
    assert (
        "The waits for acknowledgements were not judged. No leaders were elected." in story and "ISR was" not in story
    )
    (tmp_path / "scenario.yaml").write_text("- nonsense")
    story = story_of(text_of(tmp_path))
    assert story.startswith("Tested: 3 brokers") and "topic chaos with 1 partition. Seed 7" in story
    assert "Load" not in story


@pytest.mark.parametrize(
    ("scenario", "column", "said"),
    [
        ("row-13", "all/1", "acknowledged when every replica in sync has it, be that the leader alone. Seed 7"),
        ("row-13", "all/2", "and 1 producer with acks=1, read meanwhile by 1 consumer of every partition."),
        (
            "demo",
            "all/2",
            "Load: 200,000 order events, as fast as the client takes them, from 1 producer with acks=all,",
        ),
        ("demo", "all/2", "read meanwhile by a group of 2 agents."),
        ("control-acks-1-loss", "all/2", "Load: 300 records a second, from 2 producers with acks=1. Faults"),
        ("row-23", "all/2", "read meanwhile by a group of 4 members."),
    ],
)
def test_the_paragraph_fits_any_scenario(scenario, column, said):
    plan = scenario_file.load(scenario_file.find(scenario)).in_column(Column(column))
    run = p.Run({"seed": 7, "column": column}, Timeline(), True, s.Samples(), None, {}, plan=plan)
    template = p.environment().get_template("story.html.j2")
    assert said in story_of(template.render(**p.story(run, None)))


@pytest.mark.usefixtures("undrawn")
def test_a_wait_says_whether_it_had_a_limit(tmp_path, small):
    assert "promised: at most 8 s" in small[1]
    write_run(tmp_path, **SMALL)
    run = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(run | {"promise": {}}))
    text = text_of(tmp_path)
    assert text.count("no limit was promised") == 3, "in the paragraph, among the figures and in the table of gaps"


def test_every_plot_has_a_legend_and_is_as_wide_as_the_window(broken):
    directory, text = broken
    plots = re.findall(r'<div class="plot">.*?data-root-id', text, re.DOTALL)
    assert len(plots) == 12 and all('<ul class="legend">' in plot and "<li" in plot for plot in plots)
    for meaning in (
        "<b>shaded</b> a fault is in force",
        "LEO (log end offset): the next",
        "HW (high watermark): records below",
        "ISR: the replicas that",
        "<b>refused</b> answered with an error: certainly not stored",
        "<b>anomaly</b> where one shows",
    ):
        assert meaning in text
    page = (directory / "report.html").read_text()
    assert page.count('"sizing_mode":"stretch_width"') == 12
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    assert "overflow-x" not in style and not re.search(r"min-width: *[3-9]\d\dpx", style)
    assert "(max-width: 600px)" in style and 'data-label="measured"' in page


def test_the_page_says_where_the_run_is_kept(small):
    directory, text = small
    assert f"The run is kept in <code>{directory}</code>. <code>rm -r</code> of that directory deletes it" in text


def test_a_moment_in_a_text_is_a_link_to_the_time_line():
    link = '<a href="#timeline" data-t="{0}">{0} s</a>'
    assert p.timed("0.78 s (a<b-1, at 6.82 s)") == f"0.78 s (a&lt;b-1, at {link.format('6.82')})"
    assert p.timed("from 4.257 s to 18.544 s") == f"from {link.format('4.257')} to {link.format('18.544')}"


def test_a_broken_run_names_what_broke_and_shows_the_operations(broken):
    _, text = broken
    assert 'at <a href="#timeline" data-t="8.10">8.10 s</a>' in text, "the anomaly is on the time line"
    assert 'class="verdict bad"' in text and "The history shows 2 lost-write." in text
    assert "affected partitions are available again (measured 9.4 s, promised at most 8 s)" in text
    assert "p1-17 was acknowledged at offset 12 of chaos-0 and is gone" in text
    assert "0.007 s  producer-2 sends p-1 to chaos-1, acks=all" in text
    assert "ok at offset 0 (epoch 1, ISR of 3)" in text
    assert "consumer-1 polls chaos-1: 0 p-1" in text
    assert "X2 was not judged" in text
    assert re.search(r"Looked for and not found: unseen, inconsistent-offsets", text)


def test_a_page_is_whole_by_itself(small):
    page = (small[0] / "report.html").read_text()
    assert not re.search(r'<(script|link|img|iframe)[^>]+(src|href)="(?!data:)', page)


def test_of_fifty_partitions_some_are_drawn_and_the_page_says_which(tmp_path):
    text = text_of(write_run(tmp_path, partitions=50, rate=20.0))
    assert (tmp_path / "report.html").stat().st_size < 6_000_000
    assert "Of 50 partitions 24 have a row, and 6 a plot of their own" in text
    assert len(PLOTS.findall(text)) == 9 + p.OFFSETS_MAX
    assert "<h3>HW and LEO of chaos-0 " in text  # it has the longest gap


def test_one_partition_has_no_such_note(small):
    _, text = small
    assert "have a row" not in text and text.count("<h3>HW and LEO of") == 1


@pytest.mark.parametrize("until", [0.0, 5.0, 12.3])
def test_a_run_that_was_cut_off_is_shown_up_to_there(tmp_path, until):
    text = text_of(write_run(tmp_path, None, until=until, **SMALL))
    assert 'class="verdict open"' in text and "No verdict" in text
    (shown,) = re.findall(r"The run was cut off: this page shows it up to ([\d.]+) s", text)
    assert float(shown) == pytest.approx(until, abs=0.4)


def test_a_run_that_ended_before_anything_was_recorded_has_a_page_too(tmp_path):
    (tmp_path / "run.json").write_text('{"name": "row-01"}')
    text = text_of(tmp_path)
    assert "Nothing was recorded." in text and "None was looked for" in text


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(CannotCheck, match=r"there is no run\.json in it"):
        p.write_report(tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    (write_run(tmp_path) / "verdict.json").write_text("{")
    with pytest.raises(ValueError, match=r"verdict\.json is damaged"):
        p.write_report(tmp_path)


def test_nothing_that_a_run_names_is_taken_for_markup(tmp_path):
    evil = "</script><script>alert(1)</script>"
    verdict = Verdict({evil: Anomaly(1, False)}, promises=(Kept(evil, False, evil, evil),), notes=(evil,))
    write_run(tmp_path, verdict, **SMALL)
    run = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(run | {"name": evil, "title": evil, "on": evil, "version": evil}))
    (tmp_path / "scenario.yaml").write_text(evil)
    history = tmp_path / "history.jsonl"
    history.write_text(history.read_text().replace("kill leader of 0", evil).replace("broker-1", evil))
    samples = tmp_path / "samples.jsonl"
    samples.write_text(samples.read_text().replace("chaos", evil).replace("broker-1", evil))
    page = p.write_report(tmp_path).read_text()
    assert evil not in page and "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 8


CASES = {
    "no verdict": (None, "open", "No verdict"),
    "sound": (SOUND, "good", "Sound"),
    "nothing promised": (Verdict({}), "good", "Sound"),
    "anomaly": (BROKEN, "bad", "Broken"),
    "missed": (Verdict({}, promises=(Kept("quick", False, "9 s", "at most 8 s"),)), "bad", "A promise was missed"),
    "cut off": (Verdict({}, complete=False), "open", "No verdict"),
    "broken and cut off": (Verdict({"G1a": Anomaly(1, False)}, complete=False), "bad", "Broken"),
    "tolerated": (Verdict({"duplicate": Anomaly(3, True)}), "good", "Sound"),
}


@pytest.mark.parametrize(("verdict", "tone", "words"), CASES.values(), ids=CASES)
def test_the_headline_is_that_of_the_exit_code(verdict, tone, words):
    found = p.headline(verdict, 12.0)
    assert (found.tone, found.headline) == (tone, words)
    assert {"good": 0, "bad": 1, "open": 3}[found.tone] == (3 if verdict is None else verdict.exit_code)


def test_what_is_tolerated_is_said_in_the_headline():
    assert p.headline(CASES["tolerated"][0], 12.0).text.endswith("Tolerated: 3 duplicate.")


def test_a_run_says_itself_how_to_repeat_it():
    assert p.repeat({"name": "x", "command": "make demo SEED=3"}) == "make demo SEED=3"
    assert (
        p.repeat({"name": "random", "seed": 0, "duration_s": 90.5})
        == "tidelog chaos run random --seed 0 --duration 90.5s"
    )


def test_an_operation_is_one_line():
    read = h.Read("chaos", 0, ((4, "a"), (5, "b"), (6, "c")))
    assert p.operation(h.Polled(1.5, "c-1", 9, 1.4, (read,))) == "1.500 s  c-1 polls chaos-0: 4 a to 6 c"
    assert p.operation(h.Sent(2.0, 1, h.INFO, error="timeout")) == "2.000 s  info (timeout)"
