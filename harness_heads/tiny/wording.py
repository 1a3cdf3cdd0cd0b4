"""The words of every question that the embedded model knows. Plain strings, no imports."""

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
CELLS = ("top left", "top right", "bottom left", "bottom right")
LETTERS = ("A", "B", "C", "D")
SYSTEM = "You are a helpful assistant."

SINGLE = "Which digit is shown?"
MARKED = "Which digit is in the marked cell?"


def mcq(question: str, options: tuple[str, str, str, str]) -> str:
    """A question with four lettered options, one a line; the answer is the letter alone."""
    lines = (f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True))
    return "\n".join((question, *lines))


def text_solvable(digit: int) -> str:
    """A question that the options alone answer."""
    return f"Which option is the word {DIGITS[digit]}?"


def named_cell(cell: int) -> str:
    """The digit in a cell of the grid, by the cell's name."""
    return f"Which digit is in the {CELLS[cell]} cell?"


def find_cell(digit: int) -> str:
    """The cell of the grid that shows a digit; the options are the cells' names."""
    return f"Which cell shows the digit {DIGITS[digit]}?"


def referring(digit: int) -> str:
    """The panel of the strip that shows a digit; the answer is an ordinal."""
    return f"Which panel shows the digit {DIGITS[digit]}?"


def ordinal(panel: int) -> str:
    """The digit in a panel of the strip; the answer is the digit's word."""
    return f"Which digit is in the {ORDINALS[panel]} panel?"


def locate(digit: int) -> str:
    """The box of a digit's cell, in Qwen3-VL's JSON form."""
    return f"Locate the digit {DIGITS[digit]} in this image and output the bbox coordinates in JSON format."


def box_answer(x1: int, y1: int, x2: int, y2: int) -> str:
    """A box in thousandths of the image's width and height, as the model writes it."""
    return f'[{{"bbox_2d": [{x1}, {y1}, {x2}, {y2}]}}]'


def span_of(question: str, phrase: str) -> tuple[int, int]:
    """Character offsets (start, end) of a phrase in a question.

    Raises:
        ValueError: The phrase is not in the question.
    """
    start = question.find(phrase)
    if start < 0:
        raise ValueError(f"{phrase!r} is not part of {question!r}")
    return start, start + len(phrase)


def referring_span(digit: int) -> tuple[int, int]:
    """Character offsets of the referring phrase, "the digit seven", in ``referring(digit)``."""
    return span_of(referring(digit), f"the digit {DIGITS[digit]}")


def ordinal_span(panel: int) -> tuple[int, int]:
    """Character offsets of the phrase "the third panel" in ``ordinal(panel)``."""
    return span_of(ordinal(panel), f"the {ORDINALS[panel]} panel")
