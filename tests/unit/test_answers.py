"""Letters, numbers, yes/no and option texts, as tables of what models write."""

import pytest

from harness_heads.answers import match_option, normalised, parse_choice, parse_letter, parse_number, parse_yes_no

ABCD = ("A", "B", "C", "D")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("**B**", "B"),
        ("Ｂ", "B"),
        (" B\n", "B"),
        ("B. car", "B"),
        ("b) car", "B"),
        ("(c) a car", "C"),
        ("The answer is B because a car moves.", "B"),
        ("The answer is (C)", "C"),
        ("Answer: D", "D"),
        ("The correct answer is option D.", "D"),
        ("not A, it is C", "C"),
        ("It isn't B but D", "D"),
        ("I think it is C", "C"),
        ("A car is shown, so the answer is B", "B"),
        ("A", "A"),
        ("The answer is A because it is red", "A"),
        ("<think>maybe A or B</think>C", "C"),
        ("it could be A</think>\nD", "D"),
        ("<|begin_of_box|>B<|end_of_box|>", "B"),
        ("$\\boxed{C}$", "C"),
        ("```\nB\n```", "B"),
        ("B<|im_end|>", "B"),
        ("Let us see.\nFirst A or B?\nC", None),
        ("", None),
        (None, None),
        ("A car", None),
        ("a car", None),
        ("A or B", None),
        ("E", None),
        ("Both B and C", None),
        ("none of them", None),
        ("The answer is a car", None),
    ],
)
def test_letter(text, letter):
    assert parse_letter(text, ABCD) == letter


def test_only_offered_letters_count():
    assert parse_letter("E", (*ABCD, "E")) == "E"
    assert parse_letter("C", ("A", "B")) is None
    assert parse_letter("B", ()) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        ("There are 10 headsets.", 10),
        ("three", 3),
        ("Twelve people", 12),
        ("1,234", 1234),
        ("-5", -5),
        ("2.50", 2.5),
        ("2 + 1 = 3", 3),
        ("I see 2 on the left and 3 on the right, the answer is 5", 5),
        ("one of the three is red", 3),
        ("3 or 4", None),
        ("", None),
        (None, None),
        ("many", None),
    ],
)
def test_number(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Yes", True),
        ("True.", True),
        ("**No**", False),
        ("Incorrect, Region [0] is not smaller", False),
        ("No, the left one is right", False),
        ("", None),
        ("perhaps", None),
    ],
)
def test_yes_no(text, value):
    assert parse_yes_no(text) is value


@pytest.mark.parametrize(
    ("text", "options", "index"),
    [
        ("tiger cat", ("cat", "tiger cat", "dog"), 1),
        ("It is a tiger cat.", ("cat", "tiger cat", "dog"), 1),
        ("cat and dog", ("cat", "tiger cat", "dog"), None),
        ("NAÏVE", ("naïve", "naive"), 0),
        ("cafe\u0301", ("caf\u00e9", "tea"), 0),
        ("猫", ("犬", "猫"), 1),
        ("the Red one", ("red one", "blue one"), 0),
        ("red", ("red", "Red"), None),
        ("", ("", "x"), None),
        ("category", ("cat", "dog"), None),
        ("C++", ("C++", "C"), 0),
    ],
)
def test_option_text(text, options, index):
    assert match_option(text, options) == index


def test_choice_prefers_an_exact_text_but_not_over_a_bare_letter():
    assert parse_choice("3", ABCD, ("1", "2", "3", "4")) == "C"
    assert parse_choice("B", ABCD, ("B", "C", "D", "A")) == "B"
    assert parse_choice("B) 2", ABCD, ("1", "2", "3", "4")) == "B"
    assert parse_choice("It shows two", ABCD, ("one", "two", "three", "four")) == "B"
    assert parse_choice("I cannot tell", ABCD, ("one", "two", "three", "four")) is None


def test_normalised_keeps_a_lone_article():
    assert normalised("A") == "a"
    assert normalised(" The  Dog. ") == "dog"
