"""Histories of runs, by epoch and by step, become studies."""

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.exchange.csv_histories import read_history
from hpml_jobs.exchange.csv_records import Rules, read_timings
from hpml_jobs.study.study import Study


def records_of(text):
    """Return the records of a file, and the remarks on it."""
    remarks = []
    records = read_timings(text.encode(), "h.csv", Rules(images=640), remarks.append)
    return records, remarks


def steps(name, start, count, step_s, *, epoch=0, every=1):
    """Return rows of run,_step,_timestamp,epoch,loss."""
    times = [(number, start + number * step_s) for number in range(0, count, every)]
    return "".join(f"{name},{n},{time},{epoch},{2 - n / 100}\n" for n, time in times)


def test_epoch_of_steps_has_one_step_more_than_its_timestamps():
    text = "run,_step,_timestamp,epoch,loss\n" + steps("ddp-2gpu-b32", 100.0, 10, 0.5)
    (record,), remarks = records_of(text)
    assert (record.cell.gpus, record.cell.batch, record.cell.strategy) == (2, 32, "ddp")
    assert record.epoch_s == pytest.approx(5.0)
    assert (record.iterations, record.loss) == (10, 1.91)
    assert "its mean step is added to the time between its timestamps (0.5 to 0.5 s)" in remarks[0]
    assert remarks[1] == "1 of 1 run with one epoch: it includes the warm-up"


def test_steps_that_are_written_now_and_then_count_all_the_same():
    text = "run,step,timestamp,epoch,loss\n" + steps("1gpu-b32", 0.0, 21, 0.5, every=5)
    (record,), _ = records_of(text)
    assert record.epoch_s == pytest.approx(10.5)
    assert record.iterations == 21


def test_first_of_several_epochs_is_the_warm_up():
    name = "ddp-4gpu-b128"
    epochs = (steps(name, 100 * n, 4, step_s, epoch=n) for n, step_s in enumerate((9, 2, 3, 2)))
    (record,), remarks = records_of("run,step,timestamp,epoch,loss\n" + "".join(epochs))
    assert record.epoch_s == pytest.approx(8.0)
    assert remarks[1].startswith("the first epoch of a run is its warm-up")


def test_rows_of_epochs_are_a_study_with_repeats(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.csv").write_text(
        "\ufeffRun;Epoch;Seconds;Accuracy;gpus;batch\n"
        "a;1;9;40;1;32\na;2;4;61.5;1;32\nb;1;9;0.4;1;32\nb;2;5;0.6;1;32\n"
        "2026-01-01T10:00;2;2;0.6;2;32\n2026-01-01T10:00;1;9;0.4;2;32\n"
    )
    assert run(["import", "h.csv", "study=h"]) == 0
    records = {cell.slug: cell.read_record() for cell in Study(tmp_path / "outputs/h").cells()}
    found = sorted((r.cell.gpus, r.cell.repeat, r.epoch_s, r.accuracy) for r in records.values())
    assert found == [(1, 0, 4.0, 0.615), (1, 1, 5.0, 0.6), (2, 0, 2.0, 0.6)]
    capsys.readouterr()
    assert run(["collect", "h"]) == 0
    assert "2.25" in capsys.readouterr().out  # the median of 4 and 5 s, over 2 s


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("run,step,loss\na-1gpu-b1,0,2\n", "history of runs without times: add the column timesta"),
        ("run,epoch,seconds\nfoo,1,3\nfoo,2,3\n", "run foo: its name does not say GPUs and batch"),
        ("run,epoch,seconds\n1gpu-b1,1,3\n", "one epoch is the warm-up: add the seconds of a se"),
        ("run,epoch,seconds\n1gpu-b1,1,3\n1gpu-b1,1,4\n", "an epoch is given twice"),
        ("run,step,timestamp\n1gpu-b1,1,3\n", "step 1 and step 1 have no time between them"),
        ("run,step,timestamp\n1gpu-b1,1,3\n1gpu-b1,2,\n", "timestamp is missing in 1 of 2 rows"),
        ("run,step,timestamp\n1gpu-b1,1,1:x\n", "line 2: timestamp=1:x: expected seconds, or a d"),
        ("run,epoch,seconds,accuracy\n1gpu-b1,1,3,640\n", "accuracy=640: expected 0 to 1, or per"),
    ],
)
def test_history_without_times_or_cells_is_refused(text, fault):
    with pytest.raises(HpmlError, match=r"h\.csv") as refused:
        records_of(text)
    assert fault in str(refused.value)


def test_file_without_runs_is_no_history():
    assert read_history(b"gpus,batch,epoch_s\n1,32,4\n", "t.csv") is None
