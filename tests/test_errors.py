"""What a person is told."""

import pytest

from newfound.errors import InputError, choices

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
