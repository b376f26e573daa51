"""Cells on machines without SLURM, which are started by ssh."""

from hpml_jobs.core.features import Feature, Runner

FEATURE = Feature(
    runners={
        "cluster.hosts": Runner(
            check="extras.hosts.ssh:check_hosts", run="extras.hosts.ssh:run_on_hosts"
        )
    }
)
