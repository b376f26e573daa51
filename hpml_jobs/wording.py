"""How numbers are said."""


def counted(number: int, word: str) -> str:
    """A number with its word.

    >>> counted(1, "cell"), counted(9, "cell")
    ('1 cell', '9 cells')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"
