"""Questions as token ids: one rendering for training, for measuring and for the tests."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from transformers import Qwen2Tokenizer

from . import wording
from .items import END_WEIGHT, Question

PREFIX = f"<|im_start|>system\n{wording.SYSTEM}<|im_end|>\n<|im_start|>user\n<|vision_start|>"
NO_LETTERS = (0.0,) * 4
TAIL = "<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class Targets:
    """Rows of a question block that are scored.

    question, position: (n,) the row that predicts; token: (n,) wanted id; weight: (n,) share in the loss;
    letters: (n, 4) wanted chances of the letters where no one token is right, else zero.
    tail: (questions, T) bool, the chat template's own rows behind the user turn, up to the last prompt row.
    """

    question: Tensor
    position: Tensor
    token: Tensor
    weight: Tensor
    letters: Tensor
    tail: Tensor


class Encoder:
    """Turns questions into ids after ``<|vision_end|>``."""

    def __init__(self, tokenizer: Qwen2Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.ids = lru_cache(maxsize=50_000)(self._ids)
        self.prefix = torch.tensor(self.ids(PREFIX))
        self.vision_end = int(tokenizer.convert_tokens_to_ids("<|vision_end|>"))
        self.end = int(tokenizer.convert_tokens_to_ids("<|im_end|>"))
        self.letters = torch.tensor([self.ids(letter)[0] for letter in wording.LETTERS])
        self.digit_words = torch.tensor([self.ids(" " + name)[0] for name in wording.DIGITS])
        self.ordinal_words = torch.tensor([self.ids(" " + name)[0] for name in wording.ORDINALS])
        self.place_words = torch.tensor([self.ids(" " + name)[0] for name in ("top", "bottom", "left", "right")])

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    def prompt(self, text: str) -> tuple[int, ...]:
        """Ids from behind the image to the last prompt token."""
        return self.ids(text + TAIL)

    def text(self, ids: list[int]) -> str:
        """Text of an answer's ids, without the end of the turn."""
        return str(self._tokenizer.decode([token for token in ids if token != self.end]))

    def block(self, questions: list[Question]) -> tuple[Tensor, Targets]:
        """Ids of questions with their answers, padded on the right, and what is wanted of them."""
        sequences, rows = [], []
        for number, question in enumerate(questions):
            ids = list(self.prompt(question.text))
            for part in question.parts:
                for token in self.ids(part.text):
                    rows.append((number, len(ids) - 1, token, part.weight, part.letters or NO_LETTERS))
                    ids.append(token)
            rows.append((number, len(ids) - 1, self.end, END_WEIGHT, NO_LETTERS))
            sequences.append(ids)
        length = max(len(ids) for ids in sequences)
        padded = torch.tensor([ids + [self.end] * (length - len(ids)) for ids in sequences])
        kept = [row for row in rows if row[3] > 0]
        row, place, wanted, share, chances = (torch.tensor(column) for column in zip(*kept, strict=True))
        tail = torch.zeros(padded.shape, dtype=torch.bool)
        for number, question in enumerate(questions):
            end = len(self.prompt(question.text))
            tail[number, end - len(self.ids(TAIL)) : end] = True
        return padded, Targets(row, place, wanted, share, chances, tail)
