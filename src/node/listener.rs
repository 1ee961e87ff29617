//! Where other nodes reach this one. Every agent listens, so that its peers can tell a dead node from a dead
//! coordinator; only who leads answers. Lives on the beat thread: a control thread that is busy keeps nobody out.

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
use crate::net::session::Session;
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
        while !self.taken.is_closed() {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let stream = match socket.accept().await {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if !self.leads.load(Ordering::Relaxed) {
                continue;
            }
            tcp::tune(&stream, self.silence);
            let (names, taken) = (self.names.clone(), self.taken.clone());
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
                    Err(error) => tracing::debug!(target: "relight::net", %error, "a connection was refused"),
                }
            });
        }
    }
}
