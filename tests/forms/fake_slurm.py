#!/usr/bin/env python3
"""srun, scancel and scontrol of a Slurm whose nodes are all this machine. What matters is kept: a step goes on without its
srun, TERM to srun kills the step, srun's exit code says nothing, signals reach the tasks themselves only.

FAKE_SLURM names a folder: srun.log (one JSON line a call), steps/N (pid of srun, pids of tasks), and what a test leaves
there: `squeue.ID` (what squeue prints of that job or step), `refuse` (srun fails with that code), `rc` (what srun returns), `old` (an
srun without --oom-kill-step), `stdout` (where the job's output goes), `silent` (scontrol cannot say it), `env-NODE` (variables of
that node alone, as JSON).
"""

import json
import os
import re
import signal
import subprocess
import sys

STATE = os.environ["FAKE_SLURM"]
JOB = os.environ.get("SLURM_JOB_ID", "7")


def read(name):
    try:
        with open(os.path.join(STATE, name)) as file:
            return file.read().strip()
    except OSError:
        return None


def expand(text):
    nodes = []
    for item in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        match = re.fullmatch(r"([^\[]+)\[([^\]]*)\]", item)
        if not match:
            nodes.append(item)
            continue
        for part in match[2].split(","):
            low, _, high = part.partition("-")
            nodes += [match[1] + str(no).zfill(len(low)) for no in range(int(low), int(high or low) + 1)]
    return nodes


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def steps():
    found = {}
    for name in os.listdir(os.path.join(STATE, "steps")):
        if name.isdigit():
            step = read(os.path.join("steps", name))
            if step:
                found[name] = json.loads(step)
    return found


def srun(argv):
    if argv == ["--help"]:
        print("Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]]\n      --overlap  Force steps to overlap")
        if read("old") is None:
            print("      --oom-kill-step[=0|1]  set the OOMKillStep behaviour")
        return 0
    options = {}
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        name, _, value = argv[at].partition("=")
        options[name] = value
        at += 1
    command = argv[at:]
    nodes = expand(options["--nodelist"])
    sizes = {k: v for k, v in os.environ.items() if k.startswith(("SLURM_", "SRUN_", "RELIGHT_"))}
    with open(os.path.join(STATE, "srun.log"), "a") as log:
        log.write(json.dumps({"argv": argv, "env": sizes, "pid": os.getpid(), "sid": os.getsid(0)}) + "\n")
    refuse = read("refuse")
    if refuse is not None:
        print("srun: error: Unable to create step for job: Requested nodes are busy", file=sys.stderr)
        return int(refuse)
    assert options["--nodes"] == options["--ntasks"] == str(len(nodes)), options
    number = 0
    while True:
        try:
            place = os.path.join(STATE, "steps", str(number))
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            number += 1
    tasks = []
    for no, node in enumerate(nodes):
        env = dict(os.environ)
        runtime = os.path.join(STATE, "nodes", node)
        os.makedirs(runtime, mode=0o700, exist_ok=True)
        env.update(
            SLURM_JOB_ID=JOB, SLURM_STEP_ID=str(number), SLURM_STEP_NODELIST=options["--nodelist"], SLURMD_NODENAME=node,
            SLURM_STEP_TASKS_PER_NODE=f"1(x{len(nodes)})", SLURM_PROCID=str(no), SLURM_NODEID=str(no), SLURM_LOCALID="0",
            SLURM_NTASKS=str(len(nodes)), SLURM_LAUNCH_NODE_IPADDR="127.0.0.1", XDG_RUNTIME_DIR=runtime,
        )  # fmt: skip
        env.update(json.loads(read("env-" + node) or "{}"))
        tasks.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, start_new_session=True))
    step = {"srun": os.getpid(), "tasks": [task.pid for task in tasks], "nodes": nodes}
    with open(place + ".new", "w") as file:
        json.dump(step, file)
    os.rename(place + ".new", place)

    def forced(*_):
        with open(os.path.join(STATE, "forced"), "a") as file:
            file.write("srun was told to end\n")
        for task in tasks:
            os.kill(task.pid, signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        signal.signal(number, forced)
    for task in tasks:
        task.wait()
    return int(read("rc") or 0)


def scancel(argv):
    with open(os.path.join(STATE, "scancel.log"), "a") as log:
        log.write(json.dumps(argv) + "\n")
    number = int(argv[0].removeprefix("--signal="))
    job, _, step = argv[1].partition(".")
    found = steps().get(step)
    if job != JOB or not found:
        print("scancel: error: Kill job error on job step id: Invalid job id specified", file=sys.stderr)
        return 1
    for pid in found["tasks"]:
        if alive(pid):
            os.kill(pid, number)
    return 0


def squeue(argv):
    with open(os.path.join(STATE, "squeue.log"), "a") as log:
        log.write(json.dumps(argv) + "\n")
    which = next(word.partition("=")[2] for word in argv if word.startswith(("--jobs=", "--steps=")))
    said = read("squeue." + which)
    if said is None:
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    if said.startswith("error"):
        print(said, file=sys.stderr)
        return 1
    print(said)
    return 0


def scontrol(argv):
    assert argv[:2] == ["--oneliner", "show"], argv
    if argv[2] == "job":
        output = read("stdout")
        if read("silent") is not None:
            print("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", file=sys.stderr)
            return 1
        print(f"JobId={JOB} JobName=x y StdErr={output} StdIn=/dev/null StdOut={output} Power=" if output else f"JobId={JOB}")
        return 0
    if argv[2] == "step":
        for number, step in steps().items():
            if any(alive(pid) for pid in step["tasks"]):
                print(f"StepId={JOB}.{number} State=RUNNING NodeList=x SrunHost:Pid=n1:{step['srun']}")
        return 0
    for node in expand(argv[3]):
        print(f"NodeName={node} Arch=x86_64 NodeAddr=127.0.0.1 NodeHostName={node} State=ALLOCATED")
    return 0


if __name__ == "__main__":
    sys.exit({"srun": srun, "scancel": scancel, "scontrol": scontrol, "squeue": squeue}[os.path.basename(sys.argv[0])](sys.argv[1:]))
