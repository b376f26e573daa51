"""Entries of `hpml-jobs help WORD`: a key of a study, or a word that is a value of one."""

import csv
import shlex
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.cli.help import GROUPS, Folders, KeyDoc, all_keys, description, files_of
from hpml_jobs.core import errors
from hpml_jobs.core.strategies import TRAFFIC
from hpml_jobs.core.text import PROGRAM
from hpml_jobs.plan.key_types import (
    choices_of,
    leaf_of,
    type_of,
    type_words,
    words_of_type,
)
from hpml_jobs.plan.keys import OTHER_WORDS

OWN_CODE = "workload=custom workload.model=mine:build workload.data=mine:data"
OWN_SCRIPT = "script=train.py batch=64 args='--batch-size {batch}'"


@cache
def examples() -> dict[str, str]:
    """Return the words of examples of keys, and of values that are refused or of no use alone.

    Without one here, a key has its first value that is not the default.
    """
    with Path(__file__).with_name("examples.csv").open(newline="") as file:
        return {row["word"]: row["example"] for row in csv.DictReader(file)}


TOGETHER = {
    "strategy": "gpus=2",
    "launcher": OWN_SCRIPT,
    "sync_buffers": "gpus=2",
    "workload.unit": OWN_CODE,
}
"""What the example of a value of a key has before it."""

ALL_KEYS_PAGE = "docs/commands.md#keys-of-a-study"

SWITCH = ["true", "false"]

MUST_BE_GIVEN = "???"
"""The default, in Hydra's words, of a key that has none."""

WORD_WIDTH = 20


class Choice(NamedTuple):
    """A word that a key accepts, with what it means; empty: the comment of the key says it."""

    word: str
    meaning: str = ""


class Entries:
    """Every key, its choices and their entries."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.docs = all_keys(folders)

    def words(self) -> set[str]:
        """Return every word that has an entry."""
        words = {doc.key for doc in self.docs.values()}
        words |= {leaf_of(key) for key in self.docs}
        for key in self.docs:
            words |= {choice.word for choice in self._choices(key)}
        return words - {*SWITCH}

    def entry(self, word: str) -> str:
        """Return the entries of a word, each after a blank line; empty if it has none.

        The word is a key, the last part of one, a value, or a key with a value.
        """
        key, _, value = word.partition("=")
        if value in SWITCH:
            value = ""
        keys = self._keys_of(key)
        parts = [
            self._value(name, choice) for name, choice in self._matches(keys, value)
        ]
        if not parts:
            parts = [self._key(self.docs[name]) for name in keys]
        if word not in SWITCH:
            others = self._matches(self.docs, word)
            parts += [self._value(name, choice) for name, choice in others]
        return "\n".join(parts)

    def pairs(self, word: str) -> list[str]:
        """Return each key that has a word as a value, with it."""
        if word in SWITCH:
            return []
        return [
            f"{key}={choice.word}" for key, choice in self._matches(self.docs, word)
        ]

    def _keys_of(self, word: str) -> list[str]:
        """Return the key of this name, else those that end so, those below it, or its synonym."""
        for name in (word, _singular(word)):
            if name in self.docs:
                return [name]
            ends = [key for key in self.docs if leaf_of(key) == name]
            if ends:
                return ends
        below = [key for key in self.docs if f".{word}." in f".{key}"]
        synonyms = [OTHER_WORDS[word]] if word in OTHER_WORDS else []
        return below or synonyms

    def _matches(self, keys: Iterable[str], word: str) -> Iterator[tuple[str, Choice]]:
        """Yield the keys that have a word among their choices, with that choice."""
        for key in keys:
            for choice in self._choices(key):
                if choice.word == word:
                    yield key, choice

    def _choices(self, key: str) -> list[Choice]:
        if key in GROUPS:
            files = files_of(key, self.folders)
            return [
                Choice(name, description(file.read_text()))
                for name, file in files.items()
            ]
        if key == "strategy":
            return [Choice(word, traffic.meaning) for word, traffic in TRAFFIC.items()]
        return [Choice(word) for word in choices_of(key)]

    def _key(self, doc: KeyDoc) -> str:
        """Return the entry of a key."""
        rows = [
            ("meaning", doc.comment),
            ("type", _type(doc.key)),
            ("default", _default(doc)),
            *self._value_rows(doc.key),
            ("example", f"{PROGRAM} plan {self._example(doc)}"),
            ("more", doc.page or ALL_KEYS_PAGE),
        ]
        return _table(doc.key, rows)

    def _value_rows(self, key: str) -> Iterator[tuple[str, str]]:
        choices = self._choices(key)
        name = "values"
        if [choice.word for choice in choices] == SWITCH:  # the type says them
            return
        if not any(choice.meaning for choice in choices):
            words = " ".join(choice.word for choice in choices)
            choices = [Choice(words)] if words else []
        for choice in choices:
            yield name, f"{choice.word:{WORD_WIDTH}} {choice.meaning}".rstrip()
            name = ""

    def _value(self, key: str, choice: Choice) -> str:
        """Return the entry of a value of a key."""
        doc = self.docs[key]
        pair = f"{key}={choice.word}"
        words = examples().get(pair) or f"{TOGETHER.get(key, '')} {pair}".strip()
        rows = [
            ("meaning", choice.meaning or doc.comment),
            ("example", f"{PROGRAM} plan {words}"),
            ("more", f"{doc.page or ALL_KEYS_PAGE}; {PROGRAM} help {key}"),
        ]
        return _table(pair, rows)

    def _example(self, doc: KeyDoc) -> str:
        """Return the words of a submission with a key: with another value than the default."""
        if doc.key in examples():
            return examples()[doc.key]
        others = [
            choice.word for choice in self._choices(doc.key) if choice.word != doc.value
        ]
        value = others[0] if others else errors.EXAMPLES.get(doc.key, doc.value)
        return shlex.quote(f"{doc.key}={value}")


def _default(doc: KeyDoc) -> str:
    """Return the default of a key; of one of a group, with the choice that has this default."""
    value = "none: it must be given" if doc.value == MUST_BE_GIVEN else doc.value
    return f"{value} (with {doc.section})" if "=" in doc.section else value


def _type(key: str) -> str:
    """Return the type of a key in words.

    >>> _type("gpus"), _type("epochs"), _type("strategy"), _type("workload.loss")
    ('a whole number', 'a whole number, or null', 'one of the values', 'a word')
    """
    if key in GROUPS or words_of_type(key):
        words = "one of the values"
    else:
        words = type_words(key).rstrip(",")
    may_be_null = type(None) in typing.get_args(type_of(key))
    return f"{words}, or null" if may_be_null else words


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"  {name:9} {text}".rstrip() for name, text in rows]
    return "\n".join([title, *lines, ""])


def _singular(word: str) -> str:
    """Return a noun without its plural ending: `strategies` is asked for, too.

    >>> _singular("strategies"), _singular("recipes")
    ('strategy', 'recipe')
    """
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")
