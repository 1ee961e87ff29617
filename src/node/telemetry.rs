//! What relight logs about itself, when asked with `RELIGHT_LOG`: through the log pump, so that a blocked
//! console costs nothing.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::domain::env;
use crate::logs::Stream;
use crate::logs::pump::Handle;

/// Starts it if it was asked for. A filter that cannot be read counts as none.
pub(super) fn begin(env: &[(String, String)], pump: Handle) {
    let wanted = env.iter().find(|(name, _)| name == env::RELIGHT_LOG.name).map(|(_, value)| value);
    let Some(filter) = wanted.and_then(|text| EnvFilter::try_new(text).ok()) else { return };
    let writer = move || Words(pump.clone());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(writer).finish();
    // There is only one agent in a process, so nobody was faster.
    let _ = tracing::subscriber::set_global_default(log);
}

struct Words(Handle);

impl io::Write for Words {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.say(Stream::Err, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
