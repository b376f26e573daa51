"""Histories of runs, by epoch and by step, become studies."""

from datetime import UTC, datetime

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.extras.exchange.csv_columns import Rules
from hpml_jobs.extras.exchange.csv_records import read_timings
from hpml_jobs.study.study import Study

NAMES = "*{gpus}gpu-b{batch}"
HEADER = "run,step,timestamp,epoch\n"
BEGAN = 1_767_225_600.0


def records_of(text, names=NAMES, **rules):
    """Return the records of a file, and the remarks on it."""
    remarks = []
    records = read_timings(
        text.encode(), "h.csv", Rules(names=names, **rules), remarks.append
    )
    return records, remarks


def fault_of(text, names=NAMES, kind=HpmlError, **rules):
    """Return the message with which a file is refused."""
    with pytest.raises(kind) as refused:
        records_of(text, names, **rules)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def stamps(
    step_s,
    iterations,
    *,
    epochs=3,
    every=1,
    begin=0,
    pauses=None,
    pause_every=0,
    pause_s=0.0,
):
    """Return (step, timestamp, epoch) of each `every` steps; the first three steps are slow.

    After each epoch there are 2 s, after the steps of `pauses` and each `pause_every` steps more.
    """
    rows, at = [], BEGAN
    for n in range(iterations * epochs):
        at += step_s * (3 if n < 3 else 1) + (pauses or {}).get(n, 0)
        at += pause_s if pause_every and n and n % pause_every == 0 else 0
        at += 2 if n and n % iterations == 0 else 0
        if (n + begin) % every == 0:
            rows.append((n + begin, at, n // iterations))
    return rows


def text_of(name, rows, form=repr):
    return "".join(f"{name},{step},{form(at)},{epoch}\n" for step, at, epoch in rows)


SIZES = {"1gpu-b32": (0.1, 400), "2gpu-b32": (0.11, 200), "4gpu-b32": (0.12, 100)}
"""Names of runs with seconds of a step and iterations of an epoch of 12,800 images."""

TIMES = pytest.approx([40.0, 22.0, 12.0], rel=1e-3)


def three_sizes(header=HEADER, form=repr, **how):
    return header + "".join(
        text_of(name, stamps(step_s, iterations, **how), form)
        for name, (step_s, iterations) in SIZES.items()
    )


def without_epochs(text):
    return "".join(f"{line.rpartition(',')[0]}\n" for line in text.splitlines())


# ---- the time of steps ----


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("every", [1, 10, 20, 33, 50])
@pytest.mark.parametrize("has_epochs", [True, False])
def test_time_of_steps_does_not_depend_on_how_often_they_are_logged(
    every, begin, has_epochs
):
    text = three_sizes(every=every, begin=begin)
    records, _ = records_of(text if has_epochs else without_epochs(text), images=12_800)
    assert [record.epoch_s for record in records] == TIMES
    assert [record.iterations for record in records] == [400, 200, 100]


@pytest.mark.parametrize(
    "form",
    [
        lambda at: str(int(at * 1e3)),
        lambda at: str(int(at * 1e6)),
        lambda at: str(int(at * 1e9)),
        lambda at: repr(at - BEGAN),
        lambda at: f"{at - BEGAN + 3e6:.3f}",
        lambda at: str(int(at)),
        lambda at: datetime.fromtimestamp(at, UTC).isoformat(),
        lambda at: f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        lambda at: f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.%f}",
    ],
    ids=["ms", "us", "ns", "relative", "uptime", "seconds", "ISO", "ISO Z", "no zone"],
)
def test_unit_and_origin_of_time_stamps_do_not_matter(form, request):
    records, remarks = records_of(three_sizes(form=form), images=12_800)
    unit = request.node.callspec.id
    rel = 0.1 if unit == "seconds" else 1e-3
    assert [r.epoch_s for r in records] == pytest.approx([40.0, 22.0, 12.0], rel=rel)
    is_coarse = any(
        "its time stamps are coarse: a step is known to" in line for line in remarks
    )
    assert is_coarse == (unit == "seconds")
    assert ("time stamps are in " + unit in remarks) == (unit in ("ms", "us", "ns"))


@pytest.mark.parametrize(
    ("how", "remark"),
    [
        ({"pauses": {550: 10_800}}, "1 gap of 3 h 00 min at step 550 left out"),
        (
            {"pauses": {550: 1_800, 920: 60}},
            "2 gaps of 31 min in all left out, the longest 30 mi",
        ),
        (
            {"pause_every": 50, "pause_s": 5},
            "14 gaps of 1 min in all left out, the longest 5 s a",
        ),
        ({"pause_every": 50, "pause_s": 5, "every": 10}, "gaps of "),
        ({"pause_every": 70, "pause_s": 5, "every": 20}, "gaps of "),
    ],
)
@pytest.mark.parametrize("has_epochs", [True, False])
def test_pauses_are_left_out_and_named(how, remark, has_epochs):
    text = HEADER + text_of("1gpu-b32", stamps(0.1, 400, **how))
    (record,), remarks = records_of(
        text if has_epochs else without_epochs(text), images=12_800
    )
    assert record.epoch_s == pytest.approx(40.0, rel=1e-3)
    assert has_epochs is False or any(remark in line for line in remarks)


def test_stalls_of_training_are_not_taken_for_pauses():
    at, rows = BEGAN, []
    for n in range(300):
        at += 0.2 if n % 4 == 0 else 0.01  # a loader with four workers that is too slow
        rows.append((n, at, n // 100))
    fault = fault_of(HEADER + text_of("4gpu-b32", rows), images=12_800)
    assert (
        "run 4gpu-b32: its steps take from 0.01 to 0.2 s: pauses cannot be told from"
        in fault
    )


def test_iterations_are_counted_where_every_step_has_a_row():
    records, remarks = records_of(three_sizes())
    assert [record.epoch_s for record in records] == TIMES
    assert (
        "the time of an epoch is that of a step (0.1 to 0.12 s) times its iterations"
        in remarks
    )
    again = HEADER + text_of(
        "1gpu-b32", [(n % 400, at, e) for n, at, e in stamps(0.1, 400)]
    )
    assert records_of(again)[0][0].iterations == 400


def test_iterations_come_from_a_column_the_option_or_the_images():
    text = without_epochs(HEADER + text_of("1gpu-b32", stamps(0.1, 400, every=50)))
    assert records_of(text, iterations=400)[0][0].epoch_s == pytest.approx(40)
    assert records_of(text, images=12_790)[0][0].iterations == 400
    lines = text.splitlines()
    with_column = "\n".join(
        [f"{lines[0]},iterations", *[f"{line},400.0" for line in lines[1:]]]
    )
    assert records_of(with_column)[0][0].epoch_s == pytest.approx(40)


@pytest.mark.parametrize(
    ("text", "rules", "fault"),
    [
        (
            without_epochs(three_sizes()),
            {},
            "the iterations of an epoch are not in the file: give",
        ),
        (
            three_sizes(every=50),
            {},
            "its rows every 50 steps leave 351 to 449 iterations per epo",
        ),
        (
            three_sizes(),
            {"images": 50_000},
            "its epochs have 400 steps, but 50000 images on 1 GPU ",
        ),
        (
            three_sizes(),
            {"iterations": 50},
            "its epochs have 400 steps, but iterations is 50: corr",
        ),
        (three_sizes(epochs=1), {}, "the iterations of an epoch are not in the file"),
    ],
)
def test_unknown_or_contradicting_iterations_are_refused(text, rules, fault):
    assert fault in fault_of(text, **rules)


def test_epochs_in_fractions_are_no_borders():
    rows = [(n, at, n / 400) for n, at, _ in stamps(0.1, 400, every=10)]
    text = HEADER + text_of("1gpu-b32", rows)
    assert records_of(text, images=12_800)[0][0].epoch_s == pytest.approx(40)
    assert "the iterations of an epoch are not in the file" in fault_of(text)


def test_first_of_several_epochs_is_the_warm_up():
    at, rows = BEGAN, []
    for epoch, step_s in enumerate((9, 2, 3, 2)):
        for step in range(4):
            at += step_s
            rows.append((step, at, epoch))
    (record,), remarks = records_of(HEADER + text_of("4gpu-b128", rows), images=2_048)
    assert record.epoch_s == pytest.approx(8.0)
    assert remarks[-1].startswith("the first epoch of a run is its warm-up")


def test_what_rows_cannot_show_is_said():
    few = stamps(0.1, 100, epochs=2, every=50)
    _, remarks = records_of(HEADER + text_of("4gpu-b32", few), images=12_800)
    assert (
        "run 4gpu-b32: its time is from 1 interval between rows, where a pause would "
        in remarks[1]
    )
    assert "rows are up to 50 steps apart: a pause between all of them" in remarks[-2]


def test_pause_in_most_intervals_is_refused():
    text = HEADER + text_of(
        "4gpu-b32", stamps(0.1, 100, epochs=2, every=50, pauses={130: 900})
    )
    assert "its steps take from 0.108 to 18.1 s: pauses cannot be told" in fault_of(
        text, images=12_800
    )


def test_single_epoch_includes_the_warm_up():
    _, remarks = records_of(three_sizes(epochs=1), images=12_800)
    assert remarks[-1] == "3 of 3 runs with one epoch: it includes the warm-up"


RESUMED = stamps(0.1, 400, epochs=1)[:60] + [
    (n, at + 3_600, e) for n, at, e in stamps(0.1, 400, epochs=1)[40:]
]
BEHIND = stamps(0.1, 400, epochs=1)[:60:10] + [
    (n + 5, at - 300, e) for n, at, e in stamps(0.1, 400, epochs=1)[60::10]
]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (
            RESUMED,
            "run 1gpu-b32: step 40 is given twice, in lines 42 and 62: a resume, or two runs ",
        ),
        (RESUMED[::-1], "step 40 is given twice, in lines "),
        (
            stamps(0.1, 400) * 2,
            "step 0 is given twice, in lines 2 and 1202: a resume, or two runs",
        ),
        (
            BEHIND,
            "time goes back from step 50 to step 65, in lines 7 and 8: a resume, or two",
        ),
        (
            [(n, at if n < 9 else at * 1e3, 0) for n, at, _ in RESUMED[:50]],
            "are in ms, others are",
        ),
        (
            [(n, BEGAN, 0) for n in range(9)],
            "0 s between its rows is not enough where the last dig",
        ),
        (
            [(n, float(f"{at:.6g}"), 0) for n, at, _ in RESUMED[:60]],
            "0 s between its rows is not",
        ),
        (
            [(0, BEGAN, 0), (400, BEGAN + 9, 1)],
            "no epoch has two rows: give more rows, or run,epo",
        ),
    ],
)
def test_steps_of_no_single_run_are_refused(rows, fault):
    text = HEADER + text_of("1gpu-b32", rows, lambda at: f"{at:.10g}")
    assert fault in fault_of(text, images=12_800)


def test_unusual_step_is_said():
    text = three_sizes(form=lambda at: repr((at - BEGAN) * 1e6))
    _, remarks = records_of(text, images=12_800)
    assert (
        "run 1gpu-b32: a step takes 1e+05 s: are its time stamps in seconds?" in remarks
    )


# ---- rows of epochs ----


def epochs_text(**runs):
    rows = "".join(
        f"{name.replace('_', '-')},{n},{s}\n"
        for name, times in runs.items()
        for n, s in enumerate(times)
    )
    return f"run,epoch,seconds\n{rows}"


@pytest.mark.parametrize(
    "seconds",
    [
        (30.1, 58.3, 86.6, 114.8),
        (30.1, 58.3),
        (30.1, 58.3, 86.6, 20.0, 48.1, 76.3),
        (130.0, 158.3, 186.6, 214.8),
    ],
    ids=["start", "two", "resumed", "set-up"],
)
def test_seconds_since_the_start_are_refused(seconds):
    fault = fault_of(epochs_text(**{"1gpu-b32": seconds}))
    assert (
        "as seconds since the start do: give those of each epoch, the difference"
        in fault
    )


@pytest.mark.parametrize(
    ("seconds", "epoch_s"),
    [
        ((60, 28, 28.4), 28.2),
        ((28, 28.2, 28.1, 28.3), 28.2),
        ((60, 28, 29, 28, 1_830), 28),
        ((60, 28, 1_830), 28),
        ((30, 33, 34), 33.5),
    ],
)
def test_epoch_is_the_median_without_warm_up_and_pauses(seconds, epoch_s):
    (record,), remarks = records_of(epochs_text(**{"1gpu-b32": seconds}))
    assert record.epoch_s == pytest.approx(epoch_s)
    left_out = [line for line in remarks if "was left out" in line]
    assert len(left_out) == (1_830 in seconds)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "run,epoch,seconds\n1gpu-b1,1,3\n",
            "one epoch is the warm-up: add the seconds of a se",
        ),
        (
            "run,epoch,seconds\n1gpu-b1,1,3\n1gpu-b1,1,4\n",
            "epoch 1 is given twice, in lines 2 and",
        ),
        (
            "run,epoch,seconds\n1gpu-b1,1,3\n1gpu-b1,2,\n",
            "seconds is missing in 1 of 2 rows",
        ),
        (
            "run,step,seconds\n1gpu-b1,1,3\n",
            "seconds beside step are of an epoch or of a step",
        ),
        (
            "run,step,loss\n1gpu-b1,0,2\n",
            "a history of runs without times: add the column timesta",
        ),
        (
            "run,step,timestamp\n1gpu-b1,1,3\n1gpu-b1,2,\n",
            "timestamp is missing in 1 of 2 rows",
        ),
        ("run,step,timestamp\n1gpu-b1,1,0e999\n", "timestamp=0e999: expected a number"),
        (f"run,step,timestamp\n1gpu-b1,1,1e-{'9' * 20}\n", ": expected a number"),
        (
            "run,step,timestamp\n1gpu-b1,1,1:x\n",
            "line 2: timestamp=1:x: expected seconds, or a d",
        ),
        (
            "run,epoch,seconds,accuracy\n1gpu-b1,1,3,\n1gpu-b1,2,3,640\n",
            "accuracy=640: expected 0",
        ),
        ("run,epoch,seconds\n,1,3\n,2,3\n", "line 2: run : the column run is blank"),
        ("run,epochs,seconds\n", "unknown column 'epochs'; did you mean epoch?"),
        (
            "run,step,global_step,timestamp\n",
            "step and global_step are both a column step: leave",
        ),
        (
            "run,epoch,seconds,nodes\n1gpu-b1,1,3,1\n1gpu-b1,2,3,2\n",
            "nodes is 1 in line 2 and 2 in",
        ),
    ],
)
def test_history_without_times_is_refused(text, fault):
    assert fault in fault_of(text, images=12_800)


def test_rows_of_epochs_are_a_study_with_repeats(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.csv").write_text(
        "\ufeffRun;Epoch;Seconds (s);Accuracy;gpus;batch;Note\n"
        "a;1;9;40;1;32;\na;2;4;61.5;1.0;32;x\nb;1;9;0.4;1;32;\nb;2;5;0.6;1;32;\n"
        "2026-01-01T10:00;2;2;0.6;2;32;\n2026-01-01T10:00;1;9;0.4;2;32;\n".replace(
            "1.0", "1"
        )
    )
    assert run(["import", "h.csv", "study=h"]) == 0
    records = {
        cell.slug: cell.read_record() for cell in Study(tmp_path / "outputs/h").cells()
    }
    found = sorted(
        (r.cell.gpus, r.cell.repeat, r.epoch_s, r.accuracy) for r in records.values()
    )
    assert found == [(1, 0, 4.0, 0.615), (1, 1, 5.0, 0.6), (2, 0, 2.0, 0.6)]
    shown = capsys.readouterr().err.splitlines()
    assert shown[:3] == [
        "columns that were not read: Note",
        "1 GPU, batch 32: runs a, b",
        "2 GPUs, batch 32, ddp: run 2026-01-01T10:00",
    ]
    assert run(["collect", "h"]) == 0
    assert "2.25" in capsys.readouterr().out  # the median of 4 and 5 s, over 2 s


# ---- names of runs ----


@pytest.mark.parametrize(
    ("pattern", "name", "cell"),
    [
        ("{gpus}gpu_bs{batch}", "4gpu_bs64", (4, 1, 64, "ddp")),
        ("*{gpus}gpu-bs{batch}", "vit-b16-4gpu-bs64", (4, 1, 64, "ddp")),
        (
            "{nodes}nodes_{gpus}gpus_bs{batch}*",
            "2nodes_4gpus_bs64_s1",
            (4, 2, 64, "ddp"),
        ),
        (
            "*-{strategy}-{gpus}gpu-b{batch}",
            "resnet-50-DDP-4gpu-b128",
            (4, 1, 128, "ddp"),
        ),
        ("gpus=[{gpus}] (b.{batch})", "gpus=[4] (b.64)", (4, 1, 64, "ddp")),
        ("{model}/{gpus}/{batch}", "efficientnet-b0/2/32", (2, 1, 32, "ddp")),
    ],
)
def test_pattern_reads_the_whole_name(pattern, name, cell):
    records, _ = records_of(
        epochs_text(**{name.replace("_", "~"): (9, 4)}).replace("~", "_"), pattern
    )
    read = records[0].cell
    assert (read.gpus, read.nodes, read.batch, read.strategy.value) == cell


@pytest.mark.parametrize(
    ("pattern", "name", "fault"),
    [
        (
            "{gpus}gpu_bs{batch}",
            "x4gpu",
            "run x4gpu: its name does not fit names='{gpus}gpu_bs{",
        ),
        ("{gpus}gpu-b{batch}", "4gpu-b64-x", "run 4gpu-b64-x: its name does not fit"),
        ("{gpus}gpu-b{batch}", "٤gpu-b64", "its name does not fit"),
        (
            "*b{batch}*{gpus}gpu*",
            "b16-b32-4gpu",
            "in several ways (batch=16, gpus=4 or batch=32",
        ),
        ("{model}-{gpus}-{batch}", "a-1-2-3", None),
        (
            "{model}-{gpu_model}-{gpus}-{batch}",
            "a-b-c-2-3",
            "in several ways (model=a, gpu_model=b-c",
        ),
        ("{gpus}gpu-b{batch}", "0gpu-b64", "gpus=0: must be more than 0"),
    ],
)
def test_name_that_does_not_fit_is_refused_by_name(pattern, name, fault):
    text = epochs_text(**{name: (9, 4)})
    if fault is None:
        assert records_of(text, pattern)[0][0].cell.workload.name == "a-1"
    else:
        assert fault in fault_of(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("{gpus}{batch}", "{gpus} and {batch} touch; write what is between them"),
        ("**{gpus}-{batch}", "* and * touch"),
        ("{gpus}gpu_b{bs}", "{bs} is no column of a cell: choose one of gpus, batch"),
        ("{gpu}_{batch}", "did you mean gpus?"),
        ("{gpus}_{epoch_s}", "{epoch_s} is no column of a cell"),
        ("{gpus}_{gpus}", "{gpus} is given 2 times"),
        (
            "gpus_batch",
            "write the columns in braces, as in names='{gpus}gpu_bs{batch}'",
        ),
        ("{}_{gpus}", "{} is no column of a cell"),
        ("{gpus}_{batch", "'_{batch' has a brace without its pair"),
    ],
)
def test_invalid_pattern_is_refused(pattern, fault):
    message = fault_of(epochs_text(a=(9, 4)), pattern, UsageError)
    assert message.startswith(f"names='{pattern}': ")
    assert fault in message


def test_names_are_read_by_a_pattern_only():
    text = epochs_text(**{"ddp-4gpu-b128": (9, 4)})
    message = fault_of(text, None)
    assert (
        "names of runs (ddp-4gpu-b128) are not read without a pattern: add columns gpus"
        in message
    )
    assert "add the column batch, or e.g. names=" in fault_of(
        text, "{strategy}-{gpus}gpu-*"
    )
    both = "run,epoch,seconds,gpus\n4gpu-b32,1,2,4\n"
    assert "gpus is a column and in names=: leave one out" in fault_of(
        both, kind=UsageError
    )
    assert "names= is of a history of runs" in fault_of(
        "gpus,batch,epoch_s\n1,2,3\n", kind=UsageError
    )


# ---- exports of other tools ----


def test_names_of_other_tools_are_read_and_those_of_wandb_last():
    rows = [(n, at, e) for n, at, e in stamps(0.1, 400, every=50)]
    lines = "".join(f"1gpu-b32,{i},{at},{n},0.1\n" for i, (n, at, _) in enumerate(rows))
    text = "run,_step,_timestamp,trainer/global_step,lr\n" + lines
    (record,), remarks = records_of(text, images=12_800)
    assert record.epoch_s == pytest.approx(40)
    assert remarks[0] == "columns that were not read: _step, lr"


CHART = '"Step","ddp - 1gpu-b32 - seconds","ddp - 1gpu-b32 - seconds__MIN","4gpu-b32 - seconds"\n'


def test_chart_of_wandb_is_read():
    text = (
        CHART
        + '"0","60","60","20"\n"391","28","28",""\n"782","29","29","9"\n"799","","","10"\n'
    )
    records, remarks = records_of(text)
    assert [record.epoch_s for record in records] == [28.5, 9.5]
    assert remarks[0] == "1 GPU, batch 32: run ddp - 1gpu-b32"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            CHART.replace("seconds", "epoch_time"),
            "W&B's chart of epoch_time: if these are the seco",
        ),
        (
            CHART + "1,28,27,9\n",
            "has the means of several runs or rows (line 2: 27): export it",
        ),
    ],
)
def test_chart_of_something_else_has_a_way_on(text, fault):
    assert fault in fault_of(text)


def test_timings_may_have_a_column_run():
    (record,), remarks = records_of("run,gpus,batch,epoch_s\nx,1,32,4\n", None)
    assert (record.epoch_s, remarks) == (4, ["columns that were not read: run"])


@pytest.mark.parametrize(
    ("seconds", "offset"),
    [((28.0, 28.3), 400), ((28.0, 28.3, 28.1), 0), ((8.1, 8.3, 8.2, 8.1), 300)],
)
def test_seconds_since_any_moment_are_refused(seconds, offset):
    at, rows = offset, "run,epoch,seconds\n"
    for epoch, length in enumerate((30.0, *seconds)):
        at += length
        rows += f"1gpu-b32,{epoch},{at}\n"
    assert "as seconds since the start do" in fault_of(rows)


def test_epochs_in_fractions_contradict_the_images():
    """Two micro-batches of one step: half as many steps as batches."""
    rows = [(step, at, step / 50) for step, at, _ in stamps(0.2, 50)]
    text = HEADER + text_of("4gpu-b32", rows)
    assert "its epochs have 50 steps, but 12800 images" in fault_of(text, images=12800)
    (record,), _ = records_of(text, iterations=50)
    assert record.epoch_s == pytest.approx(10.0, rel=1e-3)


def test_whole_epochs_with_few_rows_contradict_the_images():
    text = HEADER + text_of("4gpu-b32", stamps(0.2, 98, epochs=10, every=50))
    fault = fault_of(text, images=98 * 2 * 128)
    assert "9 epochs have" in fault and "make 196 each" in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "run,epoch,seconds\n1gpu-b1,0.5,3\n1gpu-b1,1,3\n",
            "give a row for each whole epoch",
        ),
        (
            "run,epoch,step,seconds\n1gpu-b1,1,99,3\n1gpu-b1,2,198,3\n",
            "seconds beside step",
        ),
        (
            "run,epoch,seconds\n"
            + "".join(f"1gpu-b1,{n},{5 if n % 2 else 28}\n" for n in range(8)),
            "of its 7 epochs are more than twice as long",
        ),
    ],
)
def test_rows_of_something_else_are_refused(text, fault):
    assert fault in fault_of(text, images=12800)


def test_iterations_of_runs_with_other_batches_differ():
    text = without_epochs(three_sizes())
    assert "their epochs differ" in fault_of(text, kind=UsageError, iterations=400)


def test_steps_that_are_a_part_of_an_epoch_are_named():
    rows = [(epoch, BEGAN + 9.3 * epoch, 0) for epoch in range(1, 9)]
    text = without_epochs(HEADER + text_of("1gpu-b32", rows))
    _, remarks = records_of(text, images=12800)
    assert any(
        "are a part of an epoch of 400 iterations" in remark for remark in remarks
    )


def test_whole_seconds_are_coarse_however_they_are_written():
    whole, fractions = (
        records_of(three_sizes(form=form, every=20), images=12800)[0]
        for form in (int, float)
    )
    as_float = records_of(
        three_sizes(form=lambda at: f"{int(at)}.0", every=20), images=12800
    )[0]
    assert [r.epoch_s for r in as_float] == [r.epoch_s for r in whole]
    assert [r.epoch_s for r in fractions] == TIMES


def test_chart_is_read_in_the_order_of_its_axis():
    text = '"Step","1gpu-b32 - seconds"\n2,28.2\n1,28.1\n0,50\n'
    (record,), _ = records_of(text)
    assert record.epoch_s == pytest.approx(28.15)
