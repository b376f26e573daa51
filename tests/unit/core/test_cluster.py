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
from hpml_jobs.core.sbatch import OPTIONS
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


def test_greene_accepts_partition_and_account(cluster):
    greene = cluster(
        "greene", "cluster.partition=tandon_h100_1", ACCOUNT, "+cluster.sbatch.qos=high"
    )
    greene.check()
    asked = sbatch_options(shape_of("h100"), greene)
    assert (asked["partition"], asked["account"], asked["qos"]) == (
        *("tandon_h100_1", "mine", "high"),
    )


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


def test_user_constraint_is_combined_with_gpu_type(cluster):
    torch = cluster("torch", ACCOUNT, "+cluster.sbatch.constraint=icelake")
    assert sbatch_options(shape_of("l40s"), torch)["constraint"] == "icelake&l40s"


def test_torch_takes_a_named_partition(cluster):
    torch = cluster("torch", ACCOUNT, "cluster.partition=l40s_public")
    torch.check()
    assert sbatch_options(shape_of("l40s"), torch)["partition"] == "l40s_public"


@pytest.mark.parametrize(
    ("gpus", "partition"),
    [(1, "g2-standard-12"), (2, "g2-standard-24"), (4, "g2-standard-48")],
)
def test_burst_partition_follows_gpu_type_and_number(cluster, gpus, partition):
    burst = cluster("burst", ACCOUNT)
    burst.check()
    asked = sbatch_options(shape_of("l4", gpus, mem_gb_per_node=None), burst)
    assert (asked["partition"], asked["gres"]) == (partition, f"gpu:{gpus}")
    assert asked["requeue"] is True
    assert "mem" not in asked


def test_generic_slurm_sets_only_requested_options(cluster):
    asked = sbatch_options(shape_of("a40", mem_gb_per_node=None), cluster("slurm"))
    assert asked == {**COMMON, "gres": "gpu:a40:4"}


def test_gpus_without_type_are_requested_by_number(cluster):
    assert sbatch_options(shape_of(None), cluster("slurm"))["gres"] == "gpu:4"


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


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"account": "x\ntouch PWN"}, "account"),
        ({"sbatch": {"comment": "a\x1b[2J"}}, "comment"),
        ({"sbatch": {"nice": "1\r2"}}, "nice"),
    ],
)
def test_line_break_never_reaches_a_script(cluster, change, name):
    torch = msgspec.structs.replace(cluster("torch", ACCOUNT), **change)
    with pytest.raises(
        UsageError, match=f"sbatch's --{name} has a line break or a control char"
    ):
        sbatch_options(shape_of("h200"), torch)


def test_other_sbatch_options_are_passed_on(cluster):
    words = (
        "+cluster.sbatch.reservation=class",
        "+cluster.sbatch.hold=true",
        "+cluster.sbatch.wckey=w",
    )
    asked = sbatch_options(shape_of("v100"), cluster("greene", *words))
    assert (asked["reservation"], asked["hold"], asked["wckey"]) == ("class", True, "w")


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_option_that_the_program_sets_is_refused_with_its_key(cluster, name):
    with pytest.raises(UsageError) as refused:
        sbatch_options(shape_of("v100"), cluster("greene", f"+cluster.sbatch.{name}=2"))
    keys = OPTIONS[name].keys
    remedy = f"use {keys} instead" if keys else "leave it out"
    assert str(refused.value).startswith(f"cluster.sbatch.{name}=: {remedy}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t", "use minutes= instead, for sbatch's --time"),
        ("-t", "--time"),
        ("tim", "--time"),
        ("Time", "--time"),
        ("gpus_per_node", "use gpus= and gpu_type= instead"),
        ("ntasks_per", "leave it out"),
        ("J", "--job-name"),
        ("w", "write the long name of sbatch's -w"),
        ("nice=0 --time", "not an option of sbatch"),
        ("nice\n#SBATCH --time", "not an option of sbatch"),
    ],
)
def test_spellings_of_what_the_program_sets_are_refused(cluster, name, words):
    greene = msgspec.structs.replace(cluster("greene"), sbatch={name: 60})
    with pytest.raises(UsageError, match=words):
        sbatch_options(shape_of("v100"), greene)


def test_memory_per_cpu_is_the_users_where_the_program_requests_none(cluster):
    slurm = cluster("slurm", "+cluster.sbatch.mem-per-cpu=2G")
    asked = sbatch_options(shape_of("v100", mem_gb_per_node=None), slurm)
    assert (asked["mem-per-cpu"], "mem" in asked) == ("2G", False)
    assert followup_options(slurm, 4)["mem-per-cpu"] == "2G"


@pytest.mark.parametrize("name", ["a,b", "all b", ""])
def test_jobs_are_on_one_cluster(cluster, name):
    several = msgspec.structs.replace(cluster("slurm"), clusters=name)
    if not name:
        several.check()
        return
    with pytest.raises(
        UsageError, match=rf"cluster.clusters={name} \(SLURM_CLUSTERS\): name one"
    ):
        several.check()


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


@pytest.mark.parametrize("name", ["greene", "slurm", "local"])
def test_cluster_without_mandatory_settings_is_accepted(cluster, name):
    cluster(name).check()
    assert cluster(name).account is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("greene", "rtx8000"), ("torch", "l40s"), ("burst", "l4"), ("slurm", None)],
)
def test_every_profile_has_a_default_gpu_type(cluster, name, kind):
    assert cluster(name).gpu_type_for(None) == kind


def test_several_gpu_types_without_default_need_a_choice(cluster):
    both = msgspec.structs.replace(cluster("slurm"), gpu_types={"b": 4, "a": 2})
    with pytest.raises(UsageError, match=r"has GPU types a, b: name one, gpu_type="):
        both.gpu_type_for(None)


@pytest.mark.parametrize(
    ("name", "kind", "gpus", "nodes"),
    [
        ("greene", "v100", 4, 1),
        ("greene", "v100", 8, 2),
        ("greene", "v100", 6, 2),
        ("torch", "h200", 8, 1),
        ("torch", "l40s", 8, 2),
        ("burst", "a100", 2, 1),
        ("slurm", "anything", 64, 1),
        ("local", None, 64, 1),
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
    ("name", "runtime"), [("greene", "singularity"), ("torch", "apptainer")]
)
def test_each_cluster_has_its_container_runtime(cluster, name, runtime):
    with_image = cluster(name, "cluster.container.image=/i.sif")
    assert with_image.python_command("python")[:2] == [runtime, "exec"]


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


def test_other_runtimes_are_refused(cluster):
    with pytest.raises(
        UsageError, match=r"runtime=docker: choose one of apptainer, singularity"
    ):
        cluster("greene", "cluster.container.runtime=docker")


def test_shape_has_readable_text():
    assert str(shape_of("v100")) == "1 node x 4 v100, 12 CPUs, 128 GB, 30 min"
    assert (
        str(shape_of(None, gpus=0, nodes=2, mem_gb_per_node=None))
        == "2 nodes, 0 CPUs, 30 min"
    )


NODES = [
    Node("g1", "rtx8000", 4, 48, 190.0, frozenset({"main"})),
    Node("g2", "rtx8000", 4, 16, 190.0, frozenset({"main", "short"})),
    Node("v1", "v100", 2, 40, 64.0, frozenset({"main"})),
    Node("c1", None, 0, 48, 190.0, frozenset({"cpu"})),
]


def test_impossible_request_is_refused(cluster):
    with pytest.raises(
        UsageError, match=r"with v100 can give that \(the largest has 2"
    ):
        check_inventory(shape_of("v100", 4), cluster("slurm"), NODES)


def test_too_many_cpus_are_refused_by_name(cluster):
    asks = msgspec.structs.replace(shape_of("rtx8000"), cpus_per_node=64)
    with pytest.raises(
        UsageError, match=r"of 64 CPUs each; .* largest has 48.*loader_workers="
    ):
        check_inventory(asks, cluster("slurm"), NODES)


@pytest.mark.parametrize(
    "asks", [shape_of("rtx8000", nodes=2), shape_of("v100", 2, mem_gb_per_node=64)]
)
def test_fitting_request_is_accepted(cluster, asks):
    assert check_inventory(asks, cluster("slurm"), NODES) is None


def test_only_nodes_of_the_partition_count(cluster):
    short = cluster("slurm", "cluster.partition=short")
    assert check_inventory(shape_of("rtx8000"), short, NODES) is None
    with pytest.raises(UsageError, match=r"each; 1 of the "):
        check_inventory(shape_of("rtx8000", nodes=2), short, NODES)
    with pytest.raises(
        UsageError, match=r"partition nope does not exist here: cpu, main, short"
    ):
        check_inventory(
            shape_of("rtx8000"), cluster("slurm", "cluster.partition=nope"), NODES
        )


def test_unknown_gpu_type_names_accept_any_gpu_node(cluster):
    """Where SLURM has no types or other names for them, any node with GPUs counts."""
    untyped = [Node("n1", None, 4, 48, 190.0, frozenset({"main"})), NODES[3]]
    assert check_inventory(shape_of("l40s"), cluster("slurm"), untyped) is None
    named = [Node("n1", "nvidia_l40s", 4, 48, 190.0, frozenset({"main"}))]
    assert check_inventory(shape_of("l40s"), cluster("torch", ACCOUNT), named) is None


def test_burst_derived_partition_must_have_enough_nodes(cluster):
    cloud = [Node("b1", None, 4, 48, 190.0, frozenset({"g2-standard-48"}))]
    burst = cluster("burst", ACCOUNT)
    assert check_inventory(shape_of("l4", mem_gb_per_node=None), burst, cloud) is None
    with pytest.raises(UsageError, match=r"each; 1 of the "):
        check_inventory(shape_of("l4", nodes=2, mem_gb_per_node=None), burst, cloud)
    with pytest.raises(
        UsageError, match=r"partition g2-standard-12 does not exist here"
    ):
        check_inventory(shape_of("l4", 1, mem_gb_per_node=None), burst, cloud)


def test_cluster_of_a_study_before_1_0_keeps_its_options():
    older = {"name": "torch", "qos": "high", "wckey": None, "known_as": ["torch"]}
    older |= {"sbatch": {"reservation": "class"}, "max_array_size": 10}
    assert cluster_of(older) == Cluster(
        name="torch", sbatch={"qos": "high", "reservation": "class"}
    )


def test_no_requeue_replaces_the_programs_requeue(cluster):
    greene = cluster("greene", "+cluster.sbatch.no-requeue=true")
    asked = sbatch_options(shape_of("v100"), greene)
    assert (asked["no-requeue"], "requeue" in asked) == (True, False)
