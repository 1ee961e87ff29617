//! The process that asks NVIDIA's driver: a Python of the user's, since a static binary cannot load the driver's library.
//! It may hang for as long as the driver likes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Check;
use crate::domain::devices::{self, Word};
use crate::domain::health::{self, MOST_OUTPUT, Said};
use crate::domain::time::BootTime;
use crate::sys::capability::Capabilities;
use crate::sys::capture::{self, End};
use crate::sys::spawn::SpawnRequest;

/// What it runs.
const SCRIPT: &str = include_str!("../../python/probe/gpus.py");
/// The driver's library, as its own packages name it.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Where it is not there, this node has no GPU of NVIDIA's.
const DOOR: &str = "/dev/nvidiactl";
/// A driver that keeps nothing loaded takes seconds to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the driver of this node is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The interpreter; without a slash it is looked for in `PATH` of `env`.
    pub python: PathBuf,
    /// The library.
    pub library: String,
    /// The environment of the interpreter.
    pub env: Vec<(OsString, OsString)>,
}

impl Driver {
    /// `nvml`: the library, `off`, or empty for whatever this node has. None: nobody is asked.
    #[must_use]
    pub fn of(nvml: &str, interpreter: &Path, env: &[(OsString, OsString)]) -> Option<Self> {
        let library = match nvml {
            "off" => return None,
            "" if !Path::new(DOOR).exists() => return None,
            "" => LIBRARY,
            library => library,
        };
        let python = if interpreter.as_os_str().is_empty() { Path::new("python3") } else { interpreter };
        Some(Self { python: python.to_owned(), library: library.to_owned(), env: env.to_vec() })
    }

    /// The process: it writes to this descriptor, and looks so often; once, if that is 0.
    #[must_use]
    pub fn request(&self, out: i32, every: Duration) -> SpawnRequest {
        let mut argv: Vec<OsString> = vec![self.python.clone().into()];
        argv.extend(["-I", "-S", "-c", SCRIPT, &self.library].map(OsString::from));
        argv.extend([out.to_string(), every.as_secs_f64().to_string()].map(OsString::from));
        SpawnRequest { argv, env: self.env.clone(), cwd: PathBuf::from("/"), ..SpawnRequest::default() }
    }
}

/// One line of it; none: it is none of its own.
#[must_use]
pub fn word(line: &[u8]) -> Option<Word> {
    serde_json::from_slice(line).ok()
}

/// One look at the GPUs.
#[derive(Debug)]
pub struct Gpus(pub Driver);

impl Check for Gpus {
    fn name(&self) -> String {
        devices::CHECK.into()
    }

    fn limit(&self) -> Duration {
        PATIENCE
    }

    fn look(&self) -> Said {
        const STDOUT: i32 = 1;
        let request = self.0.request(STDOUT, Duration::ZERO);
        let said = capture::run(request, PATIENCE, MOST_OUTPUT, Capabilities::probe());
        match said.end {
            End::Late => return health::late(u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX)),
            End::NotStarted(error) => return Said::skipped(format!("no Python to ask with: {error}")),
            End::Ended(_) => {}
        }
        let mut gpus = devices::Gpus::default();
        let mut heard = false;
        for word in said.output.split(|byte| *byte == b'\n').filter_map(word) {
            gpus.hear(BootTime(0), word);
            heard = true;
        }
        if !heard {
            return Said::unknown("it broke before it said anything");
        }
        gpus.said()
    }
}
