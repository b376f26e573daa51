"""What hosts of cluster=ssh answer is read with limits, whatever it is."""

import sys

import pytest

from hpml_jobs import __version__
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.submit import ssh
from hpml_jobs.submit.ssh import check_hosts

FACTS = (
    f'{{"hpml_jobs":"{__version__}","torch":"2","python":"3",'
    '"machine":"m","marker":"","port":%s}'
)


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Return a function that checks one host, whose shell runs a command first or alone."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()

    def run(before, *, answers=True, printed=b""):
        (tmp_path / "printed").write_bytes(printed)
        last = 'eval "${@: -1}"' if answers else "exit 3"
        program = tmp_path / "bin/ssh"
        program.write_text(f"#!/bin/bash\nF={tmp_path}/printed\n{before}\n{last}\n")
        program.chmod(0o755)
        cluster = Cluster(
            name="ssh",
            launcher=Launcher.LOCAL,
            hosts=("localhost",),
            python=sys.executable,
        )
        check_hosts(cluster, tmp_path / "work")

    return run


PRINTED = [
    b'{"a":1}\n',
    b'{"hpml_jobs":1,"torch":2}\n[1,2]\n{}\nnull\n"x"\n',
    b'{"hpml_jobs":"\xff\xfe"\n\xff\xfe\x00{\x00\n',
    b"{" * 3_000_000 + b"\n",
    b"\r\n\x1b]0;title\x07\x1b[2J\n",
]
IDS = [
    *(
        "object",
        "types",
        "bytes",
    ),
    *("long", "terminal"),
]


@pytest.mark.parametrize("printed", PRINTED, ids=IDS)
def test_what_a_shell_prints_before_the_answer_is_skipped(check, printed):
    check("cat $F; cat $F >&2", printed=printed)


@pytest.mark.parametrize("printed", PRINTED, ids=IDS)
def test_what_is_no_answer_is_one_line(check, printed):
    with pytest.raises(HpmlError) as refused:
        check("cat $F", answers=False, printed=printed)
    assert (
        str(refused.value)
        == "localhost: no answer, but exit code 3: see ssh -v localhost"
    )
    with pytest.raises(HpmlError) as refused:
        check("cat $F >&2", answers=False, printed=printed)
    assert str(refused.value).startswith("localhost: ")
    assert str(refused.value).endswith("see ssh -v localhost")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "endless",
    [
        "yes '{'",
        "cat /dev/zero",
        "exec sleep 60",
    ],
)
def test_endless_output_and_silence_end(check, endless, monkeypatch):
    monkeypatch.setattr(ssh, "ANSWER_S", 0.5)
    with pytest.raises(
        HpmlError, match=r"localhost: no answer within 0\.5 s or 10000 lines"
    ):
        check(f"exec {endless}" if endless.startswith(("yes", "cat")) else endless)


def test_another_version_is_named_whatever_its_facts_are(check):
    facts = '{"hpml_jobs":"9.9","port":5,"of_later_versions":[{"x":1}]}'
    with pytest.raises(HpmlError) as refused:
        check("cat $F", answers=False, printed=f"{facts}\n".encode())
    expected = f"hpml_jobs differs (this machine {__version__}, localhost 9.9): install the same"
    assert str(refused.value).startswith(expected)


def test_names_of_versions_cannot_write_to_the_terminal(check):
    version = "9\\u001b[31m\\n" + "9" * 5_000
    with pytest.raises(HpmlError) as refused:
        check(
            "cat $F", answers=False, printed=f'{{"hpml_jobs":"{version}"}}\n'.encode()
        )
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400
