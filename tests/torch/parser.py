"""Asks torchrun's own parser what it makes of command lines: one JSON line in, one out."""

import contextlib
import io
import json
import os
import sys

from torch.distributed.elastic.rendezvous.registry import handler_registry
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.run import config_from_args, parse_args

base = dict(os.environ)


def judge(words, variables):
    os.environ.clear()
    os.environ.update(base)
    os.environ.update(variables)
    args = parse_args(words)
    program = [args.training_script, *args.training_script_args]
    config, _, _ = config_from_args(args)
    if not args.standalone:
        if config.rdzv_backend not in handler_registry._registry:
            raise ValueError("backend")
        # One node without an endpoint and a port gets a store of its own.
        if args.rdzv_endpoint or args.master_port is not None:
            parse_rendezvous_endpoint(config.rdzv_endpoint, 29400)
    if config.monitor_interval <= 0 or config.nproc_per_node < 1 or (config.shutdown_timeout or 0) < 0:
        raise ValueError("checked later")
    return program


for line in sys.stdin:
    words, variables = json.loads(line)
    noise = io.StringIO()
    try:
        with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
            answer = judge(words, variables)
    except SystemExit as end:
        answer = "exit %s" % end.code
    except Exception as error:
        answer = type(error).__name__
    print("=", json.dumps(answer), flush=True)
