//! Strangers at the port: whatever they send, they are turned away, and little is kept of it.

use std::sync::LazyLock;

use relight::domain::ids::{Incarnation, NodeName, RunId};
use relight::domain::wire::{ToAgent, ToCoordinator};
use relight::net::handshake::{Identity, Role};
use relight::net::secret::Secret;
use relight::net::session::{Session, SessionError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

use crate::engine::{Target, shape};

pub const TARGET: Target = Target {
    name: "handshake",
    seeds,
    run,
    longest: 16 << 10,
    // The stranger's own bytes lie in a pipe of ours.
    heap: |length| 4 * length + (128 << 10),
    words: &[b"relight\n", b"relight\n\x03\0\0\0"],
};

pub static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());

pub fn identity(role: Role) -> Identity {
    Identity { run: RunId::new("r"), role, node: NodeName::new("n1"), incarnation: Incarnation(7) }
}

pub fn secret() -> Secret {
    Secret::from_hex(&"5e".repeat(32)).unwrap()
}

/// What each end sends first to one that says nothing.
fn seeds() -> Vec<Vec<u8>> {
    let hello = |dials: bool| {
        RUNTIME.block_on(async move {
            let (near, mut far) = tokio::io::duplex(64 << 10);
            let task = async move {
                if dials {
                    drop(
                        Session::<ToAgent, ToCoordinator>::connect(near, &identity(Role::Agent), &secret())
                            .await,
                    );
                } else {
                    let own = identity(Role::Coordinator);
                    drop(Session::<ToCoordinator, ToAgent>::accept(near, &own, &secret()).await);
                }
            };
            let reader = async move {
                let mut bytes = vec![0; 4_096];
                let read = if dials { far.read(&mut bytes).await.unwrap() } else { 0 };
                bytes.truncate(read);
                bytes
            };
            tokio::join!(task, reader).1
        })
    };
    let first = hello(true);
    // With a proof behind it, which is none.
    vec![first.clone(), [first, vec![0; 64]].concat(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()]
}

fn run(input: &[u8]) -> u64 {
    RUNTIME.block_on(async {
        let (near, mut far) = tokio::io::duplex(input.len().max(1));
        far.write_all(input).await.unwrap();
        // What is answered is not read beyond what fits: whoever does not read costs no more.
        far.shutdown().await.unwrap();
        let (own, secret) = (identity(Role::Coordinator), secret());
        let told = tokio::select! {
            biased;
            accepted = Session::<ToCoordinator, ToAgent>::accept(near, &own, &secret) => accepted.map(|_| ()),
            () = drain(&mut far) => Err(SessionError::Closed),
        };
        let Err(error) = told else { panic!("a stranger came in") };
        let (near, mut far) = tokio::io::duplex(64 << 10);
        far.write_all(&input[..input.len().min(32 << 10)]).await.unwrap();
        drop(far);
        let dialled = Session::<ToAgent, ToCoordinator>::connect(near, &identity(Role::Agent), &secret).await;
        let Err(other) = dialled else { panic!("a stranger leads") };
        shape((error, other))
    })
}

/// Reads until the other end closes.
async fn drain(far: &mut tokio::io::DuplexStream) {
    let mut bytes = [0; 1_024];
    while far.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
    std::future::pending::<()>().await;
}
