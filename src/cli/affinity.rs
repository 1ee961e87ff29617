//! `--numa-binding`: which CPUs each rank of this node gets.

use std::path::Path;

use super::devices;
use super::facts::Process;
use crate::domain::numa::{NumaBinding, NumaError};
use crate::sys::topology;

/// Where the kernel says what it knows of the machine.
const SYSFS: &str = "/sys";

/// The CPUs of each local rank.
///
/// # Errors
/// A rank has no GPU, or there are no CPUs for it.
pub fn cpus(process: &Process, way: NumaBinding, ranks: u32) -> Result<Vec<Vec<u32>>, NumaError> {
    let sysfs = Path::new(SYSFS);
    let mut machine = topology::read(sysfs);
    if machine.cpus.is_empty() {
        return Err(NumaError::Unknown);
    }
    let devices = devices::visible(process);
    if devices.is_empty() {
        machine.spread(ranks);
    } else {
        machine.devices = devices.iter().map(|address| topology::node_of(sysfs, address)).collect();
    }
    (0..ranks).map(|rank| machine.bind(way, rank)).collect()
}
