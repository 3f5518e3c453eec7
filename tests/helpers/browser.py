"""A page in a headless browser: what it draws, what it complains about, and whether it asks for anything from elsewhere."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"),
)
TIMEOUT_S = 100.0
DARK = "--blink-settings=preferredColorScheme=0"

ONLY_ITSELF = (
    "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; img-src data:; "
    "script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'\">"
)
"""The browser refuses to fetch anything, and complains of each try."""

PROBE = """
<script>
(() => {
  const canvases = (node) => [...node.querySelectorAll("*")].flatMap((each) =>
    [...(each.tagName === "CANVAS" ? [each] : []), ...(each.shadowRoot ? canvases(each.shadowRoot) : [])]);
  const painted = (canvas) => {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 3; at < data.length; at += 4) count += data[at] > 0;
    return count / (data.length / 4);
  };
  const tell = () => {
    const places = [...document.querySelectorAll("[data-root-id]")];
    const found = {
      plots: places.map((place) => canvases(place).filter((each) => each.width).map(painted)),
      left: places.map((place) => place.getBoundingClientRect().left),
      overflows: document.documentElement.scrollWidth > innerWidth,
      verdict: document.getElementById("verdict")?.innerText ?? "",
      ink: Bokeh.documents.flatMap((doc) => [...doc._all_models.values()])
        .filter((each) => each.type === "CategoricalAxis")
        .map((each) => each.major_label_text_color.value ?? each.major_label_text_color),
    };
    parent.postMessage(JSON.stringify(found), "*");
  };
  const idle = () => Bokeh.documents.length && Bokeh.documents.every((doc) => doc.is_idle);
  const wait = () => idle() ? setTimeout(tell, 500) : setTimeout(wait, 50);
  wait();
})();
</script></body>"""

FRAME = """<!DOCTYPE html><body style="margin: 0"><script>
onmessage = ({data}) => {
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = data;
  document.body.append(out);
};
</script><iframe src="opened.html" style="border: 0; height: 1000px; width: %dpx"></iframe></body>"""
"""A browser's own window is never narrower than 500 pixels."""


@dataclass(frozen=True)
class Opened:
    found: dict[str, Any]
    """What the probe saw."""
    complaints: list[str]
    """Errors and warnings on the console."""


def browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def why_not() -> str | None:
    """Why no page can be opened here; None if one can."""
    return None if browser() else "there is no browser (Debian: apt-get install chromium)"


def open_page(page: Path, work: Path, *options: str, width: int = 1200) -> Opened:
    """A copy of `page` that may fetch nothing; `work` is a directory for it. Call `why_not` first."""
    text = page.read_text()
    copy = work / "opened.html"
    copy.write_text(text.replace("<head>", f"<head>{ONLY_ITSELF}", 1).replace("</body>", PROBE, 1))
    frame = work / "frame.html"
    frame.write_text(FRAME % width)
    program = browser()
    assert program is not None
    command = [program, *OPTIONS, *options, f"--user-data-dir={work / 'profile'}", "--window-size=1300,1000"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=60000", "--dump-dom", frame.as_uri()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    console = re.findall(r"CONSOLE[^\]]*\] (\".*)", done.stderr)
    complaints = [line for line in console if not line.startswith('"[bokeh ')]
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert probe, f"the page did not come to rest; its console: {console}"
    return Opened(json.loads(html.unescape(probe[1])), complaints)
