"""One heartbeat from Python beside its floor (the same stores without a function around them) and beside an empty call; what hooks
add to a training step; how long `import relight` takes.

Every figure is the best of many short rounds, because anything else that runs on the machine only adds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, "python")

ROUNDS = """
import json, sys, time, timeit
def best(statement, names, rounds=int(sys.argv[1]), number=1000):
    return min(timeit.repeat(statement, globals=names, number=number, repeat=rounds)) / number * 1e9
"""

BEATS = (
    ROUNDS
    + """
import relight
from relight import _board as board
relight.heartbeat(1)
def empty(step=None): pass
class Plain:
    def __next__(self): return 1
class Hooked:
    __next__ = board._around_next(Plain.__next__)
names = {"beat": relight.heartbeat, "empty": empty, "words": board._page, "clock": time.monotonic_ns, "n": 1234567}
found = {
    "floor": best("words[3] = n << 24 | 3; words[4] = clock()", names),
    "empty": best("empty(n)", names),
    "beat": best("beat(n)", names),
    "sign of life": best("beat()", names),
}
board._more, board._base, board._client = 1 << 24, 0, None
board._first_step()
def three(optimizer, args, kwargs): pass
def one(argument): pass
names = {"post": board._after_step, "three": three, "one": one, "o": object(), "d": {},
    "plain": Plain(), "hooked": Hooked(), "back": board._around_backward(one)}
found["hooks"] = best("post(o, (), d); hooked.__next__(); back(1)", names) \\
    - best("plain.__next__(); one(1)", names)
print(json.dumps(found))
"""
)

TORCH = (
    ROUNDS
    + """
import torch
from torch.optim import optimizer
parameter = torch.nn.Parameter(torch.zeros(1))
parameter.grad = torch.zeros(1)
sgd = torch.optim.SGD([parameter], lr=0.1, foreach=False)
pre, post = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
assert (len(pre), len(post)) == (0, 1), "the hook is not there"
def nothing(optimizer, args, kwargs): pass
kinds = {"none": ({}, {}), "empty": ({}, {1: nothing}), "ours": (dict(pre), dict(post))}
least = dict.fromkeys(kinds, 1e9)
for _ in range(100):
    for kind, hooks in kinds.items():
        for there, wanted in zip((pre, post), hooks):
            there.clear()
            there.update(wanted)
        least[kind] = min(least[kind], best("step()", {"step": sgd.step}, number=20))
found = {kind: least[kind] - least["none"] for kind in ("empty", "ours")}
print(json.dumps(dict(found, torch=torch.__version__, step=least["none"])))
"""
)

IMPORT = "import sys, time; sys.path.insert(0, %r); t = time.perf_counter(); import relight; print(time.perf_counter() - t)" % PYTHON


def run(python, code, rounds, hooks):
    """What a program prints that has a page of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        page = os.path.join(folder, "0")
        with open(page, "wb") as file:
            file.write(b"rlboard1" + bytes(4088))
        paths = ([os.path.join(PYTHON, "start")] if hooks else []) + [PYTHON]
        environment = dict(os.environ, RELIGHT_BOARD=page, PYTHONPATH=os.pathsep.join(paths))
        done = subprocess.run([python, "-c", code, str(rounds)], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def imports(python, runs):
    found = []
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, PYTHONPYCACHEPREFIX=cache)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(runs + 1):
            done = subprocess.run([python, "-c", IMPORT], env=environment, stdout=subprocess.PIPE, check=True)
            found.append(float(done.stdout) * 1e3)
    # The first one compiles.
    return found[0], statistics.median(found[1:]), min(found[1:])


def line(name, value, unit, goal, reached):
    verdict = "" if reached is None else "yes" if reached else "NO"
    print("%-44s %9.3f %-2s   goal %-10s %s" % (name, value, unit, goal, verdict))


def bench(args):
    python = args.torch_python or sys.executable
    beats = run(python, BEATS, args.rounds, hooks=False)
    compiled, usual, least = imports(python, args.runs)
    hooks = run(python, TORCH, max(args.rounds // 20, 5), hooks=True) if args.torch_python else None
    if args.json:
        print(json.dumps({"beats_ns": beats, "import_ms": [compiled, usual, least], "torch_ns": hooks}))
        return
    ns = lambda key: beats[key] / 1e3
    line("floor: two stores and a clock", ns("floor"), "us", "-", None)
    line("an empty Python function", ns("empty"), "us", "-", None)
    line("relight.heartbeat(step)", ns("beat"), "us", "0.5 us", ns("beat") <= 0.5)
    print("%-44s %9.2f x the floor, %.2f x an empty call" % ("", beats["beat"] / beats["floor"], beats["beat"] / beats["empty"]))
    line("relight.heartbeat()", ns("sign of life"), "us", "0.5 us", ns("sign of life") <= 0.5)
    line("all hooks of a step (stand-ins for torch)", ns("hooks"), "us", "1 us", ns("hooks") <= 1)
    if hooks:
        name = "torch %s: optimizer.step, added by our hook" % hooks["torch"].split("+")[0]
        line(name, hooks["ours"] / 1e3, "us", "1 us", hooks["ours"] <= 1000)
        line("    by a hook that does nothing", hooks["empty"] / 1e3, "us", "-", None)
        line("    the step itself", hooks["step"] / 1e3, "us", "-", None)
    else:
        print("skipped: hooks in a real torch: --torch-python names none")
    line("import relight, median", usual, "ms", "10 ms", usual <= 10)
    line("import relight, least", least, "ms", "-", None)
    line("import relight, compiled for the first time", compiled, "ms", "-", None)
