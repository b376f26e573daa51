"""Reader of the keys, default values and comments of the configs in conf/, without a YAML parser.

`--help` and shell completion use it: they must answer at once, and importing Hydra takes longer
than everything else that they do.
"""

import re
from typing import NamedTuple

_KEY_LINE = re.compile(r"( *)(\w+):(.*)")
_SECTION = "# ----"
_OF_HYDRA = ("defaults", "hydra")


class KeyDoc(NamedTuple):
    """A key of a config: the section that it is listed in, its dotted name, value and comment."""

    section: str
    key: str
    value: str
    comment: str


def keys(text: str) -> list[KeyDoc]:
    """Return the keys of a config of ours, which nest at most two deep, in their order.

    `defaults` and `hydra`, which only Hydra reads, are left out, and so is the comment of a key
    that has keys below it.

    >>> keys("# ---- study: its keys ----\\ndata:\\n  limit: null  # use N images, none: all\\n")
    [KeyDoc(section='study', key='data.limit', value='null', comment='use N images, none: all')]
    """
    docs = []
    section = parent = ""
    for line in text.splitlines():
        if line.startswith(_SECTION):
            section = line.strip("# -").partition(":")[0]
        elif match := _KEY_LINE.match(line):
            indent, name, rest = match.groups()
            value, _, comment = rest.partition(" #")
            if not indent:
                parent = "" if value.strip() else name
            if value.strip() and name not in _OF_HYDRA and parent not in _OF_HYDRA:
                key = f"{parent}.{name}" if indent else name
                docs.append(KeyDoc(section, key, value.strip(), comment.strip()))
    return docs


def description(text: str) -> str:
    """Return the comment in the first line of a config; empty if there is none.

    >>> description("# any SLURM cluster\\nname: slurm\\n")
    'any SLURM cluster'
    """
    first = text.partition("\n")[0]
    return first.strip("# ") if first.startswith("#") else ""
