"""The end of a log that `logs` shows."""

from hpml_jobs.status.watch import last_lines

LOG = """\
[default0]:Traceback (most recent call last):
[default0]:  File "train.py", line 1, in <module>
[default0]:ModuleNotFoundError: No module named 'notthere'
E1129 15:44:03.651000 21990 torch/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 22021)
Traceback (most recent call last):
  File "torch/distributed/run.py", line 1138, in main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
"""


def test_report_of_the_launcher_does_not_hide_the_error(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text(LOG)
    assert last_lines(log, 2).splitlines() == LOG.splitlines()[1:3]
    log.write_text(LOG[LOG.index("E1129") :])
    assert last_lines(log, 1) == "train.py FAILED"
