//! What an agent is started from: everything that the command line decided, in one sealed memory file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::console::Banner;
use crate::domain::settings::NodeContext;
use crate::domain::spec::{NodeSpec, RunSpec};
use crate::logs::spec::LogSpec;

/// The configuration of every agent of a launch. It holds no secret: that lies in the run directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boot {
    /// What is run.
    pub spec: RunSpec,
    /// What this node brings.
    pub node: NodeSpec,
    /// Places, output, environment.
    pub context: NodeContext,
    /// Where the ranks' output goes.
    pub logs: LogSpec,
    /// What the first lines say.
    pub banner: Banner,
    /// The directories above the run directory may be made.
    pub make_parents: bool,
    /// The user who runs this: only such a one, or a terminal, escalates a stop.
    pub uid: u32,
    /// SIGHUP was ignored when the launcher was started (`nohup`).
    pub ignore_hangup: bool,
    /// System calls to do without, as in `RELIGHT_FORCE_FALLBACK`.
    pub fallbacks: String,
    /// The launcher's own `TORCHELASTIC_ERROR_FILE`.
    pub error_file: Option<PathBuf>,
    /// Worker processes get this environment.
    pub worker_env: Vec<(String, String)>,
}

/// A configuration that is none.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Of another version of the program, or damaged.
    #[error("the agent's configuration cannot be read")]
    Codec(#[from] postcard::Error),
}

impl Boot {
    /// Its bytes.
    ///
    /// # Errors
    /// A path or a value that cannot be written down.
    pub fn encode(&self) -> Result<Vec<u8>, BootError> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// Reads it back.
    ///
    /// # Errors
    /// The bytes are of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, BootError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}
