"""relight: what a training script can tell the launcher that runs it.

    import relight

    for step, batch in enumerate(loader, start=first):
        relight.heartbeat(step)
        ...
        if step % 1000 == 0:
            with relight.phase("checkpoint"):
                save()

Nothing here is needed: `relight run` starts unchanged scripts. Every function works in any program: without a launcher, in
a process that was forked from the one that beats, or while another process of the same rank beats, it does nothing. None of
them blocks, and none but `heartbeat`, `phase`, `section` and `extend` with an argument of the wrong kind raises.
"""

from ._board import heartbeat, phase, section, extend, request_eviction, request_stop

__all__ = ["heartbeat", "phase", "section", "extend", "request_eviction", "request_stop"]
__version__ = "0.1.0"
