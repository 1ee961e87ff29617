//! The session with the coordinator: found by the hint in the run directory, dialled until it answers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use super::files::Files;
use super::opening;
use crate::domain::ids::Incarnation;
use crate::domain::supervisor::Event;
use crate::domain::wire::{FromSupervisor, ToSupervisor};
use crate::net::secret::Secret;
use crate::net::session::{Identity, Receiver, Sender, Session, SessionError};
use crate::net::tcp;
use crate::store::layout::OpenOptions;

/// For one try at all addresses.
const DIAL: Duration = Duration::from_secs(3);
/// A coordinator whose host says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// Between two tries, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The journal is looked into where there has been no hint for so long, and as long after that again.
const LOOK: Duration = Duration::from_secs(2);

/// Whom to look for.
pub(super) struct Search {
    pub(super) dir: PathBuf,
    /// How the run directory is opened to be read.
    pub(super) options: OpenOptions,
    pub(super) token: String,
    pub(super) identity: Identity,
    pub(super) secret: Secret,
}

/// What the link tells.
pub(super) enum Word {
    /// For the machine.
    Event(Event),
    /// The coordinator's program has this version.
    Version(String),
    /// It is of another version, with which there is no talking; why.
    Stranger(String),
}

type Link = Session<ToSupervisor, FromSupervisor>;

/// Looks for a coordinator, tells, looks for the next one when it is gone. Ends with its receivers.
pub(super) async fn run(
    search: Search,
    mut files: Files,
    mut messages: UnboundedReceiver<FromSupervisor>,
    tell: UnboundedSender<Word>,
) {
    loop {
        let link = find(&search, &mut files, &tell).await;
        // What was meant for an earlier coordinator is not for this one.
        while messages.try_recv().is_ok() {}
        let version = link.peer().version.clone();
        if tell.send(Word::Version(version)).and_then(|()| tell.send(Word::Event(Event::LinkUp))).is_err() {
            return;
        }
        let (sender, receiver) = link.split();
        tokio::select! {
            () = hear(receiver, &tell) => {}
            () = say(sender, &mut messages) => {}
        }
        if tell.send(Word::Event(Event::LinkDown)).is_err() {
            return;
        }
    }
}

async fn find(search: &Search, files: &mut Files, tell: &UnboundedSender<Word>) -> Link {
    let (mut pause, mut looked) = (PAUSE.0, Instant::now());
    loop {
        if let Some(link) = try_once(search, files, &mut looked, tell).await {
            return link;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn try_once(
    search: &Search,
    files: &mut Files,
    looked: &mut Instant,
    tell: &UnboundedSender<Word>,
) -> Option<Link> {
    let addresses: Vec<SocketAddr> =
        match files.hint(&search.dir).await.filter(|hint| hint.launch == search.token) {
            Some(hint) => hint.addresses.iter().filter_map(|text| text.parse().ok()).collect(),
            None if looked.elapsed() < LOOK => return None,
            // The hint cannot be read, or there is nobody yet.
            None => {
                *looked = Instant::now();
                opening::recorded(&search.options, files, &search.token).await
            }
        };
    let stream = tcp::dial(&addresses, DIAL).await.ok()?;
    tcp::tune(&stream, SILENCE);
    let identity =
        Identity { incarnation: Incarnation(crate::sys::random::u64()), ..search.identity.clone() };
    match Session::connect(stream, &identity, &search.secret).await {
        Ok(link) => Some(link),
        Err(error) => {
            tracing::debug!(target: "relight::supervisor", %error, "no session with the coordinator");
            if matches!(error, SessionError::OtherProtocol { .. }) {
                let _ = tell.send(Word::Stranger(error.to_string()));
            }
            None
        }
    }
}

async fn hear(mut receiver: Receiver<ToSupervisor>, tell: &UnboundedSender<Word>) {
    while let Ok(message) = receiver.recv().await {
        if tell.send(Word::Event(Event::Recv(message))).is_err() {
            return;
        }
    }
}

async fn say(mut sender: Sender<FromSupervisor>, messages: &mut UnboundedReceiver<FromSupervisor>) {
    while let Some(message) = messages.recv().await {
        if sender.send(&message).await.is_err() {
            return;
        }
    }
    sender.close().await;
}
