"""The pages of `hpml-jobs --help` and `hpml-jobs help TOPIC`."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.text import PROGRAM, nearest

PAGE = """\
hpml_jobs {version}: how does PyTorch training scale on a SLURM cluster?

  hpml-jobs -m gpus=1,2,4 batch=32,128,512   submit a study of 3 x 3 cells
  hpml-jobs collect --wait                   wait, print the speedup of more GPUs

  init                       write your defaults from what this cluster says
  doctor KEY=VALUE...        check the setup, with a short diagnostic job
  plan KEY=VALUE...          show cells, GPU-hours, your defaults; submit nothing
  status [STUDY] [PATTERN]   show the state of every cell, and what to do next
  logs [STUDY] [PATTERN]     show why cells failed; -f follows a running cell
  resubmit [STUDY] ...       submit cells again: --failed, --oom, --timeout, ...
  cancel [STUDY] [PATTERN]   cancel this study's jobs
  collect [STUDY]            print how much faster more GPUs are, and why not more
  compare A [B]              say which cells of B are faster or slower than A's

A study is a set of cells; a cell is one run, e.g. on 4 GPUs with batch 128.
  hpml-jobs COMMAND --help   options of a command, and an example
  hpml-jobs help WORD        a term, a check or a key; help keys: the main keys
  hpml-jobs --help --all     all commands and topics
"""

WHOLE_PAGE = """\
hpml_jobs {version}: how does PyTorch training scale on a SLURM cluster?

  hpml-jobs -m gpus=1,2,4 batch=32,128,512   submit a study of 3 x 3 cells
  hpml-jobs collect --wait                   wait, print the speedup of more GPUs

A study is a set of cells; a cell is one run, e.g. on 4 GPUs with batch
128. Submitted again, a study skips its finished, pending and running cells.
Without SLURM, new cells run now, one after another. python -m hpml_jobs is the
same as hpml-jobs.

Commands (hpml-jobs COMMAND --help shows its options and an example)
 set up
  init                       write your defaults from what this cluster says
  doctor KEY=VALUE...        check the setup, with a short diagnostic job
 submit
  submit KEY=VALUE...        submit a study; the word submit can be left out
  plan KEY=VALUE...          show cells, GPU-hours, your defaults; submit nothing
  run KEY=VALUE...           run one cell here, e.g. inside an allocation
  resubmit [STUDY] ...       submit cells again: --failed, --oom, --timeout, ...
  cancel [STUDY] [PATTERN]   cancel this study's jobs
 follow
  list                       list all studies: cells by state, date, cluster
  status [STUDY] [PATTERN]   show the state of every cell, and what to do next;
                             --watch: live, until no cell is pending or running
  logs [STUDY] [PATTERN]     show why cells failed; -f follows a running cell
 results
  collect [STUDY]            print how much faster more GPUs are, and why not more;
                             write the tables and the page
  compare A [B]              say which cells of B are faster or slower than A's;
                             --save FILE keeps the numbers of a study for later
 in and out
  import FILE                make a study of another program's timings

  STUDY: a study's name; without it, the most recently submitted study.
  PATTERN: cells by name, e.g. 'ddp-*'.

More
  hpml-jobs help WORD        a term, a check or a key: help speedup, help gpus
  hpml-jobs help keys        the main keys with their defaults; --all: every key
  hpml-jobs help workloads   models and data, and the keys of a workload
  hpml-jobs help clusters    clusters, and the keys of a cluster
  hpml-jobs help grids       predefined studies, and learning-rate recipes
  hpml-jobs --version        print the version
  README.md                  what it is, and the pages of docs/

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

CONFIGS = """\
Your defaults: ~/.config/hpml_jobs/config.yaml (hpml-jobs init), which go over those of
the site, /etc/hpml_jobs/config.yaml. Your own configs:
--config-dir FOLDER with cluster/, workload/, recipe/ and grid/.
"""

_KEY_LINE = re.compile(r"( *)(\w+):(.*)")
_GROUP_LINE = re.compile(r" *- (\w+): (\w+) *# *(.*)")
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

    >>> keys("# ---- study: its keys ----\\ndata:\\n  limit: null  # use N, none: all\\n")
    [KeyDoc(section='study', key='data.limit', value='null', comment='use N, none: all')]
    """
    docs = []
    section = parent = ""
    for line in text.splitlines():
        if line.startswith(_SECTION):
            section, *_ = re.split(r":| \(", line.strip("# -"))
        elif match := _KEY_LINE.match(line):
            indent, name, rest = match.groups()
            value, _, comment = map(str.strip, rest.partition(" #"))
            if not indent:
                parent = "" if value else name
            if value and name not in _OF_HYDRA and parent not in _OF_HYDRA:
                # one with a value has no parent at the left
                key = f"{parent}.{name}".lstrip(".")
                docs.append(KeyDoc(section, key, value, comment))
    return docs


GROUPS = {
    "cluster": "slurm",
    "workload": "resnet18_cifar10",
    "recipe": "plain",
}
"""The groups of configs that have keys, with the file that has all of them."""

TOPICS: Mapping[str, Sequence[str]] = {
    "keys": (),
    "workloads": ("workload",),
    "clusters": ("cluster",),
    "grids": ("grid", "recipe"),
}
"""The groups on each page; that without groups has the other keys."""


def topic(name: str, conf: Path, *, is_whole: bool) -> str:
    """Return the page of a topic; that of the keys is of the main ones unless `is_whole`."""
    parts = [_lines(_choices(group, conf)) for group in TOPICS[name]]
    for group in TOPICS[name]:
        if file := GROUPS.get(group):
            title = f"Keys of a {group}, with the values of {group}={file}"
            parts.append(f"{title}\n{_lines(_keys_of(group, conf))}")
    return "\n".join([*(parts or _all_sections(conf, is_whole=is_whole)), CONFIGS])


def _all_sections(conf: Path, *, is_whole: bool) -> Iterator[str]:
    yield "Keys, with their defaults: key=value on the command line, with -m also key=a,b,c\n"
    docs = keys((conf / "config.yaml").read_text())
    for section, of_section in groupby(docs, key=lambda doc: doc.section):
        yield f"{section[0].upper()}{section[1:]}\n{_lines(of_section)}"
        if not is_whole:  # the main keys are first
            break
    yield f"{PROGRAM} help keys --all: every key. Groups: cluster= workload= recipe= grid="


def _keys_of(group: str, conf: Path) -> Iterator[KeyDoc]:
    """Yield the keys of a group with the group's name before them, but for its name."""
    for doc in keys((conf / group / f"{GROUPS[group]}.yaml").read_text()):
        if doc.key != "name":
            yield doc._replace(key=f"{group}.{doc.key}")


def _choices(group: str, conf: Path) -> Iterator[KeyDoc]:
    """Yield a group's choices, each with the comment in the first line of its file."""
    for file in sorted((conf / group).glob("*.yaml")):
        comment = file.read_text().partition("\n")[0].strip("# ")
        yield KeyDoc("", group, file.stem, comment)


def _lines(docs: Iterable[KeyDoc]) -> str:
    return "".join(
        f"  {f'{doc.key}={doc.value}':30} {doc.comment}".rstrip() + "\n" for doc in docs
    )


def entry(word: str, conf: Path) -> str:
    """Return what is known of a word: a term of docs/words.md, a check, a key.

    Raises:
        UsageError: nothing is; the message names what is most alike.
    """
    text = (conf / "config.yaml").read_text()
    docs = [KeyDoc("", *groups) for groups in _GROUP_LINE.findall(text)]
    docs += keys(text)
    for group in GROUPS:
        docs += _keys_of(group, conf)
    for group in ("grid", *GROUPS):
        docs += _choices(group, conf)
    word = word.lower()
    named = [
        doc
        for doc in docs
        if word in (*doc.key.rsplit(".", 1), doc.key, doc.value)
        or f" {word}: " in doc.comment
    ]
    terms = explanations()
    texts = [terms.get(word, ""), _check_explanation(word), _lines(named)]
    if parts := [*filter(str.strip, texts)]:
        return "\n".join(parts)
    near = nearest(word, (*terms, *(doc.key for doc in docs)), cutoff=0.7)
    hint = f"did you mean {PROGRAM} help {near}?" if near else f"see {PROGRAM} --help"
    raise UsageError(f"no help on {word}: {hint}")


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


_LINK = re.compile(r"\[[^]]*\]\(([^)]*)\)")


def _check_explanation(word: str) -> str:
    """Return when a data-quality check warns, its limit and its fix; empty if there is none."""
    from hpml_jobs.results.checks.study import GROUPS as CHECKS

    for check in chain.from_iterable(CHECKS.values()):
        if check.name == word:
            sentence, *_ = check.meaning.rstrip(".").split(". ")
            text = f"{sentence}. Limit: {check.limit}. Fix: {check.remedy}."
            return _explanation(f"{word} (data-quality check, docs/results.md)", text)
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
