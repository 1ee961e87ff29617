//! Settings for people: one row each.

use super::key::Key;
use super::resolve::Settings;
use super::value::{LogDir, Origin};
use crate::domain::spec::{GrantMode, StoreHost};

/// One setting for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The setting.
    pub key: Key,
    /// As it could be typed; `None`: not set.
    pub value: Option<String>,
    /// Where it came from.
    pub origin: Origin,
}

impl Settings {
    /// Every setting for people, in the order of [`Key::ALL`].
    #[must_use]
    #[allow(clippy::too_many_lines)] // One arm a setting.
    pub fn rows(&self) -> Vec<Row> {
        let seconds =
            |ms: u64| if ms.is_multiple_of(1000) { (ms / 1000).to_string() } else { format!("{ms}ms") };
        let flag = |value: bool| u8::from(value).to_string();
        let list = |ranks: &Vec<u32>| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let show = |key: Key| -> (Option<String>, &Origin) {
            match key {
                Key::RunId => (Some(self.run_id.value.to_string()), &self.run_id.origin),
                Key::RunDir => (Some(self.run_dir.value.display().to_string()), &self.run_dir.origin),
                Key::Standalone => (Some(flag(self.standalone.value)), &self.standalone.origin),
                Key::Nnodes => (Some(self.nnodes.value.to_string()), &self.nnodes.origin),
                Key::Spares => (Some(self.spares.value.to_string()), &self.spares.origin),
                Key::NprocPerNode => (Some(self.nproc.value.to_string()), &self.nproc.origin),
                Key::MaxRestarts => {
                    let value = self.max_restarts.value.map_or("unlimited".to_owned(), |n| n.to_string());
                    (Some(value), &self.max_restarts.origin)
                }
                Key::Module => (Some(flag(self.module.value)), &self.module.origin),
                Key::NoPython => (Some(flag(self.no_python.value)), &self.no_python.origin),
                Key::LogDir => {
                    let value = match &self.log_dir.value {
                        LogDir::InRunDir => None,
                        LogDir::At(path) => Some(path.display().to_string()),
                        LogDir::Off => Some("/dev/null".to_owned()),
                    };
                    (value, &self.log_dir.origin)
                }
                Key::Redirects => (Some(self.redirects.value.to_string()), &self.redirects.origin),
                Key::Tee => (Some(self.tee.value.to_string()), &self.tee.origin),
                Key::Role => (Some(self.role.value.clone()), &self.role.origin),
                Key::LocalRanksFilter => {
                    (self.console_ranks.value.as_ref().map(list), &self.console_ranks.origin)
                }
                Key::ShutdownTimeout => {
                    (self.shutdown_timeout_ms.value.map(seconds), &self.shutdown_timeout_ms.origin)
                }
                Key::LostAfter => (Some(seconds(self.lost_ms.value)), &self.lost_ms.origin),
                Key::JoinTimeout => (Some(seconds(self.join_timeout_ms.value)), &self.join_timeout_ms.origin),
                Key::RestartBackoff => (Some(seconds(self.backoff_ms.value)), &self.backoff_ms.origin),
                Key::StoreTimeout => {
                    (Some(seconds(self.store_timeout_ms.value)), &self.store_timeout_ms.origin)
                }
                Key::Grant => {
                    let value = match self.grant.value {
                        GrantMode::Auto => "auto",
                        GrantMode::Lease => "lease",
                    };
                    (Some(value.to_owned()), &self.grant.origin)
                }
                Key::RdzvStore => {
                    let value = match self.rdzv_store.value {
                        StoreHost::Agent => "agent",
                        StoreHost::Rank0 => "rank0",
                    };
                    (Some(value.to_owned()), &self.rdzv_store.origin)
                }
                Key::LocalAddr => (self.local_addr.value.clone(), &self.local_addr.origin),
                Key::LastCall => (Some(seconds(self.last_call_ms.value)), &self.last_call_ms.origin),
                Key::RunPath => (Some(flag(self.run_path.value)), &self.run_path.origin),
                Key::VirtualLocalRank => {
                    (Some(flag(self.virtual_local_rank.value)), &self.virtual_local_rank.origin)
                }
                Key::NumaBinding => (self.numa.value.map(|numa| numa.name().to_owned()), &self.numa.origin),
                Key::LogLinePrefixTemplate
                | Key::DuplicateStdoutFilters
                | Key::DuplicateStderrFilters
                | Key::EventLogHandler => self.output.show(key).unwrap_or((None, &self.output.prefix.origin)),
                Key::RdzvBackend
                | Key::RdzvEndpoint
                | Key::RdzvConf
                | Key::MonitorInterval
                | Key::StartMethod
                | Key::SignalsToHandle
                | Key::LogsSpecs => self.hints.show(key).unwrap_or((None, &self.hints.conf.origin)),
                Key::NodeRank | Key::MasterAddr | Key::MasterPort | Key::SecretFile | Key::Insecure => {
                    self.meeting.show(key).unwrap_or((None, &self.meeting.insecure.origin))
                }
                Key::HeartbeatTimeout | Key::PhaseTimeout | Key::HangAction | Key::HangFloor => {
                    self.hang.show(key).unwrap_or((None, &self.hang.action.origin))
                }
                Key::HealthCmd | Key::HealthTimeout => {
                    self.health.show(key).unwrap_or((None, &self.health.timeout_ms.origin))
                }
                Key::SlurmEnv => (Some(self.slurm_env.value.name().to_owned()), &self.slurm_env.origin),
                Key::GpuVisibility => (Some(self.gpus.value.name().to_owned()), &self.gpus.origin),
                Key::HeartbeatHooks => {
                    let value = if self.heartbeat_hooks.value { "on" } else { "off" };
                    (Some(value.to_owned()), &self.heartbeat_hooks.origin)
                }
            }
        };
        Key::ALL
            .into_iter()
            .map(|key| {
                let (value, origin) = show(key);
                Row { key, value, origin: origin.clone() }
            })
            .collect()
    }
}
