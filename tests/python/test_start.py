"""The start-up module and the hooks, with a stand-in for torch: what it must have, and what it may lack."""

import os
import subprocess
import sys
import textwrap
import unittest

from test_board import PYTHON, Case

START = os.path.join(PYTHON, "start")

TORCH = {
    "torch/__init__.py": "from torch import autograd, nn, optim, serialization\nfrom torch.serialization import save\nfrom torch.utils.data import dataloader\ndevice = str\n",
    "torch/autograd.py": "def backward(*args, **kwargs):\n  if args: args[0]()\n",
    "torch/nn/__init__.py": "from torch.nn.modules.module import Module\n",
    "torch/nn/modules/__init__.py": "",
    "torch/nn/modules/module.py": "class Module:\n  def eval(self): return self\n",
    "torch/serialization.py": "def save(obj, f): obj()\n",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "",
    "torch/utils/data/dataloader.py": "class _BaseDataLoaderIter:\n  def __next__(self): return self.look()\n",
    "torch/optim/__init__.py": "from torch.optim import optimizer\n",
    "torch/optim/optimizer.py": """
        pre, post = [], []
        def register_optimizer_step_pre_hook(hook): pre.append(hook)
        def register_optimizer_step_post_hook(hook): post.append(hook)
        def step(look=lambda: None):
            for hook in pre: assert hook(None, (), {}) is None
            look()
            for hook in post: hook(None, (), {})
    """,
    "torch/distributed/__init__.py": "from torch.distributed.distributed_c10d import init_process_group\n",
    "torch/distributed/distributed_c10d.py": """
        from datetime import timedelta
        default_pg_timeout = timedelta(minutes=30)
        class _Group:
            def _get_backend(self, device):
                class B:
                    class options: _timeout = timedelta(seconds={"cuda": 600, "cpu": 1800}[device])
                return B
        def _get_default_group(): return _Group()
        def init_process_group(backend=None, init_method=None, timeout=None): return "started"
    """,
}

# What a training script does, and what its page says meanwhile.
TRAINS = """
import os, sys
import torch
from torch.optim import optimizer
from relight import _board
def look():
    page = _board._page
    print(*(["-"] if page is None else [page[3] >> 24 if page[3] & 1 else "?", page[3] >> 16 & 255]), flush=True)
class Iter(dataloader._BaseDataLoaderIter if "dataloader" in globals() else torch.dataloader._BaseDataLoaderIter):
    look = staticmethod(look)
it = Iter()
for n in range(3):
    next(it); look()
    torch.autograd.backward(look); look()
    optimizer.step(look); look()
torch.save(look, None); look()
"""


class Starts(Case):
    def setUp(self):
        super().setUp()
        self.user = os.path.join(self.folder.name, "user")
        for name, text in TORCH.items():
            self.write(name, text)

    def write(self, name, text):
        path = os.path.join(self.user, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))

    def environment(self, **more):
        more.setdefault("PYTHONPATH", os.pathsep.join([START, self.user, PYTHON]))
        return super().environment(**more)

    def test_a_script_that_knows_nothing_beats(self):
        said = self.python(TRAINS).splitlines()
        first = ["-", "-", "0 3", "0 4", "0 4", "1 7"]
        # Data, forward, backward, optimizer from its end on; then a checkpoint.
        second = ["1 1", "1 2", "1 3", "1 4", "1 4", "2 7"]
        third = ["2 1", "2 2", "2 3", "2 4", "2 4", "3 7"]
        self.assertEqual(said, first + second + third + ["3 5", "3 7"])
        found = self.page.read()
        self.assertEqual((found["step"], found["client"]), (3, False))

    def test_a_program_that_says_its_steps_is_believed(self):
        code = TRAINS.replace("for n in range(3):", "import relight\nfor n in range(3):\n    relight.heartbeat(500 + n); look()")
        said = self.python(code).splitlines()
        self.assertEqual(said[:7], ["500 7", "500 1", "500 7", "500 3", "500 4", "500 4", "500 7"])
        self.assertEqual(said[7:9], ["501 7", "501 1"])
        self.assertTrue(self.page.read()["client"])

    def test_a_phase_of_the_programs_own_stays_what_it_is(self):
        code = TRAINS.replace(
            "for n in range(3):", "import relight\nwith relight.phase('eval'):\n    next(it); torch.save(look, None); optimizer.step(look)\nfor n in range(3):"
        )
        said = self.python(code).splitlines()
        self.assertEqual(said[:3], ["? 6", "? 6", "? 6"])
        self.assertEqual(said[3], "1 1")

    def test_a_backward_pass_within_another_is_a_part_of_it(self):
        code = TRAINS.replace("torch.autograd.backward(look); look()", "torch.autograd.backward(lambda: (torch.autograd.backward(look), look())); look()")
        self.assertEqual(self.python(code).splitlines()[7:13], ["1 1", "1 2", "1 3", "1 3", "1 4", "1 4"])
        failing = TRAINS.replace("torch.autograd.backward(look); look()", "try: torch.autograd.backward(lambda: 1 / 0)\n    except ZeroDivisionError: look()")
        self.assertEqual(self.python(failing).splitlines()[5:8], ["1 1", "1 2", "1 4"])

    def test_an_evaluation_lasts_until_the_next_backward_pass(self):
        code = TRAINS.replace("for n in range(3):", "model = torch.nn.Module()\nfor n in range(6):\n    if n in (0, 3): assert model.eval() is model; look(); next(it); look()")
        said = self.python(code).splitlines()
        # Before the first step there is nothing that could be told apart.
        self.assertEqual(said[:6], ["-", "-", "-", "-", "-", "0 3"])
        self.assertEqual(said[21:29], ["3 6", "3 6", "3 6", "3 6", "3 6", "3 3", "3 4", "3 4"])
        self.assertEqual(said[29:32], ["4 7", "4 1", "4 2"])

    def test_what_never_trains_is_no_evaluation(self):
        frozen = "frozen = torch.nn.Module()\nfor n in range(5):\n    frozen.eval(); look()"
        said = self.python(TRAINS.replace("for n in range(3):", frozen)).splitlines()
        # One time it may be one.
        self.assertEqual([line for line in said if line.endswith(" 6")], ["1 6", "1 6", "1 6"])

    def test_the_shortest_timeout_of_collectives_is_told(self):
        code = "import torch.distributed as d\nassert d.init_process_group('x') == 'started'"
        self.start(code)
        found = self.page.read()
        self.assertEqual((found["collective_ms"], found["step"], found["phase"]), (600_000, None, 0))
        self.assertNotEqual(found["owner"], 0)
        self.end_children()
        self.children = []
        self.start("import datetime, torch.distributed as d\nd.init_process_group('x', timeout=datetime.timedelta(seconds=45))")
        self.assertEqual(self.page.read()["collective_ms"], 45_000)

    def test_whatever_torch_lacks_is_left_out(self):
        for name in ("torch/optim/optimizer.py", "torch/utils/data/dataloader.py", "torch/autograd.py", "torch/serialization.py"):
            self.write(name, "def save(obj, f): pass\n" if "serial" in name else "")
        self.write("torch/distributed/distributed_c10d.py", "def init_process_group(*args, **kwargs): return 1\n")
        self.python("import torch, torch.distributed as d\nassert d.init_process_group() == 1")
        self.write("torch/optim/optimizer.py", "def register_optimizer_step_post_hook(hook): raise RuntimeError('no')\n")
        self.python("import torch")
        self.write("torch/optim/optimizer.py", "raise ImportError('broken')\n")
        said = self.python("try: import torch\nexcept ImportError as error: print(error)")
        self.assertEqual(said, "broken\n")

    def test_torch_is_never_imported_by_us(self):
        self.assertEqual(self.python("import sys; print([m for m in sys.modules if 'torch' in m or 'relight' in m])"), "[]\n")

    def test_once_armed_children_are_left_alone(self):
        child = "import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', 'import sys; print(sys.meta_path[:2])']).decode())"
        # Not armed: a wrapper's child may be the one that trains.
        self.assertIn(".Finder", self.python(child))
        armed = self.python("import os, sys, torch\nprint(%r in sys.path, os.environ['PYTHONPATH'])\n%s" % (START, child))
        self.assertEqual(armed.splitlines()[0], "False " + os.pathsep.join([self.user, PYTHON]))
        self.assertNotIn(".Finder", armed)

    def test_the_grandchild_of_a_wrapper_beats(self):
        script = os.path.join(self.user, "train.py")
        self.write("train.py", TRAINS)
        wrapper = os.path.join(self.user, "wrap.sh")
        self.write("wrap.sh", "%s -c 'import subprocess, sys; subprocess.check_call([sys.executable, \"%s\"])'\ntrue\n" % (sys.executable, script))
        subprocess.run(["sh", wrapper], env=self.environment(), check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.page.read()["step"], 3)

    def test_another_start_up_module_runs_as_if_ours_were_not_there(self):
        self.write("sitecustomize.py", "import sys\nsys.theirs = __name__, __file__\n")
        said = self.python("import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__)\n" + TRAINS)
        theirs = os.path.join(self.user, "sitecustomize.py")
        self.assertEqual(said.splitlines()[0], "('sitecustomize', %r) %s" % (theirs, theirs))
        self.assertEqual(self.page.read()["step"], 3)
        self.write("sitecustomize.py", "raise KeyError('theirs')\n")
        command = [sys.executable, "-c", "print(1)"]
        with_ours = subprocess.run(command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        without = subprocess.run(command, env=self.environment(PYTHONPATH=self.user), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((with_ours.stdout, with_ours.stderr), (without.stdout, without.stderr))

    def test_interpreters_that_want_no_start_up_module_get_none(self):
        for option in ("-S", "-I", "-E"):
            code = "import sys; print([f for f in sys.meta_path if 'Finder' == getattr(f, '__name__', '')])"
            self.assertEqual(self.python(code, option), "[]\n", option)

    def test_a_module_that_shadows_ours_is_no_harm(self):
        self.write("relight.py", "mine = 1\n")
        self.assertEqual(self.python("import torch, relight; print(relight.mine)"), "1\n")

    def test_without_a_board_it_waits_for_nothing(self):
        self.assertNotIn(".Finder", self.python("import sys; print([f for f in sys.meta_path if f.__class__ is type])", RELIGHT_BOARD=None))

    def test_loaders_are_what_they_were(self):
        code = "import torch.optim.optimizer as o, inspect; print(type(o.__loader__).__name__, 'exec_module' in vars(o.__loader__), len(inspect.getsource(o)) > 9)"
        self.assertEqual(self.python(code), "SourceFileLoader False True\n")


if __name__ == "__main__":
    unittest.main()
