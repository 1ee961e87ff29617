"""Feeds the heartbeat board of a script that does not know of it, through torch's own hooks.

`start/sitecustomize.py` calls `arm` for each module of `WANTED` once it is loaded, and never imports torch itself. Whatever a
version of torch lacks is left out; nothing here ever raises into a program.
"""

import functools
import sys

from . import _board


def arm(name, module):
    """Puts the hooks of this module where they belong."""
    try:
        WANTED[name](module)
    except Exception:
        pass


def _optimizer(module):
    # One hook, not two: what happens between its backward pass and this one is the optimizer's.
    module.register_optimizer_step_post_hook(_board._after_step)


def _replace(module, name, around):
    original = getattr(module, name)
    setattr(module, name, functools.wraps(original)(around(original)))


def _dataloader(module):
    _replace(module._BaseDataLoaderIter, "__next__", _board._around_next)


def _autograd(module):
    _replace(module, "backward", _board._around_backward)


def _modules(module):
    _replace(module.Module, "eval", _board._around_eval)


def _serialization(module):
    _replace(module, "save", _board._around_save)


def _distributed(module):
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args, **kwargs):
        # Whoever calls it is the rank. Claimed before: a start that hangs can be asked for its stacks.
        _board._claim()
        result = original(*args, **kwargs)
        try:
            seconds = _timeout(module, args, kwargs)
            if seconds:
                _board._tell_collective_timeout(seconds)
        except Exception:
            pass
        return result

    module.init_process_group = init_process_group


def _timeout(module, args, kwargs):
    """When collectives of the default group give up, in seconds: the shortest of its backends'; None: unknown."""
    given = kwargs.get("timeout", args[2] if len(args) > 2 else None)
    if given is not None:
        return given.total_seconds()
    torch = sys.modules["torch"]
    found = []
    for device in ("cuda", "cpu"):
        try:
            backend = module._get_default_group()._get_backend(torch.device(device))
            found.append(backend.options._timeout.total_seconds())
        except Exception:
            pass
    if not found:
        found.append(module.default_pg_timeout.total_seconds())
    return min(found)


WANTED = {
    "torch.optim.optimizer": _optimizer,
    "torch.utils.data.dataloader": _dataloader,
    "torch.autograd": _autograd,
    "torch.nn.modules.module": _modules,
    "torch.serialization": _serialization,
    "torch.distributed.distributed_c10d": _distributed,
}
