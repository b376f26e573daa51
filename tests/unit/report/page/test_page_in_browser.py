"""The page in a real browser: widths, no console message, no request."""

import json
import os
import re
import shutil
import subprocess

import pytest

from hpml_jobs.report.page import contents as page
from tests.patience import PATIENCE_S
from tests.unit.builders import lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    "",
)

pytestmark = pytest.mark.skipif(
    not BROWSER,
    reason="no Chromium: tests/install-browser installs it on Debian, as root",
)

OPTIONS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-default-apps"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files"),
    *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=4000"),
]

WIDTHS = (390, 1200)

VIEWER = """<!DOCTYPE html><title>viewer</title>
{frames}
<pre id="seen"></pre>
<script>
addEventListener("load", () => {{
  const seen = {{}};
  for (const frame of document.querySelectorAll("iframe")) {{
    const page = frame.contentDocument;
    seen[frame.width] = {{
      width: page.documentElement.scrollWidth,
      mode: page.compatMode,
      resources: frame.contentWindow.performance.getEntriesByType("resource").map((r) => r.name),
    }};
  }}
  document.getElementById("seen").textContent = JSON.stringify(seen);
}});
</script>
"""


def browse(folder, *options):
    """Run the browser once; return its output and what it logged."""
    done = subprocess.run(
        [
            *(BROWSER, *OPTIONS, f"--user-data-dir={folder / 'profile'}"),
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    return done.stdout, done.stderr


def seen(output):
    """What the viewer measured, by the width of its window."""
    text = re.search(r'<pre id="seen">(.*?)</pre>', output, re.S)[1]
    return {int(width): values for width, values in json.loads(text).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A page with wide tables and pictures, and a page that shows it in two widths."""
    folder = tmp_path_factory.mktemp("browser")
    builder = StudyBuilder(folder / "lab-with-a-rather-long-name-of-a-study")
    builder.with_published_study(stall_s=0.4)
    for gpus in (1, 2, 4):
        builder.with_record(lab_record(lab_cell(gpus, 512, repeat=1), 26.0 / gpus))
    html = page.files(builder.collect(), ())["report.html"]
    (folder / "report.html").write_text(html)
    frames = "".join(
        f'<iframe src="report.html" width="{width}" height="800"></iframe>'
        for width in WIDTHS
    )
    (folder / "viewer.html").write_text(VIEWER.format(frames=frames))
    return folder


@pytest.fixture(scope="module")
def light(folder):
    """Output and log; the log of the network is in net.json."""
    return browse(
        folder, f"--log-net-log={folder / 'net.json'}", "--dump-dom", viewer(folder)
    )


def viewer(folder):
    return (folder / "viewer.html").as_uri()


def test_browser_reports_no_console_message(light):
    _, log = light
    assert [line for line in log.splitlines() if "CONSOLE" in line] == []


def test_browser_requests_nothing_but_the_file(light, folder):
    """The browser asks its own servers too: such requests have no origin."""
    log = (folder / "net.json").read_text()
    requests = re.findall(r'"initiator":"([^"]*)".*?"url":"([^"]*)"', log)
    assert log
    assert [url for origin, url in requests if origin != "not an origin"] == []
    assert all(values["resources"] == [] for values in seen(light[0]).values())


def test_browser_phone_width_does_not_scroll_sideways(light):
    for width, values in seen(light[0]).items():
        assert values["width"] <= width
        assert values["mode"] == "CSS1Compat"
