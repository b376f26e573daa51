"""Fixtures of unit tests: a folder, a wheel, a laptop, a login node with fake commands, a study."""

import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import CheckResult
from hpml_jobs.plan import composer, machine, user_config
from hpml_jobs.report import report as reports
from hpml_jobs.slurm import commands
from tests.unit.builders import lab_cell
from tests.unit.study_builder import StudyBuilder

SBATCH = """\
#!/bin/sh
cd "{slurm}" || exit 1
count=$(ls | grep -c '[0-9]*\\.sh$')
if [ "$count" -ge "$(cat takes)" ]; then cat refusal >&2; exit 1; fi
count=$((count + 1))
cp "$1" "$count.sh"
env > "$count.env"
echo "Submitted batch job $((100 + count))"
"""

ANSWER = """\
#!/bin/sh
echo "$@" >> "{slurm}/{name}.asked"
cat "{slurm}/{name}.out"
cat "{slurm}/{name}.err" >&2
exit {code}
"""

SQUEUE = """\
#!/bin/sh
echo "$@" >> "{slurm}/squeue.asked"
case "$*" in
*version*) ;;
*%T*) echo 'JOBID|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODELIST|REASON|NAME' ;;
*) echo JOBID ;;
esac
cat "{slurm}/squeue.out"
cat "{slurm}/squeue.err" >&2
exit {code}
"""
"""squeue prints its header, also if it lists no job."""

SCONTROL = """\
#!/bin/sh
echo "$@" >> "{slurm}/scontrol.asked"
cat "{slurm}/scontrol.err" >&2
case "$*" in
"show job"*)
  if [ -e "{slurm}/scontrol.job" ] || grep -q "^$3" "{slurm}/squeue.out"; then
    cat "{slurm}/scontrol.out"
    exit {code}
  fi
  echo "slurm_load_jobs error: Invalid job id specified" >&2
  exit 1 ;;
esac
cat "{slurm}/scontrol.out"
exit {code}
"""
"""scontrol knows the jobs that squeue lists, or any job if a test says so."""

SINFO = """\
#!/bin/sh
echo "$@" >> "{slurm}/sinfo.asked"
case "$*" in *-R*) cat "{slurm}/sinfo.reasons" 2> /dev/null; exit 0 ;; esac
cat "{slurm}/sinfo.out"
cat "{slurm}/sinfo.err" >&2
exit {code}
"""
"""All nodes are up, unless a test writes reasons why not."""

GARBAGE = b"\\377\\376\\000\\200 17_0|\\351|\\300\\n"
"""Bytes that are not UTF-8, for printf."""

NODES = """\
gr001|gpu:rtx8000:4(S:0-1)|48|190000|main
gr002|gpu:rtx8000:4(S:0-1)|48|190000|main
gv001|gpu:v100:4|40|380000|main
cs001|(null)|48|190000|cpu
"""


class FakeSlurm:
    """SLURM commands as shell scripts: they print what a test sets and keep what was submitted."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.folder = folder / "slurm"
        self.bin.mkdir()
        self.folder.mkdir()
        self._command("sbatch", SBATCH.format(slurm=self.folder))
        self.accept_then_refuse(1000)
        self.set_output("srun")
        self.set_output("sinfo", NODES)
        self.set_output("squeue")
        self.set_output("sacct")
        self.set_cluster_name("greene")

    def _command(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def set_output(
        self, name: str, out: str = "", err: str = "", code: int = 0
    ) -> None:
        """Set what a command prints from now on, and its exit code."""
        (self.folder / f"{name}.out").write_text(out)
        (self.folder / f"{name}.err").write_text(err)
        own = {"squeue": SQUEUE, "scontrol": SCONTROL, "sinfo": SINFO}
        text = own.get(name, ANSWER)
        self._command(name, text.format(slurm=self.folder, name=name, code=code))

    def set_complete_output(self, name: str, out: str) -> None:
        """Let a command print this and nothing else, with exit code 0: squeue without a header."""
        (self.folder / f"{name}.out").write_text(out)
        self._command(name, ANSWER.format(slurm=self.folder, name=name, code=0))

    def set_answers(self, name: str, *answers: tuple[str, str]) -> None:
        """Let a command print the text of the first pattern that its arguments match."""
        cases = []
        for number, (pattern, text) in enumerate(answers):
            path = self.folder / f"{name}.{number}.out"
            path.write_text(text)
            cases.append(f'*"{pattern}"*) cat "{path}" ;;')
        joined = "\n".join(cases)
        self._command(name, f'#!/bin/sh\ncase "$*" in\n{joined}\nesac\n')

    def cut_squeue(self) -> None:
        """Let squeue print the first line of its answer only, with exit code 0."""
        self._command("squeue", "#!/bin/sh\necho 'JOBID|STATE'\n")

    def print_garbage(self, name: str) -> None:
        """Let a command print bytes that are not UTF-8 to both its outputs, with exit code 0."""
        garbage = GARBAGE.decode()
        self._command(name, f"#!/bin/sh\nprintf '{garbage}'\nprintf '{garbage}' >&2\n")

    def print_forever(self, name: str) -> None:
        """Let a command print without an end."""
        self._command(
            name, "#!/bin/sh\nwhile echo 'JOBID|STATE|and more and more'; do :; done\n"
        )

    def keep_jobs_in_controller(self) -> None:
        """Let the controller know every job, also those that squeue does not list."""
        (self.folder / "scontrol.job").touch()

    def set_cluster_name(self, cluster: str, max_array_size: int = 1001) -> None:
        """Set the ClusterName and MaxArraySize of `scontrol show config`."""
        self.set_output(
            "scontrol", f"ClusterName = {cluster}\nMaxArraySize = {max_array_size}\n"
        )

    def accept_then_refuse(
        self, arrays: int, refusal: str = "sbatch: error: Invalid account"
    ) -> None:
        """Let this many sbatch calls succeed and refuse the next ones."""
        (self.folder / "takes").write_text(str(arrays))
        (self.folder / "refusal").write_text(refusal + "\n")

    def remove_command(self, name: str) -> None:
        """Remove the command from PATH."""
        (self.bin / name).unlink()

    @property
    def scripts(self) -> list[str]:
        """The scripts that sbatch accepted, in order."""
        paths = sorted(self.folder.glob("*.sh"), key=lambda path: int(path.stem))
        return [path.read_text() for path in paths]

    def environment_of_call(self, number: int = 1) -> dict[str, str]:
        """Return the environment of the sbatch call of this number."""
        lines = (self.folder / f"{number}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def calls(self, name: str) -> list[str]:
        """Return the arguments of every call of a command."""
        path = self.folder / f"{name}.asked"
        return path.read_text().splitlines() if path.exists() else []


def _clear_slurm_caches() -> None:
    for asked_once in (commands.limits, commands.inventory, commands.partition_minutes):
        asked_once.cache_clear()
    commands._cluster.set(None)


ALL_PICTURES = dict(reports.PLOTS)


@pytest.fixture(autouse=True)
def one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report has one picture, since drawing all of them takes longer than most tests."""
    monkeypatch.setattr(reports, "PLOTS", {"phases": ALL_PICTURES["phases"]})


@pytest.fixture
def all_pictures(one_picture: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report has all its pictures."""
    monkeypatch.setattr(reports, "PLOTS", ALL_PICTURES)


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, without user configuration and outside any job."""
    folder = tmp_path / "desk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv(user_config.SITE_VARIABLE, raising=False)
    monkeypatch.setattr(user_config, "SITE_FILE", tmp_path / "etc" / "config.yaml")
    for name in (
        "SLURM_CONF",
        "SLURM_JOB_ID",
        "SCRATCH",
        "SBATCH_ACCOUNT",
        "HPML_JOBS_JOB",
        "OPENBLAS_NUM_THREADS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "local_gpus", lambda: ())
    _clear_slurm_caches()
    yield folder
    _clear_slurm_caches()


@pytest.fixture
def laptop(
    working_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A machine without SLURM and without GPUs."""
    empty = tmp_path / "no-commands"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setattr(machine, "cluster_sign", lambda: None)
    return working_folder


@pytest.fixture
def slurm(
    working_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeSlurm:
    """A login node of Greene: two nodes of 4 RTX8000, one of 4 V100, one without GPUs."""
    fake = FakeSlurm(tmp_path)
    tools = tmp_path / "tools"  # a PATH without a real SLURM
    tools.mkdir()
    for name in ("sh", "cat", "cp", "env", "ls", "grep"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", f"{fake.bin}:{tools}")
    return fake


@pytest.fixture
def user_config_file(working_folder: Path, tmp_path: Path) -> Iterator[Path]:
    """The path of the user's configuration file, to be written by the test."""
    path = tmp_path / "config" / "hpml_jobs" / "config.yaml"
    path.parent.mkdir(parents=True)
    yield path


@pytest.fixture
def site_config_file(working_folder: Path) -> Path:
    """The path of the site's configuration file, to be written by the test."""
    user_config.SITE_FILE.parent.mkdir(parents=True)
    return user_config.SITE_FILE


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with the wheel of a module that no machine has, `carried`."""
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "")
        for name, text in about.items():
            wheel.writestr(f"carried-1.0.dist-info/{name}", text)
    return folder


Checks = dict[str, tuple[CheckResult, ...]]


@pytest.fixture
def given_checks(monkeypatch) -> Checks:
    """Results of checks by slug, for a test to fill: no other check is made."""
    checks: Checks = {}
    monkeypatch.setattr(
        "hpml_jobs.results.checks.study.check_study", lambda groups, slugs: checks
    )
    return checks


@pytest.fixture
def no_checks(given_checks) -> None:
    """No check is made: the times of the test are beyond what its hardware can do."""


@pytest.fixture
def builder(tmp_path: Path) -> StudyBuilder:
    """A study folder to fill."""
    return StudyBuilder(tmp_path / "lab-greene-v100")


@pytest.fixture
def incomplete_study(builder):
    """The nine cells with one waiting, one out of memory, one without any trace of success."""
    builder.with_published_study(stall_s=1.5, but=((4, 128), (4, 512), (1, 32)))
    builder.with_cell(
        lab_cell(4, 128), Outcome.PENDING, "pending in SLURM as job 17_3 (Resources)"
    )
    builder.with_cell(
        lab_cell(1, 32), Outcome.FAILED, "failed: 100 % of $HOME & more_#"
    )
    builder.with_out_of_memory(lab_cell(4, 512))
    return builder


COMPOSED: dict[tuple[str, ...], object] = {}


@pytest.fixture(autouse=True)
def composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose each choice of config groups once: it takes longer than most tests of a plan.

    What is composed depends on the overrides alone, but where a test has config files of its own.
    """
    compose = composer.compose

    def compose_once(name: str, overrides: list[str]) -> object:
        key = tuple(overrides)
        if any(word.startswith("hydra.searchpath") for word in key):
            return compose(name, overrides=overrides)
        if key not in COMPOSED:
            COMPOSED[key] = compose(name, overrides=overrides)
        return deepcopy(COMPOSED[key])

    monkeypatch.setattr(composer, "compose", compose_once)


@pytest.fixture
def running_process():
    """A living process of our program: the job that is named after it."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)", "hpml_jobs"]
    )
    name = f"local-{process.pid}-{int(time.time()) + 1}"
    yield lambda: name
    process.kill()
    process.wait()
