"""The keys of the training path on the command line."""

from hpml_jobs.core.training_path import CompileMode, Precision
from tests.unit.plans import plan_of

LOCAL = ("cluster=local", "device=cpu")


def cells_of(*words):
    return [planned.cell for planned in plan_of(*LOCAL, *words).cells]


def test_swept_path_gives_cells_of_each(working_folder):
    cells = cells_of("gpus=1,2", "batch=64", "precision=fp32,bf16", "accumulate=1,2")
    assert [cell.path.label for cell in cells] == [
        *("", "accumulate 2", "bf16", "bf16, accumulate 2"),
        *("", "accumulate 2", "bf16", "bf16, accumulate 2"),
    ]
    # fp32 is the default
    assert {cell.path.precision for cell in cells} == {
        None,
        Precision.BF16,
    }


def test_compile_is_a_switch_or_a_mode(working_folder):
    cells = cells_of("compile=false,true,default,max-autotune")
    modes = [None, CompileMode.DEFAULT, CompileMode.MAX_AUTOTUNE]
    assert [cell.path.compile for cell in cells] == modes  # true is default


def test_global_batch_gives_the_batch_of_each_size(working_folder):
    cells = cells_of("gpus=1,2,4", "global_batch=256", "accumulate=1,2")
    assert [(cell.gpus, cell.batch) for cell in cells] == [
        *((1, 256), (1, 128), (2, 128), (2, 64), (4, 64), (4, 32)),
    ]
    assert {cell.global_batch for cell in cells} == {256}
