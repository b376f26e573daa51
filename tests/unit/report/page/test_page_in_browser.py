"""The page in a real browser: themes, widths, no console message, no request, print."""

import json
import os
import re
import shutil
import subprocess

import pytest

from hpml_jobs.report import page
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
    page.querySelector('nav a[href="#full"]').click();
    const style = frame.contentWindow.getComputedStyle(page.body);
    seen[frame.width] = {{
      width: page.documentElement.scrollWidth,
      background: style.backgroundColor,
      colour: style.color,
      pictures: [...page.querySelectorAll("img.plot")].map((p) => p.getBoundingClientRect().width),
      figures: page.querySelectorAll("figure").length,
      mode: page.compatMode,
      resources: frame.contentWindow.performance.getEntriesByType("resource").map((r) => r.name),
      headline: page.querySelector(".headline").getBoundingClientRect().bottom,
      picture: [...page.querySelectorAll("img.plot")]
        .map((p) => p.getBoundingClientRect()).find((box) => box.width).top,
      opens: page.getElementById("full").closest("details").open,
    }};
    page.querySelectorAll("details").forEach((fold) => {{ fold.open = true; }});
    seen[frame.width].cut = [...page.querySelectorAll("nav ol, .scroll")]
      .filter((box) => box.scrollWidth > box.clientWidth)
      .map((box) => box.querySelector("caption")?.textContent ?? box.tagName);
  }}
  document.getElementById("seen").textContent = JSON.stringify(seen);
}});
</script>
"""


def browse(folder, *options, dark=False):
    """Run the browser once; return its output and what it logged."""
    done = subprocess.run(
        [
            *(BROWSER, *OPTIONS, f"--user-data-dir={folder / 'profile'}"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=120,
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
    (folder / "report.html").write_text(page.files(builder.collect())["report.html"])
    frames = "".join(
        f'<iframe src="report.html" width="{width}" height="800"></iframe>'
        for width in WIDTHS
    )
    (folder / "viewer.html").write_text(VIEWER.format(frames=frames))
    return folder


@pytest.fixture(scope="module")
def light(folder):
    """Output and log of the light theme; the log of the network is in net.json."""
    return browse(
        folder, f"--log-net-log={folder / 'net.json'}", "--dump-dom", viewer(folder)
    )


@pytest.fixture(scope="module")
def dark(folder):
    return browse(folder, "--dump-dom", viewer(folder), dark=True)


def viewer(folder):
    return (folder / "viewer.html").as_uri()


def test_browser_reports_no_console_message(light, dark):
    assert [
        line
        for _, log in (light, dark)
        for line in log.splitlines()
        if "CONSOLE" in line
    ] == []


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


WIDEST = {"Communication", "Phases of the instrumented epoch", "Scaling"}
"""The tables with the most columns scroll at every width."""


def test_browser_cuts_no_other_table_and_no_navigation(light):
    phone, wide = (set(seen(light[0])[width]["cut"]) for width in WIDTHS)
    assert wide <= WIDEST <= phone
    assert "OL" not in phone


def test_browser_link_opens_what_is_folded(light):
    assert [values["opens"] for values in seen(light[0]).values()] == [True, True]


def test_browser_shows_answer_and_picture_without_scrolling(light):
    for values in seen(light[0]).values():
        assert values["headline"] < values["picture"] < 800


def test_browser_draws_pictures_readably_wide(light):
    """A picture is shown once; on a phone it is wider than the screen and scrolls."""
    for width, values in seen(light[0]).items():
        drawn = [pixels for pixels in values["pictures"] if pixels]
        assert len(drawn) == values["figures"]
        assert all(300 < pixels <= max(width, 576) for pixels in drawn)


def test_browser_follows_the_theme(light, dark):
    for output, background, colour in (
        (light[0], "rgb(255, 255, 255)", "rgb(27, 31, 35)"),
        (dark[0], "rgb(20, 23, 26)", "rgb(228, 231, 235)"),
    ):
        values = seen(output)[WIDTHS[0]]
        assert (values["background"], values["colour"]) == (background, colour)


def printed_pages(folder, page):
    """The number of pages of a PDF that the browser prints."""
    pdf = folder / "page.pdf"
    address = (folder / page).as_uri()
    browse(
        folder, f"--print-to-pdf={pdf}", "--no-pdf-header-footer", address, dark=True
    )
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF")
    return content.count(b"/Type /Page\n") + content.count(b"/Type /Page ")


def test_browser_prints_a_pdf_without_what_is_folded(folder):
    html = (folder / "report.html").read_text()
    (folder / "open.html").write_text(html.replace("<details>", "<details open>"))
    assert printed_pages(folder, "report.html") < printed_pages(folder, "open.html")
