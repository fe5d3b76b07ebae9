"""A real OAR of one node with its database, in namespaces of its own: nothing outside of it is changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from tests.deploy.files import ROOT
from tests.deploy.machines import BatchNode, machine, node1

__all__ = ["OarNode", "oar_node"]

_PROGRAMS = ("unshare", "nsenter", "ip", "oarsub", "oar-server", "sshd")
_SQL = Path("/usr/lib/oar/database")

# The directories of Debian's packages, with files of this cluster in their places. Without the property
# of cpusets, jobs have no control groups. The rule that is deleted refuses jobs of root.
_START = """
for file in .bashrc .bash_profile .profile; do
  [ ! -e /root/$file ] || mount --bind /dev/null /root/$file  # shells of jobs read them
done
mount -t tmpfs tmpfs /mnt  # other users cannot read directories of tests
mkdir /mnt/etc /mnt/lib /mnt/log /mnt/database
cp -a /etc/oar/. /mnt/etc
cp -a /var/lib/oar/. /mnt/lib
sed -i 's/^SERVER_HOSTNAME.*/SERVER_HOSTNAME="node1"/; s/^\\(DB_BASE_PASSWD[A-Z_]*\\)=.*/\\1="oar"/
  s/^JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD/#&/; s/^SCHEDULER_JOB_SECURITY_TIME.*/SCHEDULER_JOB_SECURITY_TIME="1"/
  s/^\\([A-Z]*\\)_HOSTNAME="127.*/\\1_HOSTNAME="node1"/; s/^DB_HOSTNAME.*/DB_HOSTNAME="127.0.0.1"/' /mnt/etc/oar.conf
mount --bind /mnt/etc /etc/oar
mount --bind /mnt/lib /var/lib/oar
mount --bind /mnt/log /var/log
mkdir -p /run/oar /run/sshd
chown oar: /run/oar
install -o oar /dev/null /var/log/oar.log
chown postgres /mnt/database
cd /
runuser -u postgres -- {postgres}/initdb --pgdata=/mnt/database --auth=trust --encoding=UTF8 >/dev/null
runuser -u postgres -- {postgres}/pg_ctl --pgdata=/mnt/database --wait --log=/mnt/database/log \\
  --options="-c listen_addresses=127.0.0.1 -c fsync=off -k /mnt/database" start >/dev/null
ask() {{ psql --quiet --host=127.0.0.1 --username="$1" "$1" "${{@:2}}"; }}
ask postgres -c "CREATE ROLE oar LOGIN" -c "CREATE ROLE oar_ro LOGIN" -c "CREATE DATABASE oar OWNER oar"
for name in pg_structure default_data pg_default_admission_rules; do ask oar -f {sql}/$name.sql; done
ask oar -c "GRANT SELECT ON ALL TABLES IN SCHEMA public TO oar_ro"
ask oar -c "DELETE FROM admission_rules WHERE rule LIKE '%root and oar users%'"
$(command -v sshd) -f /etc/oar/sshd_config -o PidFile=/mnt/sshd.pid
oar-server &
until oarnodesetting -a -h node1 -p cpuset=1; do sleep 0.5; done
for slot in 2 3 4 5 6; do oarnodesetting -a -h node1 -p cpuset=$slot; done
exec sleep infinity
"""


class OarNode(BatchNode):
    """A cluster that runs."""

    kind = "oar"
    cluster_options: ClassVar = {
        "resource_spec": "/resource_id=1",
        "memory_per_core_property_name": "not_applicable",
        "job_script_prologue": [f"export PYTHONPATH={ROOT}"],
    }

    def jobs(self) -> dict[str, str]:
        """Return the state of each job by its number."""
        lines = (line.split() for line in self.run("oarstat").splitlines())
        names = {"R": "running"}
        return {
            words[0]: names.get(words[1], words[1])
            for words in lines
            if words[:1] and words[0].isdigit()
        }

    def delete(self, job: str) -> None:
        """Delete a job."""
        self.run("oardel", job)

    def n_past_jobs(self, logs: Path) -> int:
        """Return the number of jobs that wrote a log."""
        return len(list(logs.glob("OAR.*.stdout")))


@contextmanager
def oar_node(root: Path) -> Iterator[OarNode]:
    """Start the cluster with its files in `root`; skips where that is not possible."""
    postgres = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if any(shutil.which(name) is None for name in _PROGRAMS) or not (postgres and _SQL.is_dir()):
        pytest.skip(
            "OAR is not installed (apt-get install oar-server oar-server-pgsql oar-user oar-user-pgsql "
            "oar-node postgresql openssh-server iproute2)"
        )
    with machine(
        node1(root) + _START.format(postgres=postgres[-1], sql=_SQL),
        root,
        lambda started: started.run("oarnodes", "-s").count("Alive") == 6,
        environment=os.environ,
    ) as started:
        yield OarNode(started.pid, started.environment)
