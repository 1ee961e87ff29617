//! The child's way from fork to exec: system calls only, on memory laid out before the fork. No allocation, no lock,
//! no destructor.

use std::ffi::CString;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use nix::libc::{self, c_char, c_int};

use super::{SpawnError, SpawnRequest, Stdin, c_string, candidates};
use crate::sys::capability::Capabilities;
use crate::sys::process;

/// Where the child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Descriptors = 1,
    Null,
    Session,
    DeathSignal,
    Orphaned,
    Directory,
    Limit,
    Affinity,
    Exec,
    /// The file is there, its interpreter is not.
    Interpreter,
}

impl Step {
    /// Bytes of a report: step and errno.
    pub(super) const REPORT: usize = 8;

    fn to_report(self, errno: i32) -> [u8; Self::REPORT] {
        let [a, b, c, d] = errno.to_le_bytes();
        [self as u8, 0, 0, 0, a, b, c, d]
    }

    pub(super) fn from_report(bytes: [u8; Self::REPORT]) -> (Self, i32) {
        const ALL: [Step; 10] = [
            Step::Descriptors,
            Step::Null,
            Step::Session,
            Step::DeathSignal,
            Step::Orphaned,
            Step::Directory,
            Step::Limit,
            Step::Affinity,
            Step::Exec,
            Step::Interpreter,
        ];
        let [step, _, _, _, a, b, c, d] = bytes;
        let step = ALL.into_iter().find(|known| *known as u8 == step).unwrap_or(Step::Exec);
        (step, i32::from_le_bytes([a, b, c, d]))
    }
}

struct Mapping {
    source: RawFd,
    target: RawFd,
}

/// Everything the child needs.
pub(super) struct Plan {
    candidates: Vec<CString>,
    argv: Pointers,
    env: Pointers,
    cwd: CString,
    stdin: Stdin,
    mappings: Vec<Mapping>,
    /// Targets from 3 up, sorted.
    kept: Vec<RawFd>,
    highest: RawFd,
    session: bool,
    death_signal: Option<c_int>,
    ignore: Vec<c_int>,
    nofile: Option<libc::rlimit>,
    /// A bit for each CPU, in words of the kernel; empty: as ours.
    cpus: Vec<libc::c_ulong>,
    parent: i32,
    close_range: bool,
}

/// Strings with the array of pointers to them that exec wants.
struct Pointers {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Pointers {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }
}

impl Plan {
    pub(super) fn new(request: &SpawnRequest, caps: Capabilities) -> Result<Self, SpawnError> {
        let invalid = |what: &str| SpawnError { errno: libc::EINVAL, what: what.to_owned() };
        let program = request.argv.first().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| invalid("no program to start"))?;
        let argv = request.argv.iter().map(|arg| c_string(arg.as_bytes(), "argument"));
        let pair = |(key, value): &(std::ffi::OsString, std::ffi::OsString)| {
            c_string(&[key.as_bytes(), b"=", value.as_bytes()].concat(), "environment variable")
        };
        let own = [(1, request.stdout.as_ref()), (2, request.stderr.as_ref())];
        let own = own.into_iter().filter_map(|(target, fd)| Some((target, fd?.as_raw_fd())));
        let further = request.inherit.iter().map(|(target, fd)| (*target, fd.as_raw_fd()));
        let mappings: Vec<Mapping> =
            own.chain(further).map(|(target, source)| Mapping { source, target }).collect();
        let mut targets: Vec<RawFd> = mappings.iter().map(|mapping| mapping.target).collect();
        targets.sort_unstable();
        if targets.windows(2).any(|pair| pair[0] == pair[1]) || targets.iter().any(|target| *target < 1) {
            return Err(invalid("descriptor numbers of the child (each only once, from 1 up)"));
        }
        let nofile = request.nofile.map(|limit| libc::rlimit { rlim_cur: limit.soft, rlim_max: limit.hard });
        Ok(Self {
            candidates: candidates(program, &request.env)?,
            argv: Pointers::new(argv.collect::<Result<_, _>>()?),
            env: Pointers::new(request.env.iter().map(pair).collect::<Result<_, _>>()?),
            cwd: c_string(request.cwd.as_os_str().as_bytes(), "working directory")?,
            stdin: request.stdin,
            highest: targets.last().copied().unwrap_or(2).max(2),
            kept: targets.into_iter().filter(|target| *target > 2).collect(),
            mappings,
            session: request.session,
            death_signal: request.death_signal,
            ignore: request.ignore.clone(),
            nofile,
            cpus: cpu_mask(&request.cpus),
            parent: process::own_pid(),
            close_range: caps.close_range,
        })
    }
}

/// A bit for each CPU; those beyond every machine are left out.
fn cpu_mask(cpus: &[u32]) -> Vec<libc::c_ulong> {
    const MOST: usize = 1 << 16;
    let bits = libc::c_ulong::BITS as usize;
    let cpus = || cpus.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < MOST);
    let Some(highest) = cpus().max() else { return Vec::new() };
    let mut mask = vec![0; highest / bits + 1];
    for cpu in cpus() {
        mask[cpu / bits] |= 1 << (cpu % bits);
    }
    mask
}

/// The errno of a call that failed, with the step it was part of.
type Failed = (Step, c_int);

fn check(rc: c_int, step: Step) -> Result<c_int, Failed> {
    if rc >= 0 { Ok(rc) } else { Err((step, errno())) }
}

fn errno() -> c_int {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Runs in the child.
///
/// # Safety
/// Only in a process just forked, with one thread.
pub(super) unsafe fn run(plan: &mut Plan, report: RawFd) -> ! {
    let mut report = report;
    // SAFETY: passed on from the caller.
    let Err((step, errno)) = unsafe { prepare_and_exec(plan, &mut report) };
    let bytes = step.to_report(errno);
    // SAFETY: `bytes` lives through the call; `_exit` ends the child without anybody's destructors.
    unsafe {
        libc::write(report, bytes.as_ptr().cast(), bytes.len());
        libc::_exit(127)
    }
}

unsafe fn prepare_and_exec(plan: &mut Plan, report: &mut RawFd) -> Result<std::convert::Infallible, Failed> {
    // SAFETY: system calls on the plan's memory, which lives until exec or _exit.
    unsafe {
        if plan.session {
            check(libc::setsid(), Step::Session)?;
        }
        if let Some(signal) = plan.death_signal {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, signal), Step::DeathSignal)?;
            // A parent that died before the call above sends nothing.
            if libc::getppid() != plan.parent {
                return Err((Step::Orphaned, libc::ESRCH));
            }
        }
        reset_signals(&plan.ignore);
        descriptors(plan, report)?;
        if !plan.cwd.is_empty() {
            check(libc::chdir(plan.cwd.as_ptr()), Step::Directory)?;
        }
        if let Some(limit) = &plan.nofile {
            check(libc::setrlimit(libc::RLIMIT_NOFILE, limit), Step::Limit)?;
        }
        if !plan.cpus.is_empty() {
            let bytes = std::mem::size_of_val(plan.cpus.as_slice());
            let rc = libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, plan.cpus.as_ptr());
            if rc < 0 {
                return Err((Step::Affinity, errno()));
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        Err(exec(plan))
    }
}

// The raw call: libc's own refuses 32 and 33, which a parent may have left ignored all the same.
unsafe fn reset_signals(ignore: &[c_int]) {
    const MASK_BYTES: usize = 8;
    for signal in 1..=64 {
        let action = if ignore.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // The kernel's struct: handler, flags, restorer, mask.
        let new: [usize; 4] = [action, 0, 0, 0];
        // SAFETY: `new` is as large as what the kernel reads. KILL and STOP refuse; they need no reset.
        unsafe {
            let none = ptr::null_mut::<usize>();
            libc::syscall(libc::SYS_rt_sigaction, signal, new.as_ptr(), none, MASK_BYTES);
        }
    }
}

/// Puts every descriptor under its number and closes the rest.
unsafe fn descriptors(plan: &mut Plan, report: &mut RawFd) -> Result<(), Failed> {
    // SAFETY: descriptor calls on numbers; the child owns its table.
    unsafe {
        // First out of the way: a source must not lie where another one's target is.
        let above = plan.highest.saturating_add(1);
        if *report < above {
            *report = check(libc::fcntl(*report, libc::F_DUPFD_CLOEXEC, above), Step::Descriptors)?;
        }
        for mapping in &mut plan.mappings {
            if mapping.source < above && mapping.source != mapping.target {
                mapping.source =
                    check(libc::fcntl(mapping.source, libc::F_DUPFD_CLOEXEC, above), Step::Descriptors)?;
            }
        }
        if plan.stdin == Stdin::Null {
            let null =
                check(libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC), Step::Null)?;
            if null == 0 {
                check(libc::fcntl(0, libc::F_SETFD, 0), Step::Descriptors)?;
            } else {
                check(libc::dup2(null, 0), Step::Descriptors)?;
                libc::close(null);
            }
        }
        for mapping in &plan.mappings {
            if mapping.source == mapping.target {
                check(libc::fcntl(mapping.target, libc::F_SETFD, 0), Step::Descriptors)?;
            } else {
                check(libc::dup2(mapping.source, mapping.target), Step::Descriptors)?;
            }
        }
        if !plan.close_range || !close_ranges(&plan.kept, *report) {
            close_on_exec(&plan.kept);
        }
        Ok(())
    }
}

/// Closes everything from 3 up but the kept ones and the report, which lies above them.
unsafe fn close_ranges(kept: &[RawFd], report: RawFd) -> bool {
    let mut from = 3;
    for keep in kept.iter().copied().chain([report]) {
        // SAFETY: closes numbers of the child's own table.
        if keep > from && unsafe { libc::syscall(libc::SYS_close_range, from, keep - 1, 0) } != 0 {
            return false;
        }
        from = keep + 1;
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) == 0 }
}

/// Without `close_range`: marks everything in /proc/self/fd from 3 up, but the kept ones, to be closed by exec.
unsafe fn close_on_exec(kept: &[RawFd]) {
    /// Room for entries of `getdents64`, which wants them aligned.
    #[repr(align(8))]
    struct Buffer([u8; 4096]);
    let mark = |fd: RawFd| {
        if fd > 2 && !kept.contains(&fd) {
            // SAFETY: a flag of one number of the child's own table.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    };
    // SAFETY: the buffer lives through each call and the kernel writes at most its length.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let dir = libc::open(c"/proc/self/fd".as_ptr(), flags);
        if dir < 0 {
            (3..4096).for_each(mark);
            return;
        }
        let mut buffer = Buffer([0; 4096]);
        loop {
            let read = libc::syscall(libc::SYS_getdents64, dir, buffer.0.as_mut_ptr(), buffer.0.len());
            let Ok(read) = usize::try_from(read) else { break };
            if read == 0 {
                break;
            }
            for_each_number(&buffer.0[..read.min(4096)], mark);
        }
    }
}

/// Calls for every directory entry whose name is a number.
fn for_each_number(entries: &[u8], mut call: impl FnMut(RawFd)) {
    // struct linux_dirent64: u64 inode, i64 offset, u16 length, u8 type, name with a NUL.
    let mut rest = entries;
    while let (Some(low), Some(high)) = (rest.get(16), rest.get(17)) {
        let length = usize::from(u16::from_ne_bytes([*low, *high]));
        let (Some(name), Some(next)) = (rest.get(19..length), rest.get(length..)) else { return };
        let mut number: Option<RawFd> = None;
        for byte in name.iter().take_while(|byte| **byte != 0) {
            if !byte.is_ascii_digit() {
                number = None;
                break;
            }
            number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(RawFd::from(byte - b'0')));
        }
        if let Some(fd) = number {
            call(fd);
        }
        rest = next;
    }
}

/// Tries each place, as execvp does; returns why none would do.
unsafe fn exec(plan: &Plan) -> Failed {
    let mut refused = None;
    let mut last = libc::ENOENT;
    for candidate in &plan.candidates {
        // SAFETY: NUL-terminated strings and NULL-terminated arrays, all owned by the plan.
        unsafe {
            libc::execve(candidate.as_ptr(), plan.argv.pointers.as_ptr(), plan.env.pointers.as_ptr());
            let errno = errno();
            match errno {
                libc::ENOENT if libc::access(candidate.as_ptr(), libc::F_OK) == 0 => {
                    return (Step::Interpreter, libc::ENOENT);
                }
                libc::EACCES => refused = Some(errno),
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => last = errno,
                _ => return (Step::Exec, errno),
            }
        }
    }
    (Step::Exec, refused.unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_its_report() {
        for number in 1..=10 {
            let (step, errno) = Step::from_report([number, 0, 0, 0, 13, 0, 0, 0]);
            assert_eq!((step as u8, errno), (number, 13));
            assert_eq!(Step::from_report(step.to_report(-7)), (step, -7));
        }
        assert_eq!(Step::from_report([200, 0, 0, 0, 2, 0, 0, 0]), (Step::Exec, 2));
    }

    #[test]
    fn masks_of_cpus() {
        assert_eq!(cpu_mask(&[]), [0_u64; 0]);
        assert_eq!(cpu_mask(&[0, 3, 64, u32::MAX]), [0b1001, 1]);
    }

    #[test]
    fn numbers_are_read_from_directory_entries() {
        let entry = |name: &[u8]| {
            let mut bytes = vec![0; 19];
            bytes.extend_from_slice(name);
            bytes.resize(24.max(bytes.len() + 1).next_multiple_of(8), 0);
            let length = u16::try_from(bytes.len()).unwrap().to_ne_bytes();
            bytes[16..18].copy_from_slice(&length);
            bytes
        };
        let all =
            [entry(b"."), entry(b".."), entry(b"0"), entry(b"17"), entry(b"1234567890123"), entry(b"9x")]
                .concat();
        let mut seen = Vec::new();
        for_each_number(&all, |fd| seen.push(fd));
        assert_eq!(seen, vec![0, 17, i32::MAX]);
        for cut in 0..all.len() {
            for_each_number(&all[..cut], |_| {});
        }
        for_each_number(&[0; 64], |_| {});
    }
}
