"""What a sandbox needs of the machine."""

import os
import shutil
import subprocess
import sys

from sandbox.cluster import DAEMON_ENVIRONMENT, needs_root
from sandbox.groups import Groups
from sandbox.kernel import MS_REC, MS_SLAVE, Refused, bind, failed, in_child, mount, read, unshare, write

NEED = (
    ("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("sbatch", "slurm-wlm"), ("srun", "slurm-wlm"),
    ("munged", "munge"), ("ip", "iproute2"),
)  # fmt: skip


def missing():
    paths = os.environ.get("PATH", os.defpath) + ":" + DAEMON_ENVIRONMENT["PATH"]
    return sorted({package for program, package in NEED if not shutil.which(program, path=paths)})


def able(options):
    """Refuses with the reason where a sandbox cannot be."""
    if not sys.platform.startswith("linux"):
        raise Refused("The sandbox needs Linux.", 3)
    needs_root()
    packages = missing()
    if packages and options.get("install"):
        install(packages)
        packages = missing()
    if packages:
        raise Refused("These packages are missing (`--install` installs them on Debian and Ubuntu): %s" % " ".join(packages), 3)

    def probe():
        unshare("mnt", "uts", "ipc", "net", "pid")
        lines = b"link add b0 type bridge\nlink add v0 type veth peer name v1\nlink set v0 master b0\n"
        done = subprocess.run(["ip", "-batch", "-"], input=lines, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise failed("no bridge or veth: " + " ".join(done.stdout.decode(errors="replace").split()))

    try:
        in_child(probe)
    except Refused as error:
        raise Refused("The kernel or the container does not allow what a sandbox needs: %s" % error, 3)
    if options["proctrack"] == "cgroup":
        hierarchy, why = Groups.usable()
        if hierarchy is None:
            raise Refused("proctrack/cgroup cannot be had here: %s (proctrack/linuxproc can)." % why, 3)


def install(packages):
    """apt-get, without a service being started or enabled by it."""
    if not shutil.which("apt-get"):
        raise Refused("--install knows Debian and Ubuntu only; these packages are missing: %s" % " ".join(packages), 3)
    policy, mark = "/usr/sbin/policy-rc.d", "# put here by slurm-sandbox for the time of an installation\n"
    text = "#!/bin/sh\n%sexit 101\n" % mark
    answer = "/run/slurm-sandbox-%d" % os.getpid()
    foreign = os.path.lexists(policy) and mark not in read(policy, "")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    get = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]
    print("installing: " + " ".join(packages), file=sys.stderr)

    def quiet():
        if foreign:  # it stays as it is: only this installation sees another one
            unshare("mnt")
            mount(None, "/", None, MS_REC | MS_SLAVE)
            write(answer, text, 0o755)
            bind(answer, policy)
            os.unlink(answer)
        for words in (["update"], ["install", "--no-install-recommends"] + packages):
            if subprocess.run(get + words, env=environment, stdin=subprocess.DEVNULL, stdout=2).returncode and words != ["update"]:
                raise Refused("apt-get could not install: %s" % " ".join(packages), 3)

    try:
        if not foreign:
            write(policy, text, 0o755)
        in_child(quiet)
    finally:
        if not foreign:
            os.unlink(policy)
    services = [name for name in ("slurmctld", "slurmd", "munge") if name in packages or "slurm-wlm" in packages]
    if services and shutil.which("systemctl"):
        subprocess.run(["systemctl", "--quiet", "disable"] + services, stdout=2, stderr=subprocess.DEVNULL)
