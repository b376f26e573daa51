"""The colours of pictures and their contrast, and a picture in an HTML page."""

import xml.etree.ElementTree as ET
from base64 import b64decode

import pytest
from matplotlib.figure import Figure

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.picture import Picture, svg_address


def test_picture_of_a_page_is_svg_whose_text_is_text():
    with style.applied():
        figure = Figure()
        figure.text(0, 0, 'a <b> & "$x$"')
        before = figure.dpi
        kind, _, content = svg_address(Picture("", figure, "", "")).partition(",")
    root = ET.fromstring(b64decode(content))  # noqa: S314 - written by the test
    assert kind == "data:image/svg+xml;base64"
    assert 'a <b> & "$x$"' in [
        text.text for text in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    assert figure.dpi == before


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    dark, bright = sorted((luminance(first), luminance(second)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", style.COLOURS)
def test_palette_contrast_is_3_or_more(colour):
    assert contrast(colour, style.PAPER) >= 3


def test_text_contrast_is_4_5_or_more():
    assert contrast(style.TEXT, style.PAPER) >= 4.5
    assert contrast(style.GREY, style.PAPER) >= 4.5


def test_strategy_colours_are_fixed_and_differ():
    colours = [style.strategy_colour(name) for name in style.STRATEGY_COLOURS]
    assert len(set(colours)) == len(colours)
    assert set(style.STRATEGY_COLOURS) == set(Strategy)
    assert style.strategy_colour("zero2") == style.MIDDLE_GREY
