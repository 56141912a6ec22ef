"""Curves for print."""

import numpy as np

from newfound.report.curves import Curve, draw_curves
from newfound.report.drawings import save

PANELS = [
    ("a pile", [Curve("reviewed", [0, 10], [0.2, 0.9]), Curve("reviewed", [0, 20], [0.1, 1.0])]),
    ("another", [Curve("one by one", [0, 1000], [0.0, 1.0])]),
]


def test_every_curve_is_drawn_in_per_cent_and_every_name_told_once():
    figure = draw_curves(PANELS, "actions", 0.95)
    first, second = figure.axes
    lines = [line for line in first.get_lines() if line.get_label() == "reviewed"]
    assert [line.get_ydata().tolist() for line in lines] == [[20, 90], [10, 100]]
    assert [line.get_xdata().tolist() for line in lines] == [[0, 10], [0, 20]]
    assert [first.get_title(), second.get_title()] == ["a pile", "another"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["reviewed", "one by one"]
    for axis in figure.axes:
        assert any(np.allclose(line.get_ydata(), 95) for line in axis.get_lines())  # the goal


def test_without_a_goal_there_is_no_line_for_it():
    first, second = draw_curves(PANELS, "actions").axes
    assert (len(first.get_lines()), len(second.get_lines())) == (2, 1)


def test_ways_are_told_apart_without_colours():
    lines = [line for axis in draw_curves(PANELS, "actions", 0.95).axes for line in axis.get_lines()]
    styles = {
        line.get_label(): line.get_linestyle() for line in lines if line.get_label() in ("reviewed", "one by one")
    }
    assert len({*styles.values()}) == 2


def test_equal_curves_give_equal_files(tmp_path):
    one, two = (save(draw_curves(PANELS, "actions", 0.95), tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
