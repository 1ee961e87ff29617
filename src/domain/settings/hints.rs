//! torchrun's settings of its rendezvous and of its agent: checked as torchrun checks them, and mostly without effect,
//! because relight's nodes find each other by themselves.

use super::key::Key;
use super::resolve::{Layers, SettingsError};
use super::value::{self, Origin, Value, ValueProblem};
use crate::domain::exit::signal_number;

/// How torchrun's agents would find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Fixed ranks around one address.
    Static,
    /// A store that agents share.
    C10d,
}

impl Backend {
    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::C10d => "c10d",
        }
    }
}

/// Where torchrun's agents would find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port, where one was given.
    pub port: Option<u16>,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.port {
            Some(port) => write!(f, "{host}:{port}"),
            None => f.write_str(&host),
        }
    }
}

/// `--rdzv-conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// As typed.
    pub pairs: Vec<(String, String)>,
    /// `join_timeout`, in milliseconds.
    pub join_ms: Option<u64>,
    /// `timeout`, the join timeout of the static backend, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// `last_call_timeout`, in milliseconds.
    pub last_call_ms: Option<u64>,
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    /// How agents would find each other.
    pub backend: Value<Backend>,
    /// Where.
    pub endpoint: Value<Option<Endpoint>>,
    /// Timeouts.
    pub conf: Value<Conf>,
    /// How often torchrun looks at its ranks, as typed.
    pub monitor_interval: Value<Option<String>>,
    /// How torchrun starts functions.
    pub start_method: Value<Option<String>>,
    /// Signals that torchrun handles, as typed.
    pub signals: Value<Option<Vec<String>>>,
    /// `default`, or nothing.
    pub logs_specs: Value<Option<String>>,
}

impl Hints {
    /// With `--standalone` torchrun does not look at backend and endpoint.
    pub(super) fn resolve(layers: &Layers<'_>, standalone: bool) -> Result<Self, SettingsError> {
        let conf = layers.get(Key::RdzvConf, conf, || (Conf::default(), ""))?;
        let file = conf.value.pairs.iter().any(|(key, value)| key == "store_type" && value == "file");
        let backend_of = |text: &str| if standalone { Ok(Backend::C10d) } else { backend(text) };
        let endpoint_of = |text: &str| match text.trim() {
            _ if standalone || file => Ok(None),
            "" => Ok(None),
            text => endpoint(text).map(Some),
        };
        // torchrun checks what is typed and not what a variable says.
        let typed = !matches!(layers.find(Key::StartMethod), Some((_, Origin::Env(_))));
        let start_method_of = |text: &str| match text {
            "spawn" | "fork" | "forkserver" => Ok(Some(text.to_owned())),
            _ if !typed => Ok(Some(text.to_owned())),
            _ => Err(ValueProblem::NotStartMethod),
        };
        Ok(Self {
            backend: layers.get(Key::RdzvBackend, backend_of, || (Backend::Static, ""))?,
            endpoint: layers.get(Key::RdzvEndpoint, endpoint_of, || (None, ""))?,
            monitor_interval: layers.get(Key::MonitorInterval, interval, || (None, ""))?,
            start_method: layers.get(Key::StartMethod, start_method_of, || (None, ""))?,
            signals: layers.get(Key::SignalsToHandle, |text| Ok(Some(names(text))), || (None, ""))?,
            logs_specs: layers.get(Key::LogsSpecs, logs_specs, || (None, ""))?,
            conf,
        })
    }

    /// The join timeout that `--rdzv-conf` says, and why it counts.
    pub(super) fn join_ms(&self) -> Option<u64> {
        let by_backend = self.conf.value.timeout_ms.filter(|_| self.backend.value == Backend::Static);
        self.conf.value.join_ms.or(by_backend)
    }

    /// What was given here and changes nothing, as people would write it.
    pub(super) fn without_effect(&self, meets: bool) -> Vec<String> {
        let all = [
            given(Key::RdzvBackend, &self.backend.origin).filter(|_| !meets),
            given(Key::RdzvEndpoint, &self.endpoint.origin).filter(|_| !meets),
            given(Key::MonitorInterval, &self.monitor_interval.origin),
            given(Key::StartMethod, &self.start_method.origin),
            given(Key::SignalsToHandle, &self.signals.origin),
            given(Key::LogsSpecs, &self.logs_specs.origin),
        ];
        let mut all: Vec<String> = all.into_iter().flatten().collect();
        let idle: Vec<&str> = self.conf.value.pairs.iter().map(|(key, _)| key.as_str()).collect();
        let idle: Vec<&str> = idle.into_iter().filter(|key| !self.counts(key)).collect();
        if let (Some(name), false) = (given(Key::RdzvConf, &self.conf.origin), idle.is_empty()) {
            all.push(format!("{name} {}", idle.join("/")));
        }
        all
    }

    /// `is_host` of `--rdzv-conf`: this machine has the endpoint.
    pub(super) fn is_host(&self) -> Option<bool> {
        let said = self.conf.value.pairs.iter().rfind(|(key, _)| key == "is_host")?;
        Some(matches!(said.1.to_ascii_lowercase().as_str(), "1" | "true" | "t" | "yes" | "y"))
    }

    fn counts(&self, key: &str) -> bool {
        match key {
            "join_timeout" | "last_call_timeout" => true,
            "timeout" => self.backend.value == Backend::Static && self.conf.value.join_ms.is_none(),
            _ => false,
        }
    }

    /// Names in `--signals-to-handle` that are no signals: torchrun warns of them.
    #[must_use]
    pub fn unknown_signals(&self) -> Vec<&str> {
        let names = self.signals.value.iter().flatten().map(String::as_str);
        names.filter(|name| !name.starts_with("SIG") || signal_number(name).is_none()).collect()
    }

    /// One setting for people; `None`: it is none of these.
    pub(super) fn show(&self, key: Key) -> Option<(Option<String>, &Origin)> {
        Some(match key {
            Key::RdzvBackend => {
                let given = !matches!(self.backend.origin, Origin::Default(_));
                (given.then(|| self.backend.value.name().to_owned()), &self.backend.origin)
            }
            Key::RdzvEndpoint => {
                (self.endpoint.value.as_ref().map(Endpoint::to_string), &self.endpoint.origin)
            }
            Key::RdzvConf => {
                let pairs = self.conf.value.pairs.iter().map(|(key, value)| format!("{key}={value}"));
                let pairs: Vec<String> = pairs.collect();
                ((!pairs.is_empty()).then(|| pairs.join(",")), &self.conf.origin)
            }
            Key::MonitorInterval => (self.monitor_interval.value.clone(), &self.monitor_interval.origin),
            Key::StartMethod => (self.start_method.value.clone(), &self.start_method.origin),
            Key::SignalsToHandle => {
                (self.signals.value.as_ref().map(|names| names.join(",")), &self.signals.origin)
            }
            Key::LogsSpecs => (self.logs_specs.value.clone(), &self.logs_specs.origin),
            _ => return None,
        })
    }
}

fn backend(text: &str) -> Result<Backend, ValueProblem> {
    match text {
        "static" => Ok(Backend::Static),
        "c10d" => Ok(Backend::C10d),
        "etcd" | "etcd-v2" => Err(ValueProblem::Etcd),
        _ => Err(ValueProblem::NotBackend),
    }
}

/// As people would write what they gave.
pub(super) fn given(key: Key, origin: &Origin) -> Option<String> {
    match origin {
        Origin::Default(_) => None,
        Origin::Env(name) => Some((*name).to_owned()),
        Origin::CommandLine | Origin::File(..) => Some(format!("--{}", key.name())),
    }
}

/// A name or an address.
pub(super) fn is_host(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-'))
}

/// `host[:port]`, `[v6]:port`, or an address of IPv6 alone.
fn endpoint(text: &str) -> Result<Endpoint, ValueProblem> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match (bracketed, text.rsplit_once(':')) {
        (Some((host, "")), _) => (host, None),
        (Some((host, rest)), _) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
        // More than one colon and no brackets: all of it is an address.
        (None, Some((host, _))) if host.contains(':') => (text, None),
        (None, Some((host, port))) => (host, Some(port)),
        (None, None) => (text, None),
    };
    let port = match port {
        None => None,
        Some(port) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            Some(port.parse::<u16>().map_err(|_| ValueProblem::EndpointPort)?)
        }
        Some(_) => return Err(ValueProblem::EndpointPort),
    };
    let host = if host.is_empty() { "localhost" } else { host };
    if !is_host(host) {
        return Err(ValueProblem::EndpointHost);
    }
    Ok(Endpoint { host: host.to_owned(), port })
}

/// `key=value,key=value`; a value may hold `=`, blanks around both do not count, of a key given twice the last counts.
fn conf(text: &str) -> Result<Conf, ValueProblem> {
    let mut conf = Conf::default();
    let text = text.trim();
    if text.is_empty() {
        return Ok(conf);
    }
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            return Err(ValueProblem::ConfPair);
        }
        if value.is_empty() {
            return Err(ValueProblem::ConfValue(key.to_owned()));
        }
        let seconds = || match value::number(value, MOST_SECONDS) {
            Ok(0) | Err(_) => Err(ValueProblem::ConfSeconds(key.to_owned())),
            Ok(s) => Ok(Some(u64::from(s) * 1000)),
        };
        match key {
            "join_timeout" => conf.join_ms = seconds()?,
            "timeout" => conf.timeout_ms = seconds()?,
            "last_call_timeout" => conf.last_call_ms = seconds()?,
            _ => {}
        }
        conf.pairs.retain(|(known, _)| known != key);
        conf.pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(conf)
}

/// A year.
const MOST_SECONDS: u32 = 365 * 24 * 3_600;

/// Python's float, above zero.
fn interval(text: &str) -> Result<Option<String>, ValueProblem> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 => Ok(Some(text.to_owned())),
        Ok(_) => Err(ValueProblem::NotPositive),
        Err(_) => Err(ValueProblem::NotSeconds),
    }
}

fn names(text: &str) -> Vec<String> {
    text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn logs_specs(text: &str) -> Result<Option<String>, ValueProblem> {
    match text {
        "default" => Ok(Some(text.to_owned())),
        _ => Err(ValueProblem::LogsPlugin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (text, want) in [
            ("n1", Ok(("n1", None))),
            ("n1:29400", Ok(("n1", Some(29_400)))),
            ("10.0.0.1:0", Ok(("10.0.0.1", Some(0)))),
            (":29400", Ok(("localhost", Some(29_400)))),
            ("[::1]:29400", Ok(("::1", Some(29_400)))),
            ("[fe80::1]", Ok(("fe80::1", None))),
            ("::1", Ok(("::1", None))),
            ("n1:65536", Err(ValueProblem::EndpointPort)),
            ("n1:", Err(ValueProblem::EndpointPort)),
            ("n1:x", Err(ValueProblem::EndpointPort)),
            ("n1:+1", Err(ValueProblem::EndpointPort)),
            ("[::1]29400x", Err(ValueProblem::EndpointPort)),
            ("a b:1", Err(ValueProblem::EndpointHost)),
            ("http://n1:1", Err(ValueProblem::EndpointHost)),
        ] {
            let got = endpoint(text).map(|e| (e.host, e.port));
            assert_eq!(got, want.map(|(host, port)| (host.to_owned(), port)), "{text}");
        }
        assert_eq!(endpoint("[::1]:1").unwrap().to_string(), "[::1]:1");
    }

    #[test]
    fn confs() {
        let all = conf(" join_timeout = 60 ,timeout=9,a=b=c,a=d,last_call_timeout=5").unwrap();
        assert_eq!((all.join_ms, all.timeout_ms, all.last_call_ms), (Some(60_000), Some(9_000), Some(5_000)));
        assert_eq!(all.pairs.len(), 4);
        assert_eq!(conf("").unwrap(), Conf::default());
        for (text, want) in [
            ("a", ValueProblem::ConfValue("a".into())),
            ("a=", ValueProblem::ConfValue("a".into())),
            ("=1", ValueProblem::ConfPair),
            ("a=1,", ValueProblem::ConfPair),
            ("join_timeout=soon", ValueProblem::ConfSeconds("join_timeout".into())),
            ("join_timeout=0", ValueProblem::ConfSeconds("join_timeout".into())),
            ("timeout=-1", ValueProblem::ConfSeconds("timeout".into())),
        ] {
            assert_eq!(conf(text), Err(want), "{text}");
        }
    }

    proptest::proptest! {
        /// Nothing makes them panic, and what an endpoint shows is read as the same.
        #[test]
        fn any_text(text in "\\PC{0,24}", host in "[a-z0-9.:\\[\\]-]{0,12}") {
            let _ = (conf(&text), interval(&text), backend(&text));
            for text in [text, host] {
                if let Ok(found) = endpoint(&text) {
                    proptest::prop_assert_eq!(endpoint(&found.to_string()), Ok(found));
                }
            }
        }
    }

    #[test]
    fn the_others() {
        assert_eq!(backend("etcd-v2"), Err(ValueProblem::Etcd));
        assert_eq!(backend("zeus"), Err(ValueProblem::NotBackend));
        assert!(interval("0.1").is_ok() && interval("5").is_ok());
        assert_eq!(interval("0"), Err(ValueProblem::NotPositive));
        assert_eq!(interval("often"), Err(ValueProblem::NotSeconds));
        assert_eq!(names("SIGTERM, SIGINT,"), ["SIGTERM", "SIGINT"]);
    }
}
