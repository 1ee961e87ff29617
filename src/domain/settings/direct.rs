//! Several machines outside Slurm: torchrun's options say where they meet, and a secret in a file says who belongs to them.

use std::path::PathBuf;

use super::hints::{Backend, Hints};
use super::key::Key;
use super::resolve::{Layers, Place, SettingsError};
use super::value::{self, Origin, Value, ValueProblem};

/// torchrun's port.
const PORT: u16 = 29_500;
/// torchrun's port for an endpoint without one.
const ENDPOINT_PORT: u16 = 29_400;

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// `--node-rank`.
    pub node_rank: Value<Option<u32>>,
    /// `--master-addr`.
    pub master_addr: Value<Option<String>>,
    /// `--master-port`.
    pub master_port: Value<Option<u16>>,
    /// `--secret-file`, as typed.
    pub secret_file: Value<Option<PathBuf>>,
    /// `--insecure`.
    pub insecure: Value<bool>,
    /// Where the machines meet; `None`: there is but one, or Slurm brings them together.
    pub at: Option<At>,
}

/// Where machines meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The host of the coordinator: a name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// This machine's number, 0 leads; `None`: whose address the host is.
    pub rank: Option<u32>,
}

impl Meeting {
    /// `several`: machines outside Slurm are asked for, and `most` of them can have a number.
    pub(super) fn resolve(
        layers: &Layers<'_>,
        hints: &Hints,
        most: u32,
        several: bool,
    ) -> Result<Self, SettingsError> {
        let rank = |text: &str| value::number(text, value::MOST_NODES).map(Some);
        let host = |text: &str| match text.trim() {
            "" => Err(ValueProblem::Empty),
            text if super::hints::is_host(text) => Ok(Some(text.to_owned())),
            _ => Err(ValueProblem::EndpointHost),
        };
        let port = |text: &str| text.trim().parse().map(Some).map_err(|_| ValueProblem::Port);
        let mut meeting = Self {
            node_rank: layers.get(Key::NodeRank, rank, || (None, ""))?,
            master_addr: layers.get(Key::MasterAddr, host, || (None, ""))?,
            master_port: layers.get(Key::MasterPort, port, || (None, ""))?,
            secret_file: layers.get(Key::SecretFile, |text| value::path(text).map(Some), || (None, ""))?,
            insecure: layers.flag(Key::Insecure)?,
            at: None,
        };
        if several {
            meeting.at = Some(meeting.place(layers, hints, most)?);
        }
        Ok(meeting)
    }

    fn place(&self, layers: &Layers<'_>, hints: &Hints, most: u32) -> Result<At, SettingsError> {
        let bad = |key: Key, problem: ValueProblem| {
            let (typed, origin) = layers.find(key).unwrap_or(("", Origin::Default("")));
            SettingsError::Bad { place: Box::new(Place { key, typed: typed.to_owned(), origin }), problem }
        };
        let endpoint = hints.endpoint.value.as_ref();
        let shared = hints.backend.value == Backend::C10d;
        let rank = match (shared, hints.is_host()) {
            // torchrun: whoever has the address leads, and the others are numbered as they come.
            (true, is_host) => is_host.map(|yes| u32::from(!yes)),
            (false, _) => Some(self.node_rank.value.unwrap_or(0)),
        };
        if self.node_rank.value.is_some_and(|rank| !shared && rank >= most) {
            return Err(bad(Key::NodeRank, ValueProblem::NodeRank { most }));
        }
        let (host, port) = match (endpoint, &self.master_addr.value) {
            (Some(endpoint), _) => (endpoint.host.clone(), endpoint.port.unwrap_or(ENDPOINT_PORT)),
            (None, Some(host)) if !shared => (host.clone(), self.master_port.value.unwrap_or(PORT)),
            (None, _) => return Err(bad(Key::Nnodes, ValueProblem::SeveralNodes)),
        };
        if port == 0 {
            let key = if endpoint.is_some() { Key::RdzvEndpoint } else { Key::MasterPort };
            return Err(bad(key, ValueProblem::SharedPort));
        }
        if self.secret_file.value.is_none() && !self.insecure.value {
            return Err(bad(Key::Nnodes, ValueProblem::NoSecret));
        }
        Ok(At { host, port, rank })
    }

    /// What was given here and changes nothing, as people would write it.
    pub(super) fn without_effect(&self, hints: &Hints) -> Vec<String> {
        let shared = hints.backend.value == Backend::C10d;
        let by_endpoint = hints.endpoint.value.is_some();
        let all = [
            (Key::NodeRank, &self.node_rank.origin, self.at.is_none() || shared),
            (Key::MasterAddr, &self.master_addr.origin, self.at.is_none() || by_endpoint),
            (Key::MasterPort, &self.master_port.origin, self.at.is_none() || by_endpoint),
            (Key::SecretFile, &self.secret_file.origin, self.at.is_none()),
            (Key::Insecure, &self.insecure.origin, self.at.is_none() && self.insecure.value),
        ];
        let idle = all.into_iter().filter(|(_, _, idle)| *idle);
        idle.filter_map(|(key, origin, _)| super::hints::given(key, origin)).collect()
    }

    /// One setting for people; `None`: it is none of these.
    pub(super) fn show(&self, key: Key) -> Option<(Option<String>, &Origin)> {
        Some(match key {
            Key::NodeRank => (self.node_rank.value.map(|rank| rank.to_string()), &self.node_rank.origin),
            Key::MasterAddr => (self.master_addr.value.clone(), &self.master_addr.origin),
            Key::MasterPort => {
                (self.master_port.value.map(|port| port.to_string()), &self.master_port.origin)
            }
            Key::SecretFile => (
                self.secret_file.value.as_ref().map(|path| path.display().to_string()),
                &self.secret_file.origin,
            ),
            Key::Insecure => (Some(u8::from(self.insecure.value).to_string()), &self.insecure.origin),
            _ => return None,
        })
    }
}
