"""The control groups that a sandbox makes on the machine, for proctrack/cgroup."""

import contextlib
import os

from sandbox.kernel import MNT_DETACH, MS_NODEV, MS_NOSUID, call, libc, mount, read, unshare, until

DEADLINE = 30.0


class Groups:
    """The sandbox's directory in the machine's control groups: the freezer of version 1, or version 2."""

    def __init__(self, name):
        self.name = name

    @staticmethod
    def mounts():
        """(version, mount point) of each hierarchy where a sandbox may have a directory."""
        found = []
        for line in read("/proc/self/mountinfo").splitlines():
            left, _, right = line.partition(" - ")
            point, kind = left.split()[4], right.split()[0]
            if kind == "cgroup" and "freezer" in right.split()[2].split(","):
                found.append((1, point))
            elif kind == "cgroup2" and not read(os.path.join(point, "cgroup.controllers"), "-").startswith("-"):
                found.append((2, point))
        return sorted(set(found))

    @classmethod
    def usable(cls):
        """The hierarchy for proctrack/cgroup, or the reason why there is none."""
        why = "neither the freezer of cgroup v1 nor cgroup v2 alone is mounted"
        for version, point in cls.mounts():
            if version == 2 and (point != "/sys/fs/cgroup" or not read("/proc/self/cgroup").startswith("0::")):
                continue  # the second tree of a machine that has both versions: Slurm wants one or the other
            if os.statvfs(point).f_flag & os.ST_RDONLY or not os.access(point, os.W_OK):
                why = "%s is read-only here" % point
            else:
                return (version, point), None
        return None, why

    def directory(self, hierarchy, node=None):
        return os.path.join(hierarchy[1], self.name, *([node] if node else []))

    def remove(self, node=None):
        """Deepest first. A directory is busy as long as a process is on its way out of it."""
        for hierarchy in self.mounts():
            top = self.directory(hierarchy, node)
            for folder, _, _ in os.walk(top, topdown=False):
                until(lambda f=folder: self.gone(f), DEADLINE, lambda f=folder: "%s is still in use" % f)

    @staticmethod
    def gone(folder):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def prepare(self, hierarchy, node):
        """A fresh directory of the node; gives back the place where its processes go in."""
        top, folder = self.directory(hierarchy), self.directory(hierarchy, node)
        os.makedirs(folder, exist_ok=True)
        if hierarchy[0] == 2:
            # Version 2 lets a directory have processes or controllers for its children, not both.
            with contextlib.suppress(OSError):
                names = read(os.path.join(top, "cgroup.controllers")).split()
                write_into(os.path.join(top, "cgroup.subtree_control"), " ".join("+" + name for name in names))
            folder = os.path.join(folder, "init")
            os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, "cgroup.procs")

    def enter(self, hierarchy, node):
        """Puts the calling process into the node's directory, which becomes the root of what it sees."""
        place = self.prepare(hierarchy, node)
        write_into(os.path.join(self.directory(hierarchy, node), "cgroup.procs"), "0")
        unshare("cgroup")
        write_into(place, "0")
        # The kernel refuses to put a file system over itself.
        call("umount " + hierarchy[1], libc.umount2(os.fsencode(hierarchy[1]), MNT_DETACH))
        kind, data = ("cgroup2", None) if hierarchy[0] == 2 else ("cgroup", "freezer")
        mount(kind, hierarchy[1], kind, MS_NOSUID | MS_NODEV, data)


def write_into(path, text):
    with open(path, "w") as file:
        file.write(text)
