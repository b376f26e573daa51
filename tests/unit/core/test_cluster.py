"""Each cluster of conf/cluster is asked in its own way, and what it refuses is refused before."""

import functools

import msgspec
import pytest

from hpml_jobs.core.cluster import (
    Cluster,
    Container,
    Shape,
    cluster_of,
    followup_options,
    sbatch_options,
)
from hpml_jobs.core.errors import UsageError
from hpml_jobs.plan.capacity import check_inventory
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm.nodes import Node

ACCOUNT = "cluster.account=mine"


@functools.cache
def compose_cluster(name, *words):
    """A cluster from its file, with words of the command line; Hydra is slow enough to ask once."""
    asked = [f"cluster={name}", "workload=digits", *words]
    return expand(asked, multirun=False).settings[0].cluster


@pytest.fixture
def cluster(working_folder):
    """A cluster as a person without defaults of their own gets it: cluster(name, *words)."""
    return compose_cluster


def shape_of(kind, gpus=4, nodes=1, **changes):
    memory = changes.pop("mem_gb_per_node", 32 * gpus)
    return Shape(
        nodes=nodes,
        gpus_per_node=gpus,
        gpu_type=kind,
        cpus_per_node=3 * gpus,
        mem_gb_per_node=memory,
        minutes=30,
    )


COMMON = {
    **{
        "nodes": 1,
        "ntasks-per-node": 1,
        "cpus-per-task": 12,
        "time": 30,
        "requeue": True,
    },
    "dependency": "singleton",  # one cell at a time
}


def test_greene_has_gpu_type_in_gres_and_no_partition(cluster):
    asked = sbatch_options(shape_of("v100"), cluster("greene"))
    assert asked == {**COMMON, "mem": "128G", "gres": "gpu:v100:4"}


def test_torch_has_gpu_type_constraint_and_preemption_comment(cluster):
    torch = cluster("torch", ACCOUNT)
    torch.check()
    assert sbatch_options(shape_of("h200", 8), torch) == {
        **COMMON,
        "cpus-per-task": 24,
        "mem": "256G",
        "account": "mine",
        "gres": "gpu:8",
        "constraint": "h200",
        "comment": "preemption=yes;requeue=true",
    }


def test_burst_partition_follows_gpu_type_and_number(cluster):
    burst = cluster("burst", ACCOUNT)
    burst.check()
    asked = sbatch_options(shape_of("l4", 2, mem_gb_per_node=None), burst)
    assert (asked["partition"], asked["gres"]) == ("g2-standard-24", "gpu:2")
    assert asked["requeue"] is True
    assert "mem" not in asked


def test_cpu_cluster_requests_no_gpus(cluster):
    asked = sbatch_options(
        shape_of(None, gpus=0), cluster("slurm", "cluster.device=cpu")
    )
    assert not {"gres", "constraint", "partition"} & set(asked)


@pytest.mark.parametrize(
    ("isolate", "expected"),
    [
        ("off", {}),
        ("serial", {"dependency": "singleton"}),
        ("exclusive", {"exclusive": True}),
    ],
)
def test_isolate_is_singleton_or_exclusive_nodes(cluster, isolate, expected):
    asked = sbatch_options(
        shape_of("v100"), cluster("greene", f"cluster.isolate={isolate}")
    )
    assert {
        k: v for k, v in asked.items() if k in ("dependency", "exclusive")
    } == expected


def test_line_break_never_reaches_a_script(cluster):
    torch = msgspec.structs.replace(cluster("torch"), account="x\ntouch PWN")
    with pytest.raises(
        UsageError, match=r"sbatch's --account has a line break or a control char"
    ):
        sbatch_options(shape_of("h200"), torch)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t", "use minutes= instead, for sbatch's --time"),
        ("Time", "--time"),
        ("gpus_per_node", "use gpus= and gpu_type= instead"),
        ("nice\n#SBATCH --time", "not an option of sbatch"),
    ],
)
def test_spellings_of_what_the_program_sets_are_refused(cluster, name, words):
    greene = msgspec.structs.replace(cluster("greene"), sbatch={name: 60})
    with pytest.raises(UsageError, match=words):
        sbatch_options(shape_of("v100"), greene)


def test_followup_job_has_the_options_of_the_site(cluster):
    words = (
        "+cluster.sbatch.qos=q",
        "+cluster.sbatch.constraint=ib",
        "+cluster.sbatch.wckey=w",
        "cluster.partition=p",
    )
    site = cluster(
        "slurm",
        *(ACCOUNT, *words, "+cluster.sbatch.comment=c"),
        "+cluster.sbatch.reservation=r",
    )
    asked = followup_options(site, 4)
    assert asked == {
        **{
            "partition": "p",
            "account": "mine",
            "qos": "q",
            "comment": "c",
            "constraint": "ib",
        },
        **{
            "wckey": "w",
            "reservation": "r",
            "nodes": 1,
            "ntasks": 1,
            "cpus-per-task": 1,
        },
    }
    other = msgspec.structs.replace(site, cpu_partition="cpu", mem_gb_per_gpu=8)
    asked = followup_options(other, 4)
    assert (asked["partition"], asked["mem"], "constraint" in asked) == (
        "cpu",
        "4G",
        False,
    )


@pytest.mark.parametrize(
    ("name", "kind", "gpus", "nodes"),
    [
        ("greene", "v100", 8, 2),
        ("torch", "h200", 8, 1),
        ("slurm", "anything", 64, 1),
    ],
)
def test_nodes_are_the_fewest_that_hold_the_gpus(cluster, name, kind, gpus, nodes):
    assert cluster(name).nodes_for(gpus, kind) == nodes


def test_no_container_uses_our_python_or_the_given_one(cluster):
    assert cluster("greene").python_command("/env/bin/python") == ["/env/bin/python"]
    other = cluster("greene", "cluster.python=/other/python")
    assert other.python_command("/env/bin/python") == ["/other/python"]


def test_container_overlay_is_read_only():
    box = Container(
        runtime="apptainer",
        image="/i.sif",
        overlay="/o.ext3",
        binds=("/scratch", "/a b"),
    )
    command = Cluster(name="x", container=box).python_command("/env/bin/python")
    assert command == [
        *("apptainer", "exec", "--nv", "--overlay", "/o.ext3:ro"),
        *("--bind", "/scratch", "--bind", "/a b", "/i.sif", "/bin/bash", "-c"),
        *('source /ext3/env.sh; exec python "$@"', "python"),
    ]


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (
            Container(overlay="/o.ext3"),
            r"overlay=/o\.ext3: give cluster\.container\.image=",
        ),
        (Container(image="plain"), r"image=plain: the folder is not a sandbox"),
    ],
)
def test_container_that_cannot_run_is_refused(tmp_path, monkeypatch, container, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").mkdir()
    (tmp_path / "sandbox" / ".singularity.d").mkdir(parents=True)
    Cluster(name="x", container=Container(image="sandbox", overlay="/o.ext3")).check()
    with pytest.raises(UsageError, match=words):
        Cluster(name="x", container=container).check()


NODES = [
    Node("g1", "rtx8000", 4, 48, 190.0, frozenset({"main"})),
    Node("g2", "rtx8000", 4, 16, 190.0, frozenset({"main", "short"})),
    Node("v1", "v100", 2, 40, 64.0, frozenset({"main"})),
    Node("c1", None, 0, 48, 190.0, frozenset({"cpu"})),
]


def test_impossible_request_is_refused(cluster):
    with pytest.raises(
        UsageError,
        match=r"v100 of 4 GPUs each; 0 of the nodes here can .*largest has 2",
    ):
        check_inventory(shape_of("v100", 4), cluster("slurm"), NODES)


def test_only_nodes_of_the_partition_count(cluster):
    short = cluster("slurm", "cluster.partition=short")
    assert check_inventory(shape_of("rtx8000"), short, NODES) is None
    with pytest.raises(UsageError, match=r"each; 1 of the nodes here "):
        check_inventory(shape_of("rtx8000", nodes=2), short, NODES)
    with pytest.raises(
        UsageError, match=r"partition nope does not exist here: cpu, main, short"
    ):
        check_inventory(
            shape_of("rtx8000"), cluster("slurm", "cluster.partition=nope"), NODES
        )


def test_cluster_of_a_study_before_1_0_keeps_its_options():
    older = {"name": "torch", "qos": "high", "wckey": None, "known_as": ["torch"]}
    older |= {"sbatch": {"reservation": "class"}, "max_array_size": 10}
    assert cluster_of(older) == Cluster(
        name="torch", sbatch={"qos": "high", "reservation": "class"}
    )
