"""The parts of scripts/slurm-sandbox."""
