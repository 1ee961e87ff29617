# Runs at the start of every Python below a rank of relight (docs/heartbeat.md), so it is short, understood by any Python, and
# never raises: it waits for torch, without importing it, and lets the `sitecustomize` run that it hides.
import sys


def _start():
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    # This process has seen it. In the environment it stays until the one that trains is found: a wrapper's child may be that.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    if sys.version_info < (3, 8) or getattr(sys, "implementation", sys).name != "cpython" or "RELIGHT_BOARD" not in os.environ:
        return
    names = (
        "torch.optim.optimizer",
        "torch.utils.data.dataloader",
        "torch.autograd",
        "torch.nn.modules.module",
        "torch.serialization",
        "torch.distributed.distributed_c10d",
    )

    def loaded(name, module):
        try:
            from relight import _hooks
        except Exception:
            return
        _hooks.arm(name, module)
        # Armed: what this process starts is none of our business.
        entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if here in entries:
            entries.remove(here)
            if entries:
                os.environ["PYTHONPATH"] = os.pathsep.join(entries)
            else:
                del os.environ["PYTHONPATH"]

    class Finder(object):
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name not in names:
                return None
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not Finder else None
                if spec is None:
                    continue
                loader = spec.loader
                try:
                    execute = loader.exec_module

                    def exec_module(module):
                        del loader.exec_module
                        execute(module)
                        loaded(name, module)

                    # Of this one loader, until it has done its work.
                    loader.exec_module = exec_module
                except AttributeError:
                    pass
                return spec
            return None

    sys.meta_path.insert(0, Finder)
    for name in names:
        if name in sys.modules:
            loaded(name, sys.modules[name])


def _chain():
    if sys.version_info < (3, 4):
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _start()
except Exception:
    pass
_chain()
