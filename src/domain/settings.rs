//! Settings: what was typed, what the environment and configuration files say, and the defaults, resolved to
//! one value each with its origin. The command line comes first, then variables, then files in the order given,
//! then the default.

mod advice;
mod args;
mod behind;
mod direct;
mod file;
mod hang;
mod health;
mod hints;
mod key;
mod launch;
mod output;
mod place;
mod resolve;
mod rows;
mod value;

pub use args::{Args, Facts};
pub use direct::{At, Meeting};
pub use file::{ConfigFile, FileError, Line};
pub use hang::HangSettings;
pub use health::HealthSettings;
pub use hints::{Backend, Conf, Endpoint, Hints};
pub use key::Key;
pub use output::OutputSettings;
pub use place::JobOutput;
pub use resolve::{AgentConfig, NodeContext, Place, Settings, SettingsError};
pub use rows::Row;
pub use value::{
    LogDir, Nodes, Nproc, Origin, StreamMap, Streams, Value, ValueProblem, duration_ms, is_on, stream_map,
};
