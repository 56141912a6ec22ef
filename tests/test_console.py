"""What a person sees of a command."""

import logging
import unicodedata

import pandas as pd
import pytest
from rich.cells import cell_len

from newfound import console

SUMMARY = pd.DataFrame(
    {
        "number": [1, 2],
        "class": ["new-1", "Seestern :dog: [red] 海星"],
        "kind": ["new", "known"],
        "size": [120, 30],
        "unsure": [3, 4],
        "coherence": [0.93451, 0.5],
        "nearest": ["Seestern", "new-1"],
        "exemplar": ["dive7/long/path/IMG_20211201.jpg", "a.png"],
    }
)


def printed(capsys, monkeypatch, columns, rows=SUMMARY):
    monkeypatch.setenv("COLUMNS", str(columns))
    console.table(rows, "title")
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_table_fits_the_screen_and_no_word_is_broken_but_a_path(capsys, monkeypatch, columns):
    said = printed(capsys, monkeypatch, columns)
    assert max(map(cell_len, said.splitlines())) <= columns
    assert all(word in said for word in ("coherence", "unsure", "Seestern", "0.935", ":dog:", "[red]", "海星"))


def test_where_a_table_cannot_fit_nothing_is_cut_off(capsys, monkeypatch):
    said = printed(capsys, monkeypatch, 40)
    assert all(word in said for word in [*SUMMARY.columns, "Seestern"])


def test_the_first_column_stands_on_one_line_and_a_table_without_rows_has_its_head(capsys, monkeypatch):
    long = "pairs+spacing:aligned and more than twelve letters"
    assert long in printed(capsys, monkeypatch, 60, pd.DataFrame({"method": [long], "paper": ["a word " * 20]}))
    assert "coherence" in printed(capsys, monkeypatch, 80, SUMMARY[:0])


LONG = {
    "a script without spaces": "美麗的長名字動物園裡的大熊貓和小貓熊以及其他的動物們在一起生活的地方" * 2,
    "one word": "Strongylocentrotus_purpuratus_juvenile_from_the_third_dive_at_station_seven_of_the_cruise",
    "bytes that are no text": "\udcff" * 40,
}


@pytest.mark.parametrize("kind", LONG)
def test_a_name_as_long_as_a_line_goes_on_in_its_cell_and_the_table_fits(capsys, monkeypatch, kind):
    monkeypatch.setenv("COLUMNS", "80")
    rows = SUMMARY.assign(**{"class": pd.Series([LONG[kind]] * 2, dtype=object)})
    console.table(rows, "title", names=("class", "nearest"), spare=("exemplar", "nearest", "coherence"))
    said = capsys.readouterr().out
    assert max(map(cell_len, said.splitlines())) <= 80
    cells = [line.split("│")[2].strip() for line in said.splitlines() if line.count("│") > 2]
    assert "".join(cells) == 2 * console.printable(LONG[kind]), "nothing of it is lost"
    assert "known" in said


STEERING = (
    *("\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\r", "\n", "\t", "\x00", "\x08", "\x7f", "\x85"),
    *("\u2028", "\u202e", "\u2067", "\u200f", "\u061c", "\udcff"),
)
"""What would colour, move or turn what a terminal shows, or cannot be written."""


def raw(text):
    """The signs in a text that steer, but for ends of lines."""
    return {sign for sign in text if sign != "\n" and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


@pytest.mark.parametrize("sign", STEERING, ids=ascii)
def test_no_name_steers_the_terminal(capsys, monkeypatch, sign):
    monkeypatch.setattr(logging.getLogger("newfound"), "propagate", False)  # the test runner can send no half of a sign
    name = f"a{sign}b"
    console.say(name)
    said = capsys.readouterr().out
    assert said == f"a{ascii(sign)[1:-1]}b\n"
    shown = printed(capsys, monkeypatch, 80, pd.DataFrame({"class": pd.Series([name], dtype=object), "size": [1]}))
    assert not raw(shown)
    assert len(shown.splitlines()) == 6, "a name ends no line"
    with console.show_progress():
        logging.getLogger("newfound").info(f"Seen: {name}")
    assert not raw(capsys.readouterr().err)


def test_names_of_all_the_world_are_printed_as_they_are():
    for name in (
        "Καβούρι 蟹 🦀",
        "é e\u0301",
        "شقائق\u200cالنعمان",
        "👨\u200d👩\u200d👧",
        "full\u3000width",
        "a\xa0b",
        "\\n",
    ):
        assert console.printable(name) == name


def test_of_several_processes_the_first_talks(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    console.say("a line")
    assert printed(capsys, monkeypatch, 80) == ""
    monkeypatch.setenv("RANK", "0")
    console.say("a line")
    assert capsys.readouterr().out == "a line\n"


@pytest.mark.parametrize(("columns", "left"), [(200, {"exemplar", "nearest"}), (90, {"nearest"}), (80, set())])
def test_columns_are_left_out_before_a_name_is_broken(capsys, monkeypatch, columns, left):
    rows = SUMMARY.assign(**{"class": "Strongylocentrotus", "nearest": "Echinocardium"})
    monkeypatch.setenv("COLUMNS", str(columns))
    spare = ("exemplar", "nearest", "coherence")
    console.table(rows, "title", names=("class", "nearest", "exemplar"), spare=spare)
    said = capsys.readouterr().out
    assert max(map(cell_len, said.splitlines())) <= columns
    assert all(word in said for word in ("Strongylocentrotus", "size", "kind", "120"))
    assert {column for column in ("exemplar", "nearest") if column in said} == left
    assert ("Echinocardium" in said) == ("nearest" in left)
    assert ("dive7/long/path/IMG_20211201.jpg" in said) == ("exemplar" in left)


def test_a_progress_with_a_title_tells_the_same_of_every_stage_under_it():
    told = []
    progress = console.retitle(lambda *said: told.append(said), "seed 0")
    progress("learn", 3, {"epoch": 1.0})
    progress("find", 5, {"epoch": 2.0})
    assert told == [("seed 0", 3, {"epoch": 1.0}), ("seed 0", 5, {"epoch": 2.0})]


def test_a_stage_that_comes_again_with_more_to_do_has_a_bar_as_long(capsys):
    with console.show_progress() as progress:
        for number in (3, 5):
            progress("look", number, {"epoch": float(number)})
    assert "5/5" in capsys.readouterr().err
