//! Ring 1, the floor: every `unsafe`, every nix and rustix call. What is newer than Linux 4.18 is probed once
//! ([`capability`]) and has a fallback.
//!
//! Nothing here waits for a shared file system, and of another process only `stat`, `status` and what
//! [`facts`] names are read: `cmdline`, `environ` and `maps` block on a process that is stuck in the kernel.

pub mod addresses;
pub mod capability;
pub mod capture;
pub mod cgroup;
pub mod clock;
pub mod dirs;
pub mod epoll;
pub mod facts;
pub mod fence;
pub mod files;
pub mod inherited;
pub mod lock;
pub mod memexec;
pub mod memfd;
pub mod page;
pub mod pidfd;
pub mod pipes;
pub mod poll;
pub mod port;
pub mod process;
pub mod procfs;
pub mod random;
pub mod ready;
pub mod seqpacket;
pub mod shm;
pub mod signals;
pub mod spawn;
pub mod timer;
pub mod topology;
pub mod tree;
pub mod wait;
pub mod wake;
