//! Where other nodes reach this one. Every agent listens, so that its peers can tell a dead node from a dead
//! coordinator; only who leads answers. Lives on the beat thread: a control thread that is busy keeps nobody out.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use super::link::Names;
use super::tasks;
use crate::domain::wire::{
    Ack, Beat, FromOperator, FromSupervisor, ToAgent, ToCoordinator, ToOperator, ToSupervisor,
};
use crate::net::handshake::Role;
use crate::net::session::{Session, SessionError};
use crate::net::tcp;

/// Handshakes at one time: strangers who only connect cannot fill the memory, nor keep friends out for longer than a
/// handshake may take.
///
/// Not too few for 4,096 agents that dial at once, with two connections each. Who finds no room waits in the queue of the
/// socket (4,096, or `net.core.somaxconn` if that is less), and whom that has no room for is asked again by its kernel a
/// second later. A handshake is two round trips and a tenth of a millisecond of work: all are through in a second, and with
/// round trips of 100 ms in two. Each has five.
const HANDSHAKES: usize = 1024;
/// After an error that taking the next connection would meet again, such as EMFILE.
const PAUSE: Duration = Duration::from_millis(50);
/// So many addresses that do not belong to the run are named.
const NAMED: usize = 8;

/// A proven connection.
pub(crate) enum Taken {
    /// An agent's control connection.
    Agent(Session<ToCoordinator, ToAgent>),
    /// An agent's beats.
    Beats(Session<Beat, Ack>),
    /// The supervisor.
    Supervisor(Session<FromSupervisor, ToSupervisor>),
    /// A person's command.
    Operator(Session<FromOperator, ToOperator>),
    /// Of somebody who claims to belong to this run and does not: said once for each address, of the first few.
    Impostor(IpAddr, SessionError),
}

/// What the listener works with.
pub(crate) struct Listener {
    pub(crate) socket: std::net::TcpListener,
    pub(crate) names: Rc<Names>,
    /// A coordinator lives here.
    pub(crate) leads: Arc<AtomicBool>,
    /// After so long without a sign a connection is gone.
    pub(crate) silence: Duration,
    pub(crate) taken: mpsc::UnboundedSender<Taken>,
}

impl Listener {
    /// Takes connections until nobody wants them any more.
    pub(crate) async fn serve(self) {
        let Ok(socket) = TcpListener::from_std(self.socket) else { return };
        let room = Arc::new(Semaphore::new(HANDSHAKES));
        let named = Rc::new(RefCell::new(BTreeSet::new()));
        while !self.taken.is_closed() {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let (stream, from) = match socket.accept().await {
                Ok((stream, from)) => (stream, from.ip().to_canonical()),
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if !self.leads.load(Ordering::Relaxed) {
                continue;
            }
            tcp::tune(&stream, self.silence);
            let (names, taken, named) = (self.names.clone(), self.taken.clone(), named.clone());
            tasks::spawn(async move {
                let identity = names.identity(Role::Coordinator);
                let session = Session::<(), ()>::accept(stream, &identity, &names.secret).await;
                drop(permit);
                match session {
                    Ok(session) => {
                        let session = match session.peer().identity.role {
                            Role::Agent => Taken::Agent(session.carrying()),
                            Role::Beat => Taken::Beats(session.carrying()),
                            Role::Supervisor => Taken::Supervisor(session.carrying()),
                            Role::Operator => Taken::Operator(session.carrying()),
                            Role::Coordinator => return,
                        };
                        let _ = taken.send(session);
                    }
                    Err(error) => {
                        tracing::debug!(target: "relight::net", %error, %from, "a connection was refused");
                        let claims = matches!(error, SessionError::BadProof | SessionError::OtherRun(_));
                        let mut named = named.borrow_mut();
                        if claims && named.len() < NAMED && named.insert(from) {
                            let _ = taken.send(Taken::Impostor(from, error));
                        }
                    }
                }
            });
        }
    }
}
