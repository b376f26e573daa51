"""A secret in any form, in any file of a study, leaves neither in an archive nor on the page."""

import html
import tarfile

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.features import load
from hpml_jobs.extras.exchange.archive import PackOptions, pack
from hpml_jobs.report import page
from hpml_jobs.report.files.markdown import escaped as in_markdown
from hpml_jobs.report.report import ReportOptions, make_report
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.snapshot import read_snapshots
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder

FORMS = (
    "export WANDB_API_KEY={}",
    "--token {} --gpus 2",
    '["--password","{}"]',
    "password='{} b'",
    "Authorization: Bearer {}",
    "machine x login ada\n password {}\n",
    "wandb login {}",
    "https://ada:{}@host/x",
    "https://x.blob/c?sv=1&sig={}",
    "AccountName=x;AccountKey={};y",
    "export GH=ghp_{}",
    "token: {}",
)
PLACES = (
    "command",
    "setup",
    "reason",
    "log",
    "environment",
    "report.md",
    "tables.tex",
    "page",
)

SECRET = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789_", min_size=20, max_size=40
).map(lambda text: f"s{text}7z")


def write_study(folder, form, place, secret):
    """A study with one measured cell and one that failed, and the secret in one place of it."""
    text = form.format(secret)
    builder = StudyBuilder(folder / "mine")
    record = a_record(a_cell(batch=64))
    builder.with_record(record).with_cell(a_cell(batch=128)).sent_as("101_0", "101_1")
    builder.end_attempt(
        128, "101_1", Outcome.FAILED, reason=text if place == "reason" else "no"
    )
    attempt = builder.folder(128).attempt("101_1.r0").root
    write_whole(attempt / "log.txt", (text if place == "log" else "no").encode())
    setup = (text if place == "setup" else "module load x",)
    builder.study.write_cluster(Cluster(name="greene", setup=setup))
    builder.study.add_command(
        f"hpml-jobs gpus=1 {text if place in ('command', 'page') else ''}"
    )
    if place == "environment":
        environment = encode({"facts": {"environment": {"NOTE": text}}})
        write_whole(builder.study.slurm_answers, environment)
    in_latex = load("extras.latex.document:escaped")
    for name, escaped in (("report.md", in_markdown), ("tables.tex", in_latex)):
        shown = escaped(text) if name == place else ""
        write_whole(builder.study.report / name, f"# mine {shown}".encode())
    return builder


@pytest.mark.whole
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(form=st.sampled_from(FORMS), place=st.sampled_from(PLACES), secret=SECRET)
def test_random_secret_never_leaves(tmp_path_factory, form, place, secret):
    folder = tmp_path_factory.mktemp("study")
    study = write_study(folder, form, place, secret).study
    if place == "page":
        options = ReportOptions(commands=study.commands())
        report = make_report("mine", read_snapshots(study.cells()), (), options)
        shown = {
            name: text
            for name, text in page.files(report).items()
            if isinstance(text, str)
        }
    else:
        pack(study, folder / "a.tar.gz", PackOptions(logs=True))
        with tarfile.open(folder / "a.tar.gz") as tar:
            files = [
                member
                for member in tar.getmembers()
                if not member.name.endswith(".npz")
            ]
            shown = {file.name: tar.extractfile(file).read().decode() for file in files}
    for name, text in shown.items():
        assert secret not in html.unescape(text).replace("\\", ""), (name, form, place)


def test_secret_in_an_arg_of_a_cell_is_refused(tmp_path):
    """A cell is named after its args, so they cannot be changed in an archive."""
    workload = msgspec.structs.replace(a_cell().workload, name="x abc12345678")
    builder = StudyBuilder(tmp_path / "mine").with_cell(a_cell(workload=workload))
    builder.study.add_command(
        "hpml-jobs workload.name='x abc12345678' --token abc12345678"
    )
    with pytest.raises(HpmlError, match="looks like a password or token"):
        pack(builder.study, tmp_path / "a.tar.gz", PackOptions())
