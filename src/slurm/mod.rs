//! Ring 1: Slurm's commands. How a line of `srun` is read and completed, and how commands are run and what they print
//! is read: each with a deadline, for a controller may not answer for a long time.

pub mod ask;
pub mod children;
pub mod line;
pub mod plan;
