//! Stacks that are read out of a process: by `py-spy` where there is one and it is allowed to, and the kernel's own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::domain::liveness::evidence::Stack;
use crate::domain::liveness::stack::{self, MAX_DUMP};
use crate::sys::capability::Capabilities;
use crate::sys::capture::{self, End};
use crate::sys::facts;
use crate::sys::spawn::SpawnRequest;

/// So long `py-spy` has; then it is killed.
const LIMIT: Duration = Duration::from_secs(2);

/// What `py-spy` says of a process. It reads without stopping it. None where there is none or it fails (ptrace is often
/// forbidden to ordinary users).
pub(super) fn py_spy(pid: i32, path: &str, caps: Capabilities) -> Option<Stack> {
    let pid = u32::try_from(pid).ok()?;
    let words = ["py-spy", "dump", "--nonblocking", "--full-filenames", "--pid"];
    let argv = words.into_iter().map(OsString::from).chain([pid.to_string().into()]).collect();
    let env = vec![("PATH".into(), path.into())];
    let request = SpawnRequest { argv, env, cwd: PathBuf::from("/"), ..SpawnRequest::default() };
    let said = capture::run(request, LIMIT, MAX_DUMP, caps);
    match said.end {
        End::Ended(kind) if kind.is_success() => stack::outside(&said.output, pid),
        _ => None,
    }
}

/// The kernel's side, where we may see it.
pub(super) fn kernel(pid: i32) -> Option<Stack> {
    stack::kernel(&facts::kernel_stack(pid))
}
