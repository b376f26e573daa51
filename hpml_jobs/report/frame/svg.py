"""Pictures as PNG and SVG files, and as SVG in an HTML page with its colours as CSS variables."""

import io
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.picture import Picture, add_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONTS = "'DejaVu Sans', Verdana, Arial, sans-serif"

PIXELS_PER_INCH = 96
"""The scale of a picture on a wide page: its text is as large as on paper."""

_VARIABLES = {
    colour.light.lower(): f"var({colour.variable}, {colour.light.lower()})"
    for colour in style.VARIABLES
}
_BEFORE = re.compile(r"^.*?<svg[^>]*?viewBox=\"(?P<box>[^\"]*)\"[^>]*>", re.DOTALL)
_DROPPED = re.compile(
    r"\s*(<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style[^>]*>.*?</style>\s*</defs>)",
    re.DOTALL,
)
_TAG = re.compile(r"<[a-z][^>]*>")
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^")]*)')
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_FAMILY = re.compile(r"font-family: [^;\"]*")


def draw(figure: "Figure") -> str:
    """Return a figure as an SVG document; the figure keeps its resolution."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - heavy

    content = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)  # its print methods have no types
    before = figure.dpi
    canvas.print_svg(content, metadata={"Date": None})  # it sets 72 dpi
    figure.set_dpi(before)
    return content.getvalue().decode()


def files_of(picture: Picture) -> dict[str, bytes]:
    """Return the PNG and SVG file of a picture, by file name."""
    with style.applied():
        add_words(picture)
        png = _png(picture.figure)
        picture.figure.set_layout_engine("none")  # the PNG's layout is that of the SVG
        svg_text = draw(picture.figure)
    return {f"{picture.name}.png": png, f"{picture.name}.svg": svg_text.encode()}


def _png(figure: "Figure") -> bytes:
    """Draw and lay out the figure once; savefig would do both twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - heavy

    content = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)  # its print methods have no types
    canvas.print_png(content, metadata={"Software": None})
    return content.getvalue()


def inline_svg(figure: "Figure", name: str, alt: str) -> str:
    """Return a figure as an <svg> element for an HTML page, as wide as its container allows.

    Its ids begin with `name`. Its background is transparent, and every colour of `style.VARIABLES`
    is a CSS variable with the light value as fallback. `alt` is its <title>.
    """
    with style.applied(), _without_background(figure):
        document = draw(figure)
    before = _BEFORE.match(document)
    if before is None:
        raise ValueError("matplotlib wrote an SVG without viewBox")
    width = round(figure.get_figwidth() * PIXELS_PER_INCH)
    body = _DROPPED.sub("", document[before.end() :])
    used = {reference for _, reference in _REFERENCE.findall(body)}
    body = _TAG.sub(lambda tag: _tag(tag[0], name, used), body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="{before["box"]}" '
        f'role="img" aria-labelledby="{name}-title" '
        f'style="max-width: {width}px; stroke-linejoin: round; stroke-linecap: butt">\n'
        f'<title id="{name}-title">{escape(alt)}</title>{body.rstrip()}'
    )


def _tag(tag: str, name: str, used: Container[str]) -> str:
    """Return a tag with its colours as variables, and its id, if anything uses it, with `name`."""
    tag = _ID.sub(lambda at: f' id="{name}-{at[1]}"' if at[1] in used else "", tag)
    tag = _REFERENCE.sub(lambda at: f"{at[1]}{name}-{at[2]}", tag.replace("xlink:href", "href"))
    tag = _COLOUR.sub(lambda at: _VARIABLES.get(at[0], at[0]), tag)
    return _FAMILY.sub(f"font-family: {FONTS}", tag)


@contextmanager
def _without_background(figure: "Figure") -> Iterator[None]:
    """Draw a figure and its panels without background within the `with` block."""
    patches = [figure.patch, *(axis.patch for axis in figure.axes)]
    before = [patch.get_visible() for patch in patches]
    for patch in patches:
        patch.set_visible(False)
    try:
        yield
    finally:
        for patch, was_visible in zip(patches, before, strict=True):
            patch.set_visible(was_visible)
