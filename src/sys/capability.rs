//! Which calls newer than Linux 4.18 this kernel (and its seccomp filter) allows; probed once.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use nix::libc;

use super::pidfd;

/// What may be used. Each one that is `false` has a fallback that behaves the same, only slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// `pidfd_open` and `pidfd_send_signal` (5.3); else SIGCHLD and a peek at each child.
    pub pidfd: bool,
    /// `close_range` (5.9); else a walk through `/proc/self/fd`.
    pub close_range: bool,
    /// `/proc/<pid>/task/<tid>/children`; else a scan of the whole of `/proc` by parent.
    pub children: bool,
}

impl Capabilities {
    /// What the kernel allows; asked once in a process's life.
    #[must_use]
    pub fn probe() -> Self {
        static PROBED: OnceLock<Capabilities> = OnceLock::new();
        *PROBED.get_or_init(|| Self {
            pidfd: probe_pidfd(),
            close_range: probe_close_range(),
            children: std::fs::read("/proc/thread-self/children").is_ok(),
        })
    }

    /// What the kernel allows, less the names in a list separated by commas: `pidfd`, `close_range`, `children`,
    /// or `all`. Other names belong to other rooms and are passed over.
    #[must_use]
    pub fn forced(list: &str) -> Self {
        list.split(',').fold(Self::probe(), |caps, name| match name.trim() {
            "pidfd" => caps.without_pidfd(),
            "close_range" => caps.without_close_range(),
            "children" => caps.without_children(),
            "all" => Self::none(),
            _ => caps,
        })
    }

    /// Nothing newer than Linux 4.18.
    #[must_use]
    pub const fn none() -> Self {
        Self { pidfd: false, close_range: false, children: false }
    }

    /// The same without pidfds.
    #[must_use]
    pub const fn without_pidfd(self) -> Self {
        Self { pidfd: false, ..self }
    }

    /// The same without `close_range`.
    #[must_use]
    pub const fn without_close_range(self) -> Self {
        Self { close_range: false, ..self }
    }

    /// The same without the `children` lists.
    #[must_use]
    pub const fn without_children(self) -> Self {
        Self { children: false, ..self }
    }
}

fn probe_pidfd() -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    pidfd::open_raw(own).is_ok_and(|fd| pidfd::send(fd.as_fd(), 0).is_ok())
}

fn probe_close_range() -> bool {
    // SAFETY: the range starts above every descriptor that can exist, so nothing is closed.
    unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_list_are_switched_off() {
        let all = Capabilities::probe();
        assert_eq!(Capabilities::forced(""), all);
        assert_eq!(Capabilities::forced("memfd"), all);
        assert_eq!(Capabilities::forced("pidfd, children"), all.without_pidfd().without_children());
        assert_eq!(Capabilities::forced("all"), Capabilities::none());
    }
}
