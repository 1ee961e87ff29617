//! The page that guardian and agent share: one mapped memory file of four words. The agent writes its tick and
//! its grant without a call; the guardian reads them whatever state the agent is in.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::memfd;
use crate::domain::ids::Incarnation;
use crate::domain::time::BootTime;

/// Size of the file and of the mapping, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// `relight1`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"relight1");

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A call failed.
    #[error("the page shared by guardian and agent cannot be {what}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The descriptor is something else.
    #[error("the inherited descriptor is not the page of a guardian")]
    NotAPage,
}

/// The words, at the beginning of the page.
#[repr(C)]
struct Words {
    magic: AtomicU64,
    incarnation: AtomicU64,
    tick: AtomicU64,
    grant_until_ns: AtomicU64,
}

const _: () = assert!(size_of::<Words>() <= PAGE_BYTES);

/// One mapping of the page.
#[derive(Debug)]
pub struct Page {
    words: NonNull<Words>,
    fd: OwnedFd,
}

// SAFETY: the mapping lives as long as the value, and everything in it is atomic.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A new page: nobody's, no grant.
    pub fn create() -> Result<Self, PageError> {
        let file = memfd::create("relight-page", false).map_err(failed("created"))?;
        file.set_len(PAGE_BYTES as u64).map_err(failed("sized"))?;
        memfd::seal(&file, false).map_err(failed("sealed"))?;
        let page = Self::map(file.into())?;
        page.words().magic.store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// The page behind an inherited descriptor, which is kept from being inherited further.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, PageError> {
        let file = File::from(fd);
        let length = file.metadata().map_err(failed("examined"))?.len();
        if length != PAGE_BYTES as u64 || !memfd::cannot_shrink(&file) {
            return Err(PageError::NotAPage);
        }
        memfd::close_on_exec(&file).map_err(failed("kept private"))?;
        let page = Self::map(file.into())?;
        if page.words().magic.load(Ordering::Acquire) != MAGIC {
            return Err(PageError::NotAPage);
        }
        Ok(page)
    }

    fn map(fd: OwnedFd) -> Result<Self, PageError> {
        let length = NonZeroUsize::new(PAGE_BYTES).ok_or(PageError::NotAPage)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; the file is PAGE_BYTES long and
        // sealed against shrinking, so no access can fault.
        let address = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &fd, 0) }
            .map_err(io::Error::from)
            .map_err(failed("mapped"))?;
        Ok(Self { words: address.cast(), fd })
    }

    fn words(&self) -> &Words {
        // SAFETY: mapped for as long as `self` lives, page-aligned, and atomics may be shared with others.
        unsafe { self.words.as_ref() }
    }

    /// The descriptor, for passing it on.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes the page this incarnation's: no tick, no grant. Only while no agent lives.
    pub fn reset(&self, incarnation: Incarnation) {
        self.words().grant_until_ns.store(0, Ordering::Release);
        self.words().tick.store(0, Ordering::Release);
        self.words().incarnation.store(incarnation.0, Ordering::Release);
    }

    /// Whose page it is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.words().incarnation.load(Ordering::Acquire))
    }

    /// The turns of the agent's loop so far.
    #[must_use]
    pub fn tick(&self) -> u64 {
        self.words().tick.load(Ordering::Acquire)
    }

    /// Counts one turn of the agent's loop.
    pub fn count_tick(&self) {
        self.words().tick.fetch_add(1, Ordering::AcqRel);
    }

    /// Until when ranks may run: 0 before the first grant, [`BootTime::NEVER`] for ever.
    #[must_use]
    pub fn grant(&self) -> BootTime {
        BootTime(self.words().grant_until_ns.load(Ordering::Acquire))
    }

    /// Renews the grant. It never goes back: an earlier instant than the one that stands changes nothing.
    pub fn set_grant(&self, until: BootTime) {
        self.words().grant_until_ns.fetch_max(until.0, Ordering::AcqRel);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no reference into it outlives `self`. Nothing can be done
        // about a failure.
        let _ = unsafe { munmap(self.words.cast(), PAGE_BYTES) };
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> PageError {
    move |source| PageError::Call { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_see_one_page() {
        let guardian = Page::create().unwrap();
        let agent = Page::from_fd(guardian.fd().try_clone_to_owned().unwrap()).unwrap();
        guardian.reset(Incarnation(9));
        assert_eq!((agent.incarnation(), agent.grant(), agent.tick()), (Incarnation(9), BootTime(0), 0));
        agent.count_tick();
        agent.set_grant(BootTime(50));
        agent.set_grant(BootTime(40));
        assert_eq!((guardian.tick(), guardian.grant()), (1, BootTime(50)));
        agent.set_grant(BootTime::NEVER);
        assert_eq!(guardian.grant(), BootTime::NEVER);
        guardian.reset(Incarnation(10));
        assert_eq!((agent.incarnation(), agent.grant(), agent.tick()), (Incarnation(10), BootTime(0), 0));
    }

    #[test]
    fn something_else_is_no_page() {
        let bytes = memfd::with_bytes("relight-test", &[0; PAGE_BYTES]).unwrap();
        assert!(Page::from_fd(bytes).is_err());
        let bytes = memfd::with_bytes("relight-test", b"short").unwrap();
        assert!(matches!(Page::from_fd(bytes), Err(PageError::NotAPage)));
        let null = File::open("/dev/null").unwrap();
        assert!(matches!(Page::from_fd(null.into()), Err(PageError::NotAPage)));
    }
}
