"""A page as one HTML file: styles and pictures are inside, and nothing is loaded."""

from functools import cache
from typing import TYPE_CHECKING

from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.captions import MARK
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.picture import inline_svg
from hpml_jobs.report.page.items import Figure, Item, Page

if TYPE_CHECKING:
    from jinja2 import Environment


def html_document(page: Page) -> str:
    """Return the page as HTML; every text is escaped."""
    template = _environment().get_template("page.html")
    return template.render(page=page, colours=style.VARIABLES) + "\n"


@cache
def _environment() -> "Environment":
    """Return jinja2 with the templates of this package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - heavy

    environment = Environment(
        loader=PackageLoader("hpml_jobs.report.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"kind": _kind, "drawing": _drawing, "looks": _looks}
    return environment


def _kind(item: Item) -> str:
    """Return the name of an item's macro."""
    return type(item).__name__.lower()


def _drawing(figure: Figure) -> str:
    """Return a picture as an inline SVG element; it escapes its texts itself."""
    from markupsafe import Markup  # noqa: PLC0415 - part of jinja2

    picture = figure.picture
    return Markup(inline_svg(picture.figure, picture.name, picture.alt))  # noqa: S704


def _looks(text: str) -> str:
    """Return the class of a table cell by its text."""
    if text.startswith(MARK):
        return "doubtful"
    return {DASH: "absent", OOM: "oom"}.get(text, "")
