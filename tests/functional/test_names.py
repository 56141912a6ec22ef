"""Names that are counted."""

import itertools

import pytest

from newfound.functional.names import count_names, is_counted


def test_names_are_counted_from_one_and_pass_over_those_that_are_taken():
    assert [*itertools.islice(count_names({"new-1", "new-3", "cat"}), 3)] == ["new-2", "new-4", "new-5"]


@pytest.mark.parametrize(
    ("name", "counted"), [("new-1", True), ("new-12", True), ("new-england aster", False), ("a new-1", False)]
)
def test_a_name_that_somebody_chose_is_told_from_one_that_was_counted(name, counted):
    assert is_counted(name) == counted
