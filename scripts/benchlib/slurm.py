"""The launchers on the nodes of a real Slurm."""

import json
import os
import shutil
import signal
import sys
import time

from benchlib.cluster import CannotRun, Cluster
from benchlib.common import (
    STUB, Results, all_started, elastic_launchers, floor_run, last, relight_binary, stop, times, wait,
)  # fmt: skip

RANKS = 2
LOST_AFTER = 6.0
BEAT = 1.0
SETTLE = 0.3
LIMIT = 120.0
FLOOR = "floor"

# What it is, the seconds that relight may take, and whether they are beyond the floor.
FIGURES = {
    "start": ("launch -> all ranks have started", 0.4, True),
    "again": ("SIGKILL of one rank -> all ranks have started again", 0.06, True),
    "exit": ("last rank ends -> the launcher has exited", 0.3, False),
    "power": ("power-off of a node -> all ranks have started, those of the node on a spare", LOST_AFTER + 1.0, False),
}

# Words are filled in by `Candidate.argv`. `nodes`: that have ranks; `all`: with the spare, where there is one.
RELIGHT = ["{relight}", "run", "--run-dir={folder}/run", "--run-id=bench", "--nnodes={nodes}", "--spares={spares}",
           "--nproc-per-node={ranks}", "--lost-after=%g" % LOST_AFTER, "--max-restarts=3"]  # fmt: skip
DROP_IN = ["srun", "-N{all}", "-n{all}", "--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
ELASTIC = ["srun", "-N{nodes}", "-n{nodes}", "--ntasks-per-node=1", "{path}", "--nnodes={nodes}", "--nproc-per-node={ranks}",
           "--rdzv-backend=c10d", "--rdzv-endpoint={first}:29500", "--rdzv-id=bench", "--max-restarts=3"]  # fmt: skip
PLAIN = ["srun", "-N{nodes}", "-n{world}", "--ntasks-per-node={ranks}", sys.executable, "-u"]


class Candidate:
    """How one of them is called in a job."""

    def __init__(self, name, command, ours=False, **more):
        self.name, self.command, self.ours, self.more = name, command, ours, more

    def argv(self, cluster, nodes, spares, folder):
        known = dict(
            self.more, folder=folder, nodes=nodes, spares=spares, all=nodes + spares, ranks=RANKS, world=nodes * RANKS,
            relight=os.path.join(cluster.shared, "relight"), first=cluster.addresses[0],
        )  # fmt: skip
        return [word.format(**known) for word in self.command] + [STUB, folder]


def candidates(args):
    found = [
        Candidate("relight run", RELIGHT, ours=True),
        Candidate("srun relight run", DROP_IN + RELIGHT, ours=True),
    ]
    found += [Candidate(name, ELASTIC, path=path) for name, path in elastic_launchers(args.torch_python).items()]
    return found


class Launched:
    """A launcher in a job, and what its stubs say."""

    def __init__(self, cluster, candidate, nodes, spares, folder):
        self.cluster, self.folder, self.world = cluster, folder, nodes * RANKS
        self.process = cluster.run(folder, nodes + spares, candidate.argv(cluster, nodes, spares, folder))

    def wait(self, what, condition):
        return wait(what, condition, lambda: self.process.poll() is None, LIMIT)

    def first(self, pause=SETTLE):
        started = self.wait("start", lambda: all_started(self.folder, self.world, 0))
        time.sleep(pause)
        return started

    def again(self, since):
        """The first start of each rank since then; others than relight count attempts on each node anew."""

        def there():
            found = {}
            for event in times(self.folder, "start"):
                if event[3] > since:
                    found.setdefault(event[0], event)
            return list(found.values()) if len(found) == self.world else None

        return self.wait("again", there)

    def place(self, started, rank):
        """(pid on this machine, index of the node) of a rank."""
        pid = [event for event in started if event[0] == rank][0][1]
        return self.cluster.process_of(self.folder, rank, pid)

    def ends(self):
        """(begin, end) of the launcher, which must end well."""
        self.process.wait(LIMIT)
        with open(os.path.join(self.folder, "launcher")) as file:
            marks = dict(line.split(None, 1) for line in file)
        if "end" not in marks:
            raise RuntimeError("the launcher's job was lost")
        ended, code = marks["end"].split()
        if code != "0":
            raise RuntimeError("exit code %s" % code)
        return int(marks["begin"]), int(ended)


def plain_run(cluster, nodes, folder):
    """The floor: the stubs by srun itself, and started again by plain exec."""
    launched = Launched(cluster, Candidate(FLOOR, PLAIN), nodes, 0, folder)
    first = launched.first()
    stop(folder)
    begin, ended = launched.ends()
    bare = os.path.join(folder, "bare")
    os.mkdir(bare)
    again = floor_run(nodes * RANKS, bare)["again"]
    return {
        "start": (last(first) - begin) / 1e9,
        "again": again,
        "exit": (ended - last(times(folder, "end"))) / 1e9,
        "power": again,  # exec alone: nothing is noticed by anybody
    }


def launcher_run(cluster, candidate, nodes, folder):
    launched = Launched(cluster, candidate, nodes, 0, folder)
    first = launched.first()
    # The last rank: its node is not the one that leads.
    victim, _ = launched.place(first, launched.world - 1)
    killed = time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    second = launched.again(killed)
    time.sleep(SETTLE)
    stop(folder)
    begin, ended = launched.ends()
    return {
        "start": (last(first) - begin) / 1e9,
        "again": (last(second) - killed) / 1e9,
        "exit": (ended - last(times(folder, "end"))) / 1e9,
    }


def power_run(cluster, candidate, nodes, phase, folder):
    """`phase`: 0 to 1, where between two beats the power goes; the silence counts from the beat before."""
    launched = Launched(cluster, candidate, nodes, 1, folder)
    first = launched.first(SETTLE + phase * BEAT)
    _, leads = launched.place(first, 0)
    _, node = launched.place(first, launched.world - 1)
    if node == leads:
        raise RuntimeError("all ranks are on n%d" % node)
    off = cluster.power_off(node)
    second = launched.again(off)
    return {"power": (last(second) - off) / 1e9}


def bench(args):
    # What lies below /tmp is shown to the nodes only if it is named.
    seen = {sys.prefix, sys.base_prefix}
    if args.torch_python:
        seen.add(os.path.dirname(os.path.dirname(os.path.abspath(args.torch_python))))
    try:
        cluster = Cluster(args.slurm + 1, sorted(seen))
        found, binary = candidates(args), relight_binary(args.relight)
        results = Results([FLOOR] + [candidate.name for candidate in found])
        with cluster:
            for number in range(args.runs):
                one_round(cluster, results, found, args.slurm, binary, (number + 0.5) / args.runs)
    except CannotRun as error:
        print("there can be no Slurm here: %s" % error, file=sys.stderr)
        sys.exit(3)
    except RuntimeError as error:
        sys.exit("bench: %s" % error)
    medians = results.medians()
    judged = verdicts(medians, [candidate.name for candidate in found if candidate.ours])
    if args.json:
        goals = {key: {"seconds": seconds, "beyond the floor": beyond} for key, (_, seconds, beyond) in FIGURES.items()}
        told = {"nodes": args.slurm, "ranks": RANKS, "runs": args.runs, "goals": goals}
        print(json.dumps(dict(told, medians=medians, all=results.all, verdicts=judged), indent=1))
    else:
        show(args, medians, judged)
    if any(set(medians[name]) != set(FIGURES) for name in [FLOOR] + list(judged)):
        sys.exit("relight was not measured in full")


def one_round(cluster, results, found, nodes, binary, phase):
    def measure(name, body, spoils=False):
        cluster.ready()
        shutil.copy(binary, os.path.join(cluster.shared, "relight"))
        if not results.measure(name, body, cluster.shared) or spoils:
            cluster.down()

    measure(FLOOR, lambda folder: plain_run(cluster, nodes, folder))
    for candidate in found:
        measure(candidate.name, lambda folder, it=candidate: launcher_run(cluster, it, nodes, folder))
    for candidate in found:
        if candidate.ours:
            # Its node stays without power: the cluster goes down with the run.
            measure(candidate.name, lambda folder, it=candidate: power_run(cluster, it, nodes, phase, folder), spoils=True)


def goal(key, floor):
    _, seconds, beyond = FIGURES[key]
    return seconds if not beyond else floor[key] + seconds if key in floor else None


def verdicts(medians, names):
    """Of each form of relight and each figure: reached, or by how much not."""
    judged = {}
    for name in names:
        judged[name] = {}
        for key in FIGURES:
            wanted, found = goal(key, medians[FLOOR]), medians[name].get(key)
            if wanted is None or found is None:
                judged[name][key] = "not measured"
            else:
                judged[name][key] = "reached" if found <= wanted else "missed by %.3f s" % (found - wanted)
    return judged


def show(args, medians, judged):
    form = "{:<18}" + "{:>27}" * len(FIGURES)
    told = (args.runs, args.slurm, RANKS, os.cpu_count())
    print("medians of %d runs, interleaved; %d nodes x %d ranks on one machine of %d CPUs" % told)
    print(form.format("", *FIGURES))
    for name, found in medians.items():
        cells = ["%.3f s" % found[key] if key in found else "-" for key in FIGURES]
        if name in judged:
            cells = ["%s, %s" % (cell, judged[name][key]) if cell != "-" else cell for key, cell in zip(FIGURES, cells)]
        print(form.format(name, *cells))
        if name == FLOOR:
            goals = ["floor + " * beyond + "%g s" % seconds for _, seconds, beyond in FIGURES.values()]
            print(form.format("relight's goal", *goals))
    for key, (meaning, _, _) in FIGURES.items():
        print("%-6s %s" % (key, meaning))
