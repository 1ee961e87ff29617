"""The Python client against the layout of `docs/heartbeat-board.md`. Standard library only: `python3 -m unittest discover tests/python`."""

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, "python")


class Page:
    """A page as an agent makes it, in a file."""

    def __init__(self, folder, magic=b"rlboard1"):
        self.path = os.path.join(folder, "0")
        with open(self.path, "wb") as file:
            file.write(magic + bytes(4096 - len(magic)))

    def read(self):
        with open(self.path, "rb") as file:
            data = file.read()
        words = struct.unpack("<512Q", data)
        beat, time_word, extension = words[3], words[4], words[5]
        found = {
            "owner": words[2],
            "step": beat >> 24 if beat & 1 else None,
            "phase": beat >> 16 & 0xFF,
            "client": bool(beat & 2),
            "time": time_word,
            "extend_ms": extension & 0xFFFFFFFF if extension >> 32 == (time_word ^ beat >> 24) & 0xFFFFFFFF else 0,
            "collective_ms": words[6],
            "signal": words[7],
            "sections": [],
            "request": None,
        }
        for at in range(128, 640, 64):
            entry, timeout = struct.unpack_from("<QQ", data, at)
            if entry:
                (check,) = struct.unpack_from("<Q", data, at + 48)
                assert check == zlib.crc32(data[at : at + 48]), "a section's check is wrong"
                found["sections"].append((data[at + 16 : at + 48].rstrip(b"\0").decode(), timeout))
        (kind,) = struct.unpack_from("<Q", data, 640)
        if kind:
            (check,) = struct.unpack_from("<Q", data, 888)
            assert check == zlib.crc32(data[640:888]), "a request's check is wrong"
            found["request"] = (kind, data[648:888].rstrip(b"\0").decode())
        return found


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.page = Page(self.folder.name)
        self.children = []
        self.addCleanup(self.end_children)

    def end_children(self):
        for child in self.children:
            child.kill()
            child.wait()
            child.stdout.close()
            child.stdin.close()

    def environment(self, **more):
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": PYTHON, "RELIGHT_BOARD": self.page.path}
        environment.update(more)
        return {name: value for name, value in environment.items() if value is not None}

    def python(self, code, *options, **more):
        """What a program prints that ends well."""
        done = subprocess.run(
            [sys.executable, *options, "-c", code],
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def start(self, code, **more):
        """A program that has printed `there` and waits for its input's end."""
        child = subprocess.Popen(
            [sys.executable, "-c", code + "\nprint('there', flush=True)\nimport sys\nsys.stdin.read()"],
            env=self.environment(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.children.append(child)
        self.assertEqual(child.stdout.readline(), b"there\n")
        return child


class Words(Case):
    def test_a_beat_says_its_step(self):
        child = self.start("import relight\nrelight.heartbeat(1234567)")
        found = self.page.read()
        self.assertEqual((found["owner"], found["step"], found["phase"], found["client"]), (child.pid, 1234567, 7, True))
        self.assertGreater(found["time"], 0)

    def test_a_beat_without_a_step_is_a_sign_of_life(self):
        self.start("import relight\nrelight.heartbeat()")
        first = self.page.read()
        self.assertEqual((first["step"], first["client"]), (None, True))
        self.python("import relight\nrelight.heartbeat()")
        self.assertEqual(self.page.read(), first)

    def test_importing_claims_nothing(self):
        self.start("import relight")
        self.assertEqual(self.page.read()["owner"], 0)

    def test_steps_that_are_none(self):
        said = self.python(
            "import relight\n"
            "class N:\n  def __index__(self): return 9\n"
            "relight.heartbeat(N())\n"
            "for bad in (-1, 1 << 40, 1.5, 'x', None.__class__):\n"
            "  try: relight.heartbeat(bad); print('taken', bad)\n"
            "  except (TypeError, ValueError) as error: print(type(error).__name__)\n"
        )
        self.assertEqual(said.split(), ["ValueError", "ValueError", "TypeError", "TypeError", "TypeError"])
        self.assertEqual(self.page.read()["step"], 9)

    def test_phases_nest_and_are_left(self):
        code = (
            "import relight, sys\n"
            "def at(): print(relight._board._page[3] >> 16 & 255)\n"
            "relight.heartbeat(5)\nat()\n"
            "with relight.phase('eval'):\n"
            "  at()\n"
            "  with relight.phase('checkpoint'): at(); relight.heartbeat(6); at()\n"
            "  at()\n"
            "at()\n"
            "try:\n  with relight.phase('data'): raise KeyError\n"
            "except KeyError: at()\n"
            "try: relight.phase('lunch')\n"
            "except ValueError as error: print(error)\n"
        )
        lines = self.python(code).splitlines()
        self.assertEqual(lines[:-1], ["7", "6", "5", "5", "6", "7", "7"])
        self.assertTrue(lines[-1].startswith("phase 'lunch' is none of init, data, "), lines[-1])
        self.assertEqual(self.page.read()["step"], 6)

    def test_sections_keep_their_deadlines(self):
        self.start(
            "import relight\n"
            "outer = relight.section('load \\u00e9' + 'x' * 40, timeout=900).__enter__()\n"
            "inner = relight.section('shard', timeout=0.0001).__enter__()\n"
            "none = relight.section('plain').__enter__()"
        )
        names = [("load \u00e9" + "x" * 25, 900_000), ("shard", 1), ("plain", 0)]
        self.assertEqual(self.page.read()["sections"], names)

    def test_sections_are_left_and_entered_anew(self):
        code = (
            "import relight, struct\n"
            "def open_(): print([w for w in (relight._board._page[at // 8] for at in range(128, 640, 64)) if w])\n"
            "with relight.section('a'):\n"
            "  with relight.section('b'): open_()\n"
            "  open_()\n"
            "  with relight.section('b'): open_()\n"
            "open_()\n"
            "deep = [relight.section('d%d' % n).__enter__() for n in range(12)]\n"
            "open_()\n"
            "for section in reversed(deep): section.__exit__()\n"
            "open_()\n"
            "for bad in (0, -1, float('nan')):\n"
            "  try: relight.section('a', timeout=bad); print('taken')\n"
            "  except ValueError: pass\n"
        )
        said = self.python(code).splitlines()
        self.assertEqual(said[:4], ["[1, 2]", "[1]", "[1, 3]", "[]"])
        self.assertEqual(len(eval(said[4])), 8)
        self.assertEqual(said[5:], ["[]"])
        self.assertEqual(self.page.read()["sections"], [])

    def test_an_extension_ends_with_the_next_beat(self):
        code = "import relight\nrelight.heartbeat(1)\nrelight.extend(2.5)\nrelight.extend(60)"
        self.start(code)
        self.assertEqual(self.page.read()["extend_ms"], 62_500)
        self.end_children()
        self.children = []
        self.start(code + "\nrelight.heartbeat(2)")
        self.assertEqual(self.page.read()["extend_ms"], 0)

    def test_requests(self):
        self.start("import relight\nrelight.request_eviction('ECC ' + '\\u20ac' * 100)")
        self.assertEqual(self.page.read()["request"], (1, "ECC " + "\u20ac" * 78))
        self.end_children()
        self.children = []
        self.start("import relight\nrelight.request_eviction('x')\nrelight.request_stop('loss is NaN')")
        self.assertEqual(self.page.read()["request"], (2, "loss is NaN"))


EVERYTHING = (
    "import relight\n"
    "relight.heartbeat()\nrelight.heartbeat(3)\nrelight.extend(1)\n"
    "with relight.phase('eval'), relight.section('s', timeout=3): pass\n"
    "relight.request_eviction('x')\nrelight.request_stop('x')\n"
)


class Owners(Case):
    def test_without_a_page_nothing_happens(self):
        self.python(EVERYTHING, RELIGHT_BOARD=None)
        self.python(EVERYTHING, RELIGHT_BOARD="/nonexistent/0")
        self.python(EVERYTHING, RELIGHT_BOARD=self.folder.name)
        self.python(EVERYTHING, RELIGHT_BOARD="/dev/null")
        for content in (b"", b"rlboard1", bytes(4096), b"rlboard2" + bytes(4088)):
            with open(self.page.path, "wb") as file:
                file.write(content)
            self.python(EVERYTHING)
            with open(self.page.path, "rb") as file:
                self.assertEqual(file.read(), content)

    def test_another_process_is_silent_until_the_owner_is_dead(self):
        owner = self.start("import relight\nrelight.heartbeat(7)")
        before = self.page.read()
        self.python(EVERYTHING)
        self.assertEqual(self.page.read(), before)
        # One that has asked already asks again.
        second = subprocess.Popen(
            [sys.executable, "-c", "import relight, time\nfor n in range(3000):\n  relight.heartbeat(100 + n)\n  time.sleep(0.01)"],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.children.append(second)
        time.sleep(0.3)
        self.assertEqual(self.page.read(), before)
        owner.kill()
        owner.wait()
        until = time.monotonic() + 20
        while self.page.read()["owner"] != second.pid and time.monotonic() < until:
            time.sleep(0.01)
        found = self.page.read()
        self.assertEqual(found["owner"], second.pid)
        self.assertTrue(found["step"] is None or found["step"] >= 100, found)

    def test_a_fork_of_the_owner_never_beats(self):
        code = (
            "import os, relight\n"
            "relight.heartbeat(7)\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "  for n in range(1000): relight.heartbeat(90)\n"
            "  with relight.phase('eval'), relight.section('child'): pass\n"
            "  relight.request_stop('child')\n"
            "  relight._board._around_backward(len)(()); relight._board._after_step(None, (), {})\n"
            "  os._exit(0)\n"
            "assert os.waitpid(pid, 0)[1] == 0\n"
        )
        parent = self.start(code)
        found = self.page.read()
        self.assertEqual((found["owner"], found["step"], found["phase"], found["request"]), (parent.pid, 7, 7, None))
        # Its end does not end the claim.
        before = self.page.read()
        self.python(EVERYTHING)
        self.assertEqual(self.page.read(), before)

    def test_who_is_forked_before_the_claim_may_claim(self):
        code = (
            "import os, relight\n"
            "pid = os.fork()\n"
            "if pid:\n"
            "  os.waitpid(pid, 0)\n"
            "  raise SystemExit\n"
            "relight.heartbeat(3)\n"
        )
        self.python(code)
        self.assertEqual(self.page.read()["step"], 3)

    def test_who_takes_over_begins_with_a_clean_page(self):
        self.python("import relight\nrelight.heartbeat(900)\nrelight.section('old').__enter__()\nrelight.request_stop('x')")
        child = self.start("import relight\nrelight.heartbeat()")
        found = self.page.read()
        self.assertEqual((found["owner"], found["step"], found["sections"], found["request"]), (child.pid, None, [], None))


class Stacks(Case):
    def wait_for_stacks(self, text):
        until = time.monotonic() + 20
        found = ""
        while time.monotonic() < until:
            if os.path.exists(self.page.path + ".stacks"):
                with open(self.page.path + ".stacks") as file:
                    found = file.read()
                if text in found:
                    return found
            time.sleep(0.01)
        self.fail("no %r in %r" % (text, found))

    def test_the_announced_signal_writes_the_stacks_of_all_threads(self):
        child = self.start(
            "import relight, threading, time\n"
            "def deep_in_thread(): time.sleep(1000)\n"
            "threading.Thread(target=deep_in_thread, daemon=True).start()\n"
            "relight.heartbeat(1)"
        )
        number = self.page.read()["signal"]
        self.assertTrue(signal.SIGRTMIN <= number <= signal.SIGRTMAX, number)
        os.kill(child.pid, number)
        self.wait_for_stacks("deep_in_thread")
        self.assertIsNone(child.poll())

    def test_it_needs_nobody_to_let_go_of_the_interpreter(self):
        # A regular expression that computes for ever holds the interpreter's lock.
        code = "import re, relight\ndef hold():\n  re.match('(a+)+$', 'a' * 60 + 'b')\nrelight.heartbeat(1)\nprint('there', flush=True)\nhold()"
        child = subprocess.Popen(
            [sys.executable, "-c", code], env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.children.append(child)
        self.assertEqual(child.stdout.readline(), b"there\n")
        number = self.page.read()["signal"]
        until = time.monotonic() + 20
        while time.monotonic() < until:
            os.kill(child.pid, number)
            with open(self.page.path + ".stacks") as file:
                if " in hold" in file.read():
                    return
            time.sleep(0.05)
        self.fail("no stack of it")

    def test_a_signal_of_the_programs_own_is_left_alone(self):
        self.start(
            "import relight, signal\n"
            "for n in range(signal.SIGRTMIN + 10, signal.SIGRTMIN + 13): signal.signal(n, lambda *_: None)\n"
            "relight.heartbeat(1)"
        )
        self.assertEqual(self.page.read()["signal"], signal.SIGRTMIN + 13)


if __name__ == "__main__":
    unittest.main()
