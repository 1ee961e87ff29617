"""The table of what failures look like over a gigabyte of text: `benches/pattern_load.rs`, beside counting its lines.

The text is made in memory and stored nowhere. Rounds of both are interleaved.
"""

import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# MB/s of one core.
GOAL = 500


def build():
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "--example", "pattern_load"], cwd=ROOT, check=True, stdout=sys.stderr
    )
    out = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    return os.path.join(json.loads(out)["target_directory"], "release", "examples", "pattern_load")


def measure(binary, what, megabytes, every):
    done = subprocess.run([binary, what, str(megabytes), str(every)], capture_output=True, text=True, check=True)
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def bench(args):
    binary = build()
    # No line holds a word of the table; one in a thousand; one in ten, which no job prints.
    rows = [("lines", 1000), ("scan", 0), ("scan", 1000), ("scan", 10)]
    single = {row: [] for row in rows}
    for _ in range(args.runs):
        for row in rows:
            single[row].append(measure(binary, row[0], args.megabytes, row[1]))
    if args.json:
        print(json.dumps([{"what": what, "every": every, "runs": runs} for (what, every), runs in single.items()]))
        return
    print("%d MB of text, %d runs, medians; MB/s of one core, memory beside the text" % (args.megabytes, args.runs))
    for (what, every), runs in single.items():
        speed = statistics.median(run["mb_per_s"] for run in runs)
        memory = max(run["memory_mb"] for run in runs)
        name = "count lines" if what == "lines" else "one line in %d" % every if every else "no line"
        goal = "" if (what, every) != ("scan", 1000) else "   goal %d: %s" % (GOAL, "reached" if speed >= GOAL else "missed")
        print("%-16s %8.0f MB/s %8.1f MB%s" % (name, speed, memory, goal))
