"""The colours of pictures and their contrast, and a picture in an HTML page."""

import pytest

from hpml_jobs.report.frame import picture


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    dark, bright = sorted((luminance(first), luminance(second)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", picture.COLOURS)
def test_palette_contrast_is_3_or_more(colour):
    assert contrast(colour, picture.PAPER) >= 3
