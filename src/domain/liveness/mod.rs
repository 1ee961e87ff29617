//! Does the program still advance, and if not, who holds it up?
//!
//! "First to exit" is the culprit of a crash, never of a hang: the ranks that wait for the culprit end first.

pub mod collective;
pub mod evidence;
pub mod flight;
pub mod limits;
pub mod lineup;
pub mod stack;
pub mod vote;
pub mod watch;
