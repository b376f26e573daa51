"""Numbers, durations, times and shares as text for people."""

import difflib
import re
import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

MOST_DIGITS = 18
"""Digits of a number that is read from a text; Python itself refuses more than 4,300."""

LATEST_S = 1e11
"""A time after the year 5138, in seconds since 1970, is damage: calendars end in the year 9999."""

_ASCII_CONTROL = bytes({*range(32), 0x7F} - {*b"\t\n\r"})
_OTHER_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")  # U+0080 to U+009F in UTF-8


def printable(text: str) -> str:
    """Return a text without control characters, which a terminal would obey; lines and tabs stay.

    >>> printable("a\\x1b]0;title\\x07\\tb\\r\\nc\\rd")
    'a]0;title\\tb\\nc\\nd'
    """
    content = text.encode(errors="surrogatepass")
    return printable_bytes(content).decode(errors="surrogatepass")


def printable_bytes(text: bytes) -> bytes:
    """Return a text in UTF-8 as `printable` does: faster, for files of megabytes."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return _OTHER_CONTROL.sub(b"", text.translate(None, _ASCII_CONTROL))


PROGRAM = "hpml-jobs"

VERSION = "1.0.0"


def with_command(sentence: str, command: str) -> str:
    """Return a sentence and, on a line of its own, the command that it suggests.

    >>> with_command("one cell failed", "hpml-jobs logs mine")
    'one cell failed:\\nhpml-jobs logs mine'
    """
    return f"{sentence}:\n{command}"


def in_one_line(text: str) -> str:
    """Return a message without line breaks, and its commands each on a line of its own.

    >>> in_one_line("torch: \\n no kernel;  to see why:\\nhpml-jobs logs mine")
    'torch: no kernel; to see why:\\nhpml-jobs logs mine'
    """
    lines = text.splitlines()
    words = (word for line in lines if not is_command(line) for word in line.split())
    return "\n".join([" ".join(words), *filter(is_command, lines)])


def is_command(line: str) -> bool:
    """Return whether a line of a text is a command, which is printed as it is, to be copied."""
    return line.startswith(f"{PROGRAM} ")


def first_sentence(text: str) -> str:
    """Return the first line of a message, with the lines on which its sentence goes on.

    It goes on after a colon or a comma, and where the next line begins with a small letter.

    >>> first_sentence("no such layer\\nSee above")
    'no such layer'
    >>> first_sentence("\\n    a process before the\\n    end of it.\\n")
    'a process before the end of it.'
    >>> first_sentence("Error(s) in loading for Net:\\n\\n\\tMissing key: a.\\n\\tOther key: b")
    'Error(s) in loading for Net: Missing key: a.'
    """
    sentence, is_open = "", True
    for line in text.strip().splitlines():
        words = line.strip()
        announces = sentence.endswith((":", ","))
        if not (words or announces) or not (
            is_open or announces or words[:1].islower()
        ):
            break
        sentence = f"{sentence} {words}".strip()
        is_open = False
        if sentence.endswith((".", "!", "?")):
            break
    return sentence


def raised(text: str) -> str:
    """Return the exception at the end of a traceback in one line; empty without one.

    >>> raised("Traceback (most recent call last):\\n  File 'a'\\nKeyError: 'b'\\n")
    "KeyError: 'b'"
    """
    _, header, after = text.rpartition("Traceback")
    lines = after.splitlines()[1:] if header else []
    for number, line in enumerate(lines):
        if line and not line[0].isspace():
            return first_sentence("\n".join(lines[number:]))
    return ""


_LAUNCHERS = (
    r"(?:ChildFailedError|CalledProcessError|ProcessExitedException|SignalException)"
)
LAUNCHER_REPORT = re.compile(
    r"^[EW]\d{4} \S+ .*(?:failed \(exitcode|Sending process .* closing signal)[\s\S]*"
    rf"|^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*\S*{_LAUNCHERS}\b.*$",
    re.MULTILINE,
)
"""What a launcher writes because a process of its own has failed, which has said why before."""

_NO_ERROR = re.compile(r"[Ww]arning\b|WARNING|warnings\.warn\(|HYDRA_FULL_ERROR")
_FRAME = "│┃|╰╭─ "
_ANNOUNCES = re.compile(r"(?:error|exception|fatal):(?!\s*[-+.\d])", re.IGNORECASE)

LINES = 12
"""Last lines with words among which one that announces an error is sought."""


def last_error(text: str) -> str:
    """Return what a program wrote last, at the end of its log, of the error that ended it.

    >>> last_error("usage: t.py [-h]\\nt.py: error: no such option: --x\\n==========\\n")
    't.py: error: no such option: --x'
    >>> last_error("FATAL Flags parsing error:\\n  Unknown flag 'x'.\\nPass --help to see all.\\n")
    "FATAL Flags parsing error: Unknown flag 'x'."
    """
    text = LAUNCHER_REPORT.sub("", text)
    lines = [line.strip(_FRAME) for line in text.splitlines()]
    lines = [
        line
        for line in lines
        if any(map(str.isalnum, line)) and not _NO_ERROR.search(line)
    ]
    last = lines[-LINES:]
    announcing = [number for number, line in enumerate(last) if _ANNOUNCES.search(line)]
    begin = announcing[-1] if announcing else -1
    return first_sentence("\n".join(last[begin:]))


def counted(number: int, word: str, plural: str | None = None) -> str:
    """Return a number with its noun, in the plural where it is not 1.

    >>> counted(1, "cell"), counted(9_000, "cell"), counted(3, "process")
    ('1 cell', '9000 cells', '3 processes')
    """
    suffix = "es" if word.endswith("s") else "s"
    return f"{number} {word if number == 1 else plural or f'{word}{suffix}'}"


def few(names: Iterable[str], most: int = 5, separator: str = ", ") -> str:
    """Return the first names; more are counted.

    >>> few(["a", "b", "c"], 2), few(["a"])
    ('a, b and 1 more', 'a')
    """
    all_names = [*names]
    text = separator.join(all_names[:most])
    if len(all_names) > most:
        text += f" and {len(all_names) - most} more"
    return text


def listed(values: Iterable[object]) -> str:
    """Return one value or more as a list for people.

    >>> listed([1, 2, 4]), listed(["ddp"])
    ('1, 2 and 4', 'ddp')
    """
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def duration_text(seconds: float) -> str:
    """Return a duration in one or two units.

    >>> [duration_text(s) for s in (0.4, 59, 61, 3_599, 3_900, 100_000)]
    ['0 s', '59 s', '1 min', '60 min', '1 h 05 min', '1 d 3 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if seconds < 3_600:
        return f"{minutes} min"
    if seconds < 86_400:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes // 1_440} d {minutes % 1_440 // 60} h"


def hours_text(hours: float) -> str:
    """Return GPU-hours with three digits.

    >>> hours_text(0.01234), hours_text(10.5), hours_text(1234.5)
    ('0.0123', '10.5', '1,234')
    """
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def time_text(moment: float, now: float) -> str:
    """Return a Unix time in this time zone, with its day where that is not today."""
    day = "" if time.localtime(moment)[:3] == time.localtime(now)[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M", time.localtime(moment))


def iso_time(text: str) -> datetime | None:
    """Return an ISO 8601 time; None where the text is none, or damaged."""
    try:
        moment = datetime.fromisoformat(text)
        is_sound = 0 <= moment.timestamp() <= LATEST_S
    except (ValueError, OverflowError, OSError):  # a year out of range
        return None
    return moment if is_sound else None


def utc_time(text: str) -> datetime | None:
    """Return an ISO 8601 time, in UTC where it names no zone; None where the text is none."""
    moment = iso_time(text)
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def unix_time(text: str) -> float | None:
    """Return an ISO 8601 time as seconds since 1970; None where the text is none, or damaged.

    >>> unix_time("1970-01-01T00:01:00Z"), unix_time("soon"), unix_time("9999-12-31")
    (60.0, None, None)
    """
    moment = iso_time(text)
    return None if moment is None else moment.timestamp()


def whole_number(text: str) -> int | None:
    """Return the number of a text of digits; None where it is none, or none of this world.

    >>> [whole_number(text) for text in ("17", "²", "", "-1", "9" * 5000)]
    [17, None, None, None, None]
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else None


def percent_text(share: float, decimals: int = 2) -> str:
    """Return a share of 1 in percent, with its sign and so many decimals at most.

    >>> [percent_text(share) for share in (0.05, 0.1234, 0.37, 1e-12)], percent_text(0.1234, 1)
    (['5 %', '12.34 %', '37 %', '0 %'], '12.3 %')
    """
    return f"{round(100 * share, decimals):.10g} %"


class Share(float):
    """A constant share of 1, which is a percentage in texts.

    >>> f"{Share(0.05)}", 2 * Share(0.05)
    ('5 %', 0.1)
    """

    def __str__(self) -> str:
        return percent_text(self)


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the first of the names that a misspelt word is most like; None: it is like none."""
    return next(iter(alike(word, names, cutoff)), None)


def alike(word: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return the names with most letters of a word, whatever its case, of a likeness of `cutoff`.

    By the likeness itself (0 to 1, difflib's ratio) dpp would be nearer to dp than to ddp.

    >>> [alike(word, ["single", "dp", "ddp"]) for word in ("DDP", "dpp", "x")]
    [['ddp'], ['dp', 'ddp'], []]
    """
    shares = {}
    for name in names:
        matcher = difflib.SequenceMatcher(None, name.lower(), word.lower())
        if matcher.ratio() >= cutoff:
            common = sum(block.size for block in matcher.get_matching_blocks())
            shares[name] = common / max(len(word), len(name))
    most = max(shares.values(), default=0)
    return [name for name, share in shares.items() if share == most]


def did_you_mean(names: Iterable[str]) -> str:
    """Return a guess as the end of a message, `; did you mean dp or ddp?`; of no names, nothing."""
    guess = " or ".join(names)
    return f"; did you mean {guess}?" if guess else ""


def one_of(word: str, choices: Collection[str]) -> str:
    """Return what to write instead of a word that is none of the choices.

    Of two choices none is guessed: device=gpu is not cpu.

    >>> one_of("ddq", ["single", "ddp", "fsdp"]), one_of("gpu", ["cuda", "cpu"])
    ('choose one of single, ddp, fsdp; did you mean ddp?', 'choose one of cuda, cpu')
    """
    return (
        f"choose one of {', '.join(choices)}"
        f"{did_you_mean(alike(word, choices)) * (len(choices) > 2)}"
    )


_NUMBER = re.compile(r"([0-9]+[.][0-9]+(?![.0-9])|[0-9]+)")

NaturalKey = tuple[tuple[float | str, ...], str]


def natural_key(text: str) -> NaturalKey:
    """Return the key to sort a text by, in which numbers count by their size.

    >>> sorted(["buckets of 100 MB", "buckets of 25 MB", "width 64"], key=natural_key)
    ['buckets of 25 MB', 'buckets of 100 MB', 'width 64']
    >>> sorted(["0.1", "0.003", "2.14.1", "2.7.1"], key=natural_key)
    ['0.003', '0.1', '2.7.1', '2.14.1']
    """
    words = _NUMBER.split(text)  # every second one is a number
    return tuple(float(word) if n % 2 else word for n, word in enumerate(words)), text


def ranges_text(numbers: Iterable[int]) -> str:
    """Return ascending numbers in short.

    >>> ranges_text([0, 2, 3, 4, 7])
    '0, 2-4, 7'
    """
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ", ".join(
        f"{first}-{last}" if last > first else str(first) for first, last in ranges
    )
