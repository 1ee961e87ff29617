//! The other end of `relight ctl`: finds the coordinator by the hint in the run directory, proves the run's secret,
//! says one thing and hears one answer.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::domain::ids::{Incarnation, NodeName, RunId};
use crate::domain::record::Ordered;
use crate::domain::spec::DIRECT;
use crate::domain::wire::{FromOperator, ToOperator};
use crate::net::secret::Secret;
use crate::net::session::{Identity, Role, Session, SessionError};
use crate::net::tcp;
use crate::store::faults::Hands;
use crate::store::hint;
use crate::store::layout::{self, LayoutError};

/// For one try at all addresses.
const DIAL: Duration = Duration::from_secs(3);
/// An order is written before it is followed, and a store may be slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// An order that did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The run directory does not say where the run is led.
    #[error("the run directory does not say where this run is led: it has not begun, or it is over")]
    NoHint,
    /// The secret cannot be read.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// It is damaged.
    #[error("the secret of the run directory is damaged")]
    Secret,
    /// Another secret than that of the machines.
    #[error("the run does not talk to this command: its machines know each other by another secret")]
    NotTheirs(#[source] SessionError),
    /// Nobody answers.
    #[error("nobody answers on {node} ({addresses}): {source}")]
    Unreachable {
        /// Where it is led.
        node: NodeName,
        /// Where it was tried.
        addresses: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is no talking.
    #[error("the run does not talk to this command: {0}")]
    Session(#[from] SessionError),
    /// No answer came.
    #[error("no answer came within {} s: the order may be followed all the same, look at `relight events`", PATIENCE.as_secs())]
    Late,
    /// This machine cannot do it.
    #[error("cannot begin")]
    Runtime(#[source] std::io::Error),
}

impl OperatorError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        matches!(self, Self::NotTheirs(_))
            .then(|| "name the secret file of the run: --secret-file FILE".to_owned())
    }
}

/// Gives an order to the run of this directory. `shared` is what machines that share no directory know each other by; where
/// they do, the run's own secret counts.
///
/// # Errors
/// It did not arrive, or no answer came.
pub fn order(
    dir: &Path,
    run: RunId,
    node: NodeName,
    shared: Secret,
    ordered: Ordered,
) -> Result<ToOperator, OperatorError> {
    let hint = hint::read(&mut Hands::default(), dir).ok_or(OperatorError::NoHint)?;
    let direct = hint.launch.starts_with(DIRECT);
    let (run, secret) = if direct {
        (RunId::new(&hint.launch), shared)
    } else {
        let own = layout::secret_of(dir)?;
        (run, Secret::from_hex(&own).map_err(|_| OperatorError::Secret)?)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(OperatorError::Runtime)?.block_on(async {
        let addresses: Vec<SocketAddr> = hint.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        let stream = tcp::dial(&addresses, DIAL).await.map_err(|source| OperatorError::Unreachable {
            node: hint.node.clone(),
            addresses: hint.addresses.join(", "),
            source,
        })?;
        tcp::tune(&stream, PATIENCE);
        let incarnation = Incarnation(crate::sys::random::u64());
        let identity = Identity { run, role: Role::Operator, node, incarnation };
        let session = Session::<ToOperator, FromOperator>::connect(stream, &identity, &secret).await;
        let mut session = session.map_err(|error| match direct {
            true => OperatorError::NotTheirs(error),
            false => OperatorError::Session(error),
        })?;
        session.send(&FromOperator { ordered }).await?;
        match tokio::time::timeout(PATIENCE, session.recv()).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(OperatorError::Late),
        }
    })
}
