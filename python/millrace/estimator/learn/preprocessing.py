"""Turns texts into rows of numbers."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import numpy as np

from millrace.core.export import export
from millrace.io import gfile

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+")


@export(v1="contrib.learn.preprocessing.tokenizer")
def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """The words of each text."""
    for text in iterator:
        yield _WORD.findall(text)


@export(v1="contrib.learn.preprocessing.ByteProcessor")
class ByteProcessor:
    """Turns each text into its bytes in UTF-8, `max_document_length` of them, padded with 0."""

    def __init__(self, max_document_length: int):
        self.max_document_length = max_document_length

    def fit(self, x: Any) -> "ByteProcessor":
        """Nothing is learnt."""
        del x
        return self

    def fit_transform(self, x: Iterable[Any]) -> Iterator[np.ndarray]:
        """As `transform`."""
        return self.transform(x)

    def transform(self, x: Iterable[Any]) -> Iterator[np.ndarray]:
        """An array of uint8 for each text."""
        for document in x:
            data = document if isinstance(document, bytes) else str(document).encode()
            row = np.zeros(self.max_document_length, np.uint8)
            data = data[: self.max_document_length]
            row[: len(data)] = np.frombuffer(data, np.uint8)
            yield row

    def reverse(self, x: Iterable[Any]) -> Iterator[str]:
        """The texts of rows."""
        for row in x:
            yield bytes(bytearray(int(b) for b in row if b)).decode("utf-8", errors="ignore")


@export(v1="contrib.learn.preprocessing.CategoricalVocabulary")
class CategoricalVocabulary:
    """Numbers for words; 0 is for all that are not known.

    Args:
      unknown_token: what `reverse` gives for 0.
      support_reverse: whether `reverse` can be used.
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True):
        self._unknown_token = unknown_token
        self._support_reverse = support_reverse
        self._words: list[Any] = [unknown_token]
        self._numbers: dict[Any, int] = {unknown_token: 0}
        self._counts: Counter[Any] = Counter()
        self._frozen = False

    def __len__(self) -> int:
        return len(self._words)

    def freeze(self, freeze: bool = True) -> None:
        """Words met from now on get no numbers."""
        self._frozen = freeze

    def get(self, category: Any) -> int:
        """The number of a word, which gets one unless the vocabulary is frozen."""
        if category not in self._numbers:
            if self._frozen:
                return 0
            self._numbers[category] = len(self._words)
            self._words.append(category)
        return self._numbers[category]

    def add(self, category: Any, count: int = 1) -> None:
        """Counts a word `count` times."""
        number = self.get(category)
        if number > 0:
            self._counts[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Drops words counted at most `min_frequency` or at least `max_frequency` times.

        The others get new numbers, the most frequent the smallest.
        """
        kept = [
            word
            for word, count in sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
            if count > min_frequency and (max_frequency <= 0 or count < max_frequency)
        ]
        self._words = [self._unknown_token, *kept]
        self._numbers = {word: number for number, word in enumerate(self._words)}
        self._counts = Counter({word: self._counts[word] for word in kept})

    def reverse(self, class_id: int) -> Any:
        """The word of a number."""
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support "
                             "reverse() function.")  # fmt: skip
        return self._words[class_id]


@export(v1="contrib.learn.preprocessing.VocabularyProcessor")
class VocabularyProcessor:
    """Turns each text into the numbers of its words, padded with 0.

    Args:
      max_document_length: how many words of a text are taken.
      min_frequency: words counted at most so often are not known; 0 keeps all.
      vocabulary: a `CategoricalVocabulary`; otherwise it is learnt.
      tokenizer_fn: turns texts into lists of words; `tokenizer` otherwise.
    """

    def __init__(
        self, max_document_length: int, min_frequency: int = 0, vocabulary: Any = None,
        tokenizer_fn: Callable[[Iterable[str]], Iterator[list[str]]] | None = None,
    ):  # fmt: skip
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> "VocabularyProcessor":
        """Learns the words of the texts."""
        del unused_y
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(
        self, raw_documents: Iterable[str], unused_y: Any = None
    ) -> Iterator[np.ndarray]:
        """Learns the words of the texts, and gives their numbers."""
        self.fit(raw_documents, unused_y)
        return self.transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray]:
        """An array of int64 for each text."""
        for words in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            for i, word in enumerate(words[: self.max_document_length]):
                row[i] = self.vocabulary_.get(word)
            yield row

    def reverse(self, documents: Iterable[Any]) -> Iterator[str]:
        """The words of rows of numbers."""
        for row in documents:
            yield " ".join(self.vocabulary_.reverse(int(number)) for number in row)

    def save(self, filename: Any) -> None:
        """Writes vocabulary and arguments, but for the tokenizer, to a file."""
        words = self.vocabulary_
        state = {
            "max_document_length": self.max_document_length, "min_frequency": self.min_frequency,
            "words": words._words, "counts": dict(words._counts), "frozen": words._frozen,
        }  # fmt: skip
        with gfile.GFile(filename, "w") as file:
            file.write(json.dumps(state))

    @classmethod
    def restore(cls, filename: Any, tokenizer_fn: Any = None) -> "VocabularyProcessor":
        """What `save` wrote; ValueError for another file."""
        with gfile.GFile(filename) as file:
            text = file.read()
        try:
            state = json.loads(text)
            words, counts = [str(word) for word in state["words"]], state["counts"]
            vocabulary = CategoricalVocabulary(words[0])
            vocabulary._words = words
            vocabulary._numbers = {word: number for number, word in enumerate(words)}
            vocabulary._counts = Counter({str(word): int(n) for word, n in counts.items()})
            vocabulary.freeze(bool(state["frozen"]))
            sizes = int(state["max_document_length"]), int(state["min_frequency"])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{filename} is no saved VocabularyProcessor: {error!r}") from None
        return cls(*sizes, vocabulary, tokenizer_fn)
