"""Runs a program at a terminal of its own and types: terminal.py '[["wait for this", "type that"], ...]' PROGRAM ARGS

Everything that the terminal shows goes to stdout. Ends as the program does, 128 + n for a signal, 99 when a text that
it waits for does not come within 60 s."""
import json, os, pty, select, signal, sys, time

steps = json.loads(sys.argv[1])
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen, at, until = b"", 0, time.monotonic() + 60
while True:
    if time.monotonic() > until:
        os.write(1, seen)
        os.kill(pid, signal.SIGKILL)
        sys.exit(99)
    if steps:
        found = seen.find(steps[0][0].encode(), at)
        if found >= 0:
            at = found + len(steps[0][0])
            os.write(fd, steps.pop(0)[1].encode())
            continue
    if not select.select([fd], [], [], 0.1)[0]:
        continue
    try:
        data = os.read(fd, 65536)
    except OSError:
        data = b""
    if not data:
        break
    seen += data
os.write(1, seen)
status = os.waitpid(pid, 0)[1]
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
