//! What the surroundings of the ranks are like. Looking can block (a path on a stalled file system), so it is
//! done in a worker that may be abandoned; what is not answered in time is *unknown*, never bad.

pub mod check;
pub mod error_files;
pub mod gpus;
pub mod protocol;
pub mod worker;
