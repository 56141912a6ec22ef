"""What a person is told."""

import pytest

from newfound.errors import InputError, choices, sized

WORDS = ("two-stage", "single-stage", "cifar10", "cifar100")


@pytest.mark.parametrize(
    ("word", "near"), [("two-stages", "two-stage"), ("cifar-10", "cifar10"), ("single", "single-stage")]
)
def test_all_words_are_listed_in_order_and_the_nearest_is_named(word, near):
    said = choices(word, WORDS)
    assert said.startswith("There are: two-stage, single-stage, cifar10, cifar100.")
    assert said.endswith(f" Did you mean {near}?")


def test_a_word_far_from_all_gets_no_guess():
    assert choices("elephant", WORDS) == "There are: two-stage, single-stage, cifar10, cifar100."


def test_what_is_no_word_at_all_is_answered_too():
    assert choices(None, {"a": 1, "b": 2}) == "There are: a, b."


def test_an_input_error_is_a_value_error():
    assert issubclass(InputError, ValueError)


def test_a_number_of_bytes_is_told_in_the_unit_that_people_read_it_in():
    assert [sized(size) for size in (0, 1, 1023, 1024, 1536 * 2**10, 2**40)] == [
        "0 bytes",
        "1 byte",
        "1023 bytes",
        "1.0 KiB",
        "1.5 MiB",
        "1024.0 GiB",
    ]
