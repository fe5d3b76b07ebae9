"""A real Grid Engine of one node, in namespaces of its own: nothing outside of it is changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree as ET

import pytest

from tests.deploy.machines import BatchNode, machine, node1

__all__ = ["SgeNode", "sge_node"]

_PROGRAMS = ("unshare", "nsenter", "ip", "qsub", "qconf")
_DAEMONS = Path("/usr/lib/gridengine")
_SETUP = Path("/usr/share/gridengine/scripts/init_cluster")

# The directories of Debian's packages, with files of this cluster in their places.
_START = """
mkdir {root}/spool {root}/cell
cp -a $SGE_ROOT/default/. {root}/cell
mount --bind {root}/spool /var/spool/gridengine
mount --bind {root}/cell $SGE_ROOT/default
mkdir -p /var/spool/gridengine/qmaster/job_scripts /var/spool/gridengine/spooldb /var/spool/gridengine/execd
chmod 755 {root}
chown -R sgeadmin: /var/spool/gridengine {root}/cell
echo node1 >{root}/cell/common/act_qmaster
cd /
runuser -u sgeadmin -- {setup} $SGE_ROOT default /var/spool/gridengine/spooldb sgeadmin
{daemons}/spooldefaults managers root
{daemons}/sge_qmaster
until qconf -sh; do sleep 0.2; done
qconf -as node1
qconf -Ae {root}/exec_host
qconf -Ahgrp {root}/host_group
qconf -sq | sed 's/^qname .*/qname main.q/; s/^hostlist .*/hostlist @allhosts/; s/^slots .*/slots 12/
  s/^pe_list .*/pe_list NONE/; s/^ckpt_list .*/ckpt_list NONE/; s/^load_thresholds.*/load_thresholds NONE/
  s/^shell_start_mode .*/shell_start_mode unix_behavior/' >{root}/queue
qconf -Aq {root}/queue
mkdir {root}/configuration
qconf -sconf | sed 's/^min_[ug]id .*//; s/^execd_spool_dir.*/execd_spool_dir \\/var\\/spool\\/gridengine\\/execd/
  $a min_uid 0\\nmin_gid 0' >{root}/configuration/global
qconf -Mconf {root}/configuration/global
qconf -ssconf | sed 's/^schedule_interval .*/schedule_interval 0:0:2/; s/^flush_\\(.*\\)_sec.*/flush_\\1_sec 1/' >{root}/schedule
qconf -Msconf {root}/schedule
{daemons}/sge_execd
exec sleep infinity
"""

_EXEC_HOST = """hostname node1
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""


class SgeNode(BatchNode):
    """A cluster that runs."""

    kind = "sge"
    cluster_options: ClassVar = {"job_extra_directives": ["-V"]}

    def jobs(self) -> dict[str, str]:
        """Return the state of each job by its number."""
        text = self.run("qstat", "-xml", "-u", "*")
        return {
            str(job.findtext("JB_job_number")): str(job.get("state"))
            for job in ET.fromstring(text).iter("job_list")
        }

    def delete(self, job: str) -> None:
        """Delete a job."""
        self.run("qdel", job)

    def n_past_jobs(self, logs: Path) -> int:
        """Return the number of jobs that wrote a log."""
        return len({path.name.rpartition(".o")[2] for path in logs.glob("*.o*")})


@contextmanager
def sge_node(root: Path) -> Iterator[SgeNode]:
    """Start the cluster with its files in `root`; skips where that is not possible."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing or not _SETUP.exists():
        pytest.skip(
            "Grid Engine is not installed (apt-get install gridengine-master gridengine-exec "
            "gridengine-client iproute2)"
        )
    (root / "exec_host").write_text(_EXEC_HOST)
    (root / "host_group").write_text("group_name @allhosts\nhostlist node1\n")
    start = _START.format(root=root, daemons=_DAEMONS, setup=_SETUP)
    with machine(
        node1(root) + start,
        root,
        lambda started: "node1 " in started.run("qhost").replace(" -  ", ""),
        environment={**os.environ, "SGE_ROOT": "/var/lib/gridengine", "SGE_CELL": "default"},
    ) as started:
        yield SgeNode(started.pid, started.environment)
