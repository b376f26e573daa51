"""The pages of `hpml-jobs --help` and `hpml-jobs help TOPIC`."""

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.cli.commands import Command, HelpSection
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.text import PROGRAM, nearest

_KEY_LINE = re.compile(r"( *)(\w+):(.*)")
_GROUP_LINE = re.compile(r" *- (\w+): (\w+) *#(.*)")
_PAGE = re.compile(r" *\((docs/[^)]*)\)")
_SECTION = "# ----"
_OF_HYDRA = ("defaults", "hydra")


class KeyDoc(NamedTuple):
    """A key of a config: the section that it is listed in, its dotted name, value and comment.

    `page` is where docs/ say more: the page in the comment, else that in the section's heading.
    """

    section: str
    key: str
    value: str
    comment: str
    page: str = ""


def keys(text: str) -> list[KeyDoc]:
    """Return the keys of a config of ours, which nest at most two deep, in their order.

    `defaults` and `hydra`, which only Hydra reads, are left out, and so is the comment of a key
    that has keys below it.

    >>> keys("# ---- study: its keys ----\\ndata:\\n  limit: null  # use N, none: all\\n")[0][1:]
    ('data.limit', 'null', 'use N, none: all', '')
    """
    docs = []
    section = parent = page = ""
    for line in text.splitlines():
        if line.startswith(_SECTION):
            heading, page = _without_page(line.strip("# -"))
            section = heading.partition(":")[0]
        elif match := _KEY_LINE.match(line):
            indent, name, rest = match.groups()
            value, _, remark = rest.partition(" #")
            if not indent:
                parent = "" if value.strip() else name
            if value.strip() and name not in _OF_HYDRA and parent not in _OF_HYDRA:
                # one with a value has no parent at the left
                key = f"{parent}.{name}".lstrip(".")
                comment, own_page = _without_page(remark)
                docs.append(
                    KeyDoc(section, key, value.strip(), comment, own_page or page)
                )
    return docs


def _without_page(comment: str) -> tuple[str, str]:
    """Return a comment without the page that it names, and the page.

    >>> _without_page("first batch per GPU (docs/start.md)")
    ('first batch per GPU', 'docs/start.md')
    """
    page = _PAGE.search(comment)
    return _PAGE.sub("", comment).strip(), page[1] if page else ""


def groups(text: str) -> list[KeyDoc]:
    """Return the groups of configs that a config of ours names under `defaults`.

    >>> groups("defaults:\\n  - grid: null  # a predefined study (docs/keys.md#grids)\\n")[0][1:]
    ('grid', 'null', 'a predefined study', 'docs/keys.md#grids')
    """
    docs = []
    for name, value, remark in _GROUP_LINE.findall(text):
        comment, page = _without_page(remark)
        docs.append(KeyDoc("groups", name, value, comment, page))
    return docs


def description(text: str) -> str:
    """Return the comment in the first line of a config; empty if there is none.

    >>> description("# any SLURM cluster\\nname: slurm\\n")
    'any SLURM cluster'
    """
    first = text.partition("\n")[0]
    return first.strip("# ") if first.startswith("#") else ""


PAGE = """\
hpml_jobs {version}: how does PyTorch training scale on a SLURM cluster?

  hpml-jobs -m gpus=1,2,4 batch=32,128,512   submit a study of 3 x 3 cells
  hpml-jobs collect --wait                   wait for them, say how many to use

A study is a set of cells; a cell is one measurement, e.g. on 4 GPUs with batch
128. Submitted again, a study skips its finished, pending and running cells. On
a machine without SLURM they run now, one after another. python -m hpml_jobs is
the same as hpml-jobs.

Commands (hpml-jobs COMMAND --help shows its options and an example)
{commands}

  STUDY: a study's name; without it, the most recently submitted study.
  PATTERN: cells by name, e.g. 'ddp-*'.

More
  hpml-jobs help WORD        a term, a check or a key: help speedup, help gpus
  hpml-jobs help keys        every key, with its default
  hpml-jobs help workloads   models and data, and the keys of a workload
  hpml-jobs help clusters    clusters, and the keys of a cluster
  hpml-jobs help grids       predefined studies, and learning-rate recipes
  hpml-jobs --cfg job        print the composed configuration (Hydra)
  hpml-jobs --version        print the version
  docs/README.md             the documentation by task

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""


def first_page(version: str, commands: Collection[Command]) -> str:
    """Return the page of `hpml-jobs --help`."""
    lines = []
    for section in HelpSection:
        listed = [command for command in commands if command.section is section]
        if listed:
            lines.append(f" {section.value}")
        for command in listed:
            lines += _usage(command)
    return PAGE.format(version=version, commands="\n".join(lines))


def _usage(command: Command) -> list[str]:
    """Return the lines of a command: what is typed on the left, its meaning on the right."""
    first, *following = command.meaning.split("\n")
    return [f"  {command.usage:26} {first}", *(f"{'':29}{line}" for line in following)]


CONFIGS = """\
Your defaults: ~/.config/hpml_jobs/config.yaml (hpml-jobs init), which go over those of
the site, /etc/hpml_jobs/config.yaml. Your own configs:
--config-dir FOLDER with cluster/, workload/, recipe/ and grid/.
"""

Folders = Sequence[Path]
"""conf/, then the folders of the user's own configs."""


def _keys(folders: Folders) -> Iterable[str]:
    yield "Keys, with their defaults: key=value on the command line, with -m also key=a,b,c\n"
    docs = keys((folders[0] / "config.yaml").read_text())
    for section, of_section in groupby(docs, key=lambda doc: doc.section):
        yield f"{section[0].upper()}{section[1:]}\n{_lines(of_section)}\n"
    yield "docs/keys.md explains them. Groups: cluster= workload= recipe= grid="


GROUPS = {
    "cluster": "slurm",
    "workload": "resnet18_cifar10",
    "recipe": "plain",
    "grid": None,
}
"""Every group of configs, with the file that has all its keys."""

TOPICS: Mapping[str, Sequence[str]] = {
    "keys": (),
    "workloads": ("workload",),
    "clusters": ("cluster",),
    "grids": ("grid", "recipe"),
}
"""The groups on each page; that without groups has the other keys."""

_LINK = re.compile(r"\[[^]]*\]\(([^)]*)\)")


def explanations() -> dict[str, str]:
    """Return the paragraphs of docs/words.md by each word of their headings."""
    page = conf_folder().parent / "docs" / "words.md"
    _, *sections = page.read_text().split("\n## ")
    texts: dict[str, str] = {}
    for section in sections:
        heading, _, paragraph = section.partition("\n")
        linked = _LINK.sub(r"docs/\1", paragraph).replace("docs/../", "")
        texts |= dict.fromkeys(heading.split(", "), _explanation(heading, linked))
    return texts


def entry(word: str, folders: Folders) -> str:
    """Return what is known of a word: a term of docs/words.md, a check, a key.

    Raises:
        UsageError: nothing is; the message names what is most alike.
    """
    terms, keys_by_name = explanations(), all_keys(folders)
    named = [name for name in keys_by_name if word in (name, name.rpartition(".")[2])]
    parts = [terms.get(word) or terms.get(word.removesuffix("s"), "")]
    parts += [_check_explanation(word)]
    parts += [f"{_lines([keys_by_name[name]])}\n" for name in named]
    if any(parts):
        return "\n".join(filter(None, parts))
    near = nearest(word, (*terms, *keys_by_name), cutoff=0.7)
    hint = f"did you mean {PROGRAM} help {near}?" if near else f"see {PROGRAM} --help"
    raise UsageError(f"no help on {word}: {hint}")


def _check_explanation(word: str) -> str:
    """Return when a data-quality check warns, its limit and its fix; empty if there is none."""
    from hpml_jobs.results.checks.study import GROUPS

    for check in chain.from_iterable(GROUPS.values()):
        if check.name == word:
            sentence, *_ = check.meaning.rstrip(".").split(". ")
            text = f"{sentence}. Limit: {check.limit}. Fix: {check.remedy}."
            return _explanation(f"{word} (data-quality check, docs/checks.md)", text)
    return ""


def _explanation(title: str, text: str) -> str:
    """Return a paragraph of Markdown below its title."""
    lines = textwrap.wrap(
        text.replace("`", "").strip(),
        76,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join([title, *(f"  {line}" for line in lines), ""])


def all_keys(folders: Folders) -> dict[str, KeyDoc]:
    """Return every key by its dotted name: the groups, then those of a study and of each group.

    A key of a group is that of the group's file in GROUPS, else of the first file that explains it.
    """
    text = (folders[0] / "config.yaml").read_text()
    docs = {doc.key: doc for doc in [*groups(text), *keys(text)]}
    for group, first in GROUPS.items():
        files = sorted((folders[0] / group).glob("*.yaml")) if first else []
        files.sort(key=lambda file: file.stem != first)
        for doc in _dotted(group, files):
            if doc.comment:
                page = doc.page or docs[group].page
                docs.setdefault(doc.key, doc._replace(page=page))
    return docs


def _dotted(group: str, files: Iterable[Path]) -> Iterator[KeyDoc]:
    """Yield the keys of a group's files with the group's name before them."""
    for file in files:
        for doc in keys(file.read_text()):
            if doc.key != "name":
                section = f"{group}={file.stem}"
                yield doc._replace(key=f"{group}.{doc.key}", section=section)


def files_of(group: str, folders: Folders) -> dict[str, Path]:
    """Return the choices of a group, each with its file; those of the user's configs follow."""
    return {
        file.stem: file
        for folder in folders
        for file in sorted((folder / group).glob("*.yaml"))
    }


def topic(name: str, folders: Folders) -> str:
    """Return the page of a topic."""
    groups = TOPICS[name]
    if not groups:
        return "\n".join([*_keys(folders), CONFIGS])
    parts = [f"{_choices(group, folders)}\n" for group in groups]
    for group in groups:
        if file := GROUPS[group]:
            parts.append(_keys_of(group, file, folders))
    return "\n".join([*parts, CONFIGS])


def _keys_of(group: str, file: str, folders: Folders) -> str:
    """Return the keys of a group, with the defaults in one of its files of conf/."""
    named = _dotted(group, [folders[0] / group / f"{file}.yaml"])
    return f"Keys of a {group}, with the values of {group}={file}\n{_lines(named)}\n"


def _lines(docs: Iterable[KeyDoc]) -> str:
    return "\n".join(
        f"  {f'{doc.key}={doc.value}':30} {doc.comment}".rstrip() for doc in docs
    )


def _choices(group: str, folders: Folders) -> str:
    """Return a group's choices, each with the description in its file."""
    lines = []
    for name, file in files_of(group, folders).items():
        meaning = description(file.read_text())
        lines.append(f"  {f'{group}={name}':30} {meaning}".rstrip())
    return "\n".join(lines)
