#!/bin/bash
# What to type for an interactive session: two nodes, one call after the other, each a run of its own without restarts.
# Ctrl-C stops a run, and the allocation stays; a second Ctrl-C does not wait.
#
#   examples/interactive.sh                     (relight and a python3 on PATH)

exec salloc --nodes=2 --ntasks-per-node=1 --exclusive --no-kill \
    relight run --nproc-per-node=2 "${TRAIN:-examples/toy_trainer.py}" --steps=10000 --step-time=0.1
