"""What near-duplicates are measured by: which originals are one picture, told by all their pixels."""

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scripts.choose_duplicates import MOVED, SHADE, SHARP, show_one_picture


def drawing(across=0, shade=100, side=SHARP + 12, stroke=False):
    image = Image.new("RGB", (side, side), "white")
    pen = ImageDraw.Draw(image)
    pen.ellipse((14 + across, 12, 40 + across, 38), fill=(shade, shade, shade))
    if stroke:
        pen.line((5, 50, 20, 50), fill="black")
    return image


ONE = {
    "itself": drawing(),
    "moved": drawing(across=MOVED),
    "of another shade": drawing(shade=100 + SHADE),
    "sharpened at its outline": drawing().resize((59, 59)).resize((60, 60)),
}
OTHERS = {
    "moved far": drawing(across=MOVED + 2),
    "of another colour": drawing(shade=101 + SHADE),
    "with a stroke more": drawing(stroke=True),
    "larger": drawing(side=SHARP + 13),
}


@pytest.mark.parametrize(("kind", "same"), [*((kind, True) for kind in ONE), *((kind, False) for kind in OTHERS)])
def test_originals_are_one_picture_where_no_pixel_says_otherwise(kind, same):
    other = (ONE | OTHERS)[kind]
    assert show_one_picture(drawing(), other) == show_one_picture(other, drawing()) == same


def test_of_pictures_that_are_smaller_a_pixel_is_too_much_to_forgive():
    small = Image.fromarray(np.zeros((SHARP - 1, SHARP - 1, 3), np.uint8))
    assert not show_one_picture(small, small)
