"""Pictures inside an HTML page: ids, colours, text, and their contrast in both themes."""

import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.picture import Panel, Picture, inline_svg, panels

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def element():
    """A picture with a line, hollow markers, bars, a clipped part and hostile words."""

    def draw(axis, panel):
        axis.errorbar(
            [1, 2], [1, 3], yerr=[0.1, 0.2], marker="o", mfc="none", color=style.BLUE
        )
        axis.bar([1, 2], [1, 1], color=style.RED)
        axis.text(1, 1, 'a <b> & "$x$" #0072b2', color=style.TEXT)
        return []

    with style.applied():
        picture = panels(
            "", [Panel("", 0)], draw, alt="", caption=[], legend={"ddp": style.BLUE}
        )
    return inline_svg(picture._replace(name="speedup", alt='at 2 GPUs <1.5 & "more"'))


@pytest.fixture(scope="module")
def root(element):
    return ET.fromstring(element)  # noqa: S314 - written by the test


def test_inline_svg_is_one_responsive_labelled_element(root):
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("viewBox")
    assert (root.get("width"), root.get("height")) == (None, None)
    assert "max-width: 672px" in root.get("style")  # 7 inches
    title = root.find(f"{SVG}title")
    assert title.text == 'at 2 GPUs <1.5 & "more"'
    assert root.get("aria-labelledby") == title.get("id") == "speedup-title"


def test_inline_svg_ids_have_prefix_and_are_used(root):
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    assert len(ids) == len(set(ids)) > 2
    assert all(name.startswith("speedup-") for name in ids)
    used = {node.get("href")[1:] for node in root.iter() if node.get("href")}
    used |= {
        node.get("clip-path")[5:-1] for node in root.iter() if node.get("clip-path")
    }
    assert used == {*ids} - {"speedup-title"}


def test_inline_svg_brings_no_style_sheet_and_no_metadata(element):
    for part in (
        "<?xml",
        "<!DOCTYPE",
        "<!--",
        "<style",
        "metadata",
        "http://www.w3.org/1999",
    ):
        assert part not in element


def test_inline_svg_colours_are_variables_of_the_style(element, root):
    variables = {colour.variable for colour in style.VARIABLES}
    styles = [
        text for node in root.iter() if (text := node.get("style")) and node is not root
    ]
    colours = [word for text in styles for word in text.split(": ") if "#" in word]
    assert colours
    assert all(word.startswith("var(--plot-") for word in colours)
    assert {word[4:].partition(",")[0] for word in colours} < variables
    assert "fill: var(--plot-red, #d55e00)" in element
    assert "#ffffff" not in element  # no background


def test_inline_svg_text_is_text_and_fill_is_explicit(root):
    texts = list(root.iter(f"{SVG}text"))
    assert 'a <b> & "$x$" #0072b2' in [text.text for text in texts]
    assert all("fill: var(" in text.get("style") for text in texts)
    assert all(
        "'DejaVu Sans', Verdana, Arial, sans-serif" in text.get("style")
        for text in texts
    )


def test_inline_svg_leaves_background_of_figure():
    figure = Figure()
    axis = figure.subplots()
    inline_svg(Picture("", figure, "b", "", name="a"))
    assert figure.patch.get_visible()
    assert axis.patch.get_visible()


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    dark, bright = sorted((luminance(first), luminance(second)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", style.PALETTE, ids=lambda colour: colour.variable)
def test_palette_contrast_in_both_themes_is_3_or_more(colour):
    assert contrast(colour.light, "#FFFFFF") >= 3
    assert contrast(colour.dark, style.DARK) >= 3


def test_text_contrast_in_both_themes_is_4_5_or_more():
    plain = {colour.variable: colour for colour in style.PLAIN}
    for name in ("--plot-text", "--plot-ink"):
        assert contrast(plain[name].light, "#FFFFFF") >= 4.5
        assert contrast(plain[name].dark, style.DARK) >= 4.5
    assert contrast(plain["--plot-pale"].dark, style.DARK) >= 3


def test_strategy_colours_are_fixed_and_differ():
    colours = [style.strategy_colour(name) for name in style.STRATEGY_COLOURS]
    assert len(set(colours)) == len(colours)
    assert set(style.STRATEGY_COLOURS) == set(Strategy)
    assert style.strategy_colour("zero2") == style.MIDDLE_GREY
