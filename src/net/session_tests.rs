use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::domain::ids::{Incarnation, NodeName};

type Agent = Session<Vec<u8>, String>;
type Coordinator = Session<String, Vec<u8>>;

fn identity(role: Role) -> Identity {
    Identity { run: RunId::new("7.0"), role, node: NodeName::new("n1"), incarnation: Incarnation(3) }
}

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32])
}

fn block<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn pair() -> (Agent, Coordinator) {
    let (a, b) = duplex(1 << 16);
    let (us, them, s) = (identity(Role::Agent), identity(Role::Coordinator), secret(1));
    let (a, b) = tokio::join!(Agent::connect(a, &us, &s), Coordinator::accept(b, &them, &s));
    (a.unwrap(), b.unwrap())
}

/// A pair whose bytes pass through the two returned ends: near the agent, near the coordinator.
async fn tapped() -> (Agent, Coordinator, DuplexStream, DuplexStream) {
    let (a, mut near) = duplex(4 << 20);
    let (mut far, b) = duplex(4 << 20);
    let (us, them, s) = (identity(Role::Agent), identity(Role::Coordinator), secret(1));
    let relay = async {
        pass_hello(&mut near, &mut far).await;
        pass_hello(&mut far, &mut near).await;
        pass(&mut near, &mut far, 32).await;
        pass(&mut far, &mut near, 32).await;
    };
    let (a, b, ()) = tokio::join!(Agent::connect(a, &us, &s), Coordinator::accept(b, &them, &s), relay);
    (a.unwrap(), b.unwrap(), near, far)
}

async fn pass_hello(from: &mut DuplexStream, to: &mut DuplexStream) {
    let mut header = [0; 16];
    from.read_exact(&mut header).await.unwrap();
    to.write_all(&header).await.unwrap();
    let length = u32::from_le_bytes(header[12..].try_into().unwrap());
    pass(from, to, length as usize).await;
}

async fn pass(from: &mut DuplexStream, to: &mut DuplexStream, length: usize) {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await.unwrap();
    to.write_all(&bytes).await.unwrap();
}

async fn frame(near: &mut DuplexStream) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    near.read_exact(&mut bytes).await.unwrap();
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    bytes.resize(HEADER + length, 0);
    near.read_exact(&mut bytes[HEADER..]).await.unwrap();
    bytes
}

#[test]
fn messages_go_both_ways_and_each_end_knows_the_other() {
    block(async {
        let (mut agent, mut coordinator) = pair().await;
        assert_eq!(agent.peer().identity, identity(Role::Coordinator));
        assert_eq!(coordinator.peer().identity, identity(Role::Agent));
        assert_eq!(coordinator.peer().version, env!("CARGO_PKG_VERSION"));
        for text in ["", "hello", &"x".repeat(300_000)] {
            let text = text.to_owned();
            let (sent, got) = tokio::join!(agent.send(&text), coordinator.recv());
            sent.unwrap();
            assert_eq!(got.unwrap(), text);
        }
        let bytes = vec![7; 3 << 19];
        let (sent, got) = tokio::join!(coordinator.send(&bytes), agent.recv());
        sent.unwrap();
        assert_eq!(got.unwrap(), bytes);
        drop(agent);
        assert!(matches!(coordinator.recv().await, Err(SessionError::Closed)));
    });
}

async fn refused(agent: Identity, s: u8, coordinator: Identity, t: u8) -> (SessionError, SessionError) {
    let (a, b) = duplex(1 << 16);
    tokio::join!(async { Agent::connect(a, &agent, &secret(s)).await.err().unwrap() }, async {
        Coordinator::accept(b, &coordinator, &secret(t)).await.err().unwrap()
    },)
}

#[test]
fn who_does_not_belong_is_refused() {
    block(async {
        let (us, them) = (identity(Role::Agent), identity(Role::Coordinator));
        let (a, b) = refused(us.clone(), 1, them.clone(), 2).await;
        assert!(matches!((a, b), (SessionError::NotBelieved, SessionError::BadProof)));
        let other = Identity { run: RunId::new("8.0"), ..them.clone() };
        let (a, b) = refused(us.clone(), 1, other, 1).await;
        assert!(matches!((&a, &b), (SessionError::OtherRun(_), SessionError::OtherRun(_))));
        assert_eq!(a.kind(), ErrorKind::Refused);
        let (a, _) = refused(us.clone(), 1, us, 1).await;
        assert!(matches!(a, SessionError::UnexpectedRole(Role::Agent)));
        let (_, b) = refused(them.clone(), 1, them, 1).await;
        assert!(matches!(b, SessionError::UnexpectedRole(Role::Coordinator)));
    });
}

async fn against(bytes: Vec<u8>) -> SessionError {
    let (mut a, b) = duplex(1 << 16);
    let (them, s) = (identity(Role::Coordinator), secret(1));
    let send = async {
        a.write_all(&bytes).await.unwrap();
        drop(a);
    };
    tokio::join!(send, Coordinator::accept(b, &them, &s)).1.err().unwrap()
}

#[test]
fn strangers_and_other_protocols_are_named() {
    block(async {
        assert!(matches!(against(b"GET / HTTP/1.1\r\n\r\n".to_vec()).await, SessionError::Stranger));
        assert!(matches!(against(b"rel".to_vec()).await, SessionError::Closed));
        let mut hello = b"relight\n".to_vec();
        hello.extend(99_u32.to_le_bytes());
        hello.extend(6_u32.to_le_bytes());
        hello.extend(b"\x059.8.7");
        hello.truncate(22);
        let error = against(hello.clone()).await;
        assert!(
            matches!(&error, SessionError::OtherProtocol { theirs: 99, version, .. } if version == "9.8.7"),
            "{error}"
        );
        hello[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(against(hello).await, SessionError::TooLong { .. }));
    });
}

#[test]
fn a_silent_peer_is_given_up() {
    block(async {
        let (a, _b) = duplex(64 << 10);
        let within = Duration::from_millis(20);
        let us = identity(Role::Agent);
        let late = Agent::begin(a, Side::Initiator, &us, &secret(1), within).await;
        assert!(matches!(late.err().unwrap(), SessionError::Late));
    });
}

#[test]
fn an_oversized_header_allocates_nothing() {
    block(async {
        let (_agent, mut coordinator, _near, mut far) = tapped().await;
        far.write_all(&(MAX_TO_COORDINATOR as u32 + 1).to_le_bytes()).await.unwrap();
        let error = coordinator.recv().await.err().unwrap();
        assert!(matches!(error, SessionError::TooLong { length, .. } if length == MAX_TO_COORDINATOR + 1));
        assert!(coordinator.receiver.buffer.capacity() <= 2 * CHUNK);
    });
}

#[test]
fn a_message_over_the_limit_is_not_sent_and_the_session_goes_on() {
    block(async {
        let (mut agent, mut coordinator) = pair().await;
        let long = "x".repeat(MAX_TO_COORDINATOR + 1);
        assert!(matches!(agent.send(&long).await, Err(SessionError::TooLong { .. })));
        agent.send(&"short".to_owned()).await.unwrap();
        assert_eq!(coordinator.recv().await.unwrap(), "short");
    });
}

#[test]
fn a_repeated_a_missing_and_a_half_frame_are_noticed() {
    block(async {
        let (mut agent, mut coordinator, mut near, mut far) = tapped().await;
        agent.send(&"one".to_owned()).await.unwrap();
        let one = frame(&mut near).await;
        far.write_all(&one).await.unwrap();
        assert_eq!(coordinator.recv().await.unwrap(), "one");
        far.write_all(&one).await.unwrap();
        assert!(matches!(coordinator.recv().await, Err(SessionError::BadMac)));

        let (mut agent, mut coordinator, mut near, mut far) = tapped().await;
        agent.send(&"one".to_owned()).await.unwrap();
        agent.send(&"two".to_owned()).await.unwrap();
        frame(&mut near).await;
        far.write_all(&frame(&mut near).await).await.unwrap();
        assert!(matches!(coordinator.recv().await, Err(SessionError::BadMac)));

        let (mut agent, mut coordinator, mut near, mut far) = tapped().await;
        agent.send(&"one".to_owned()).await.unwrap();
        let one = frame(&mut near).await;
        far.write_all(&one[..one.len() - 1]).await.unwrap();
        drop(far);
        assert!(matches!(coordinator.recv().await, Err(SessionError::Cut)));
    });
}

#[test]
fn frames_of_another_session_and_of_the_other_direction_are_refused() {
    block(async {
        let (mut agent, _keep, mut near, _far) = tapped().await;
        agent.send(&"one".to_owned()).await.unwrap();
        let one = frame(&mut near).await;
        let (_agent, mut coordinator, _near, mut far) = tapped().await;
        far.write_all(&one).await.unwrap();
        assert!(matches!(coordinator.recv().await, Err(SessionError::BadMac)));

        near.write_all(&one).await.unwrap();
        assert!(matches!(agent.recv().await, Err(SessionError::BadMac)));
    });
}

#[test]
fn receiving_may_be_dropped_at_any_time() {
    block(async {
        let (mut agent, mut coordinator, mut near, mut far) = tapped().await;
        agent.send(&"in pieces".to_owned()).await.unwrap();
        let mut received = None;
        for byte in frame(&mut near).await {
            far.write_all(&[byte]).await.unwrap();
            received = tokio::select! { biased;
                got = coordinator.recv() => Some(got.unwrap()),
                () = tokio::task::yield_now() => None,
            };
        }
        assert_eq!(received.as_deref(), Some("in pieces"));
    });
}

fn recv_error(bytes: &[u8]) -> SessionError {
    block(async {
        let (_agent, mut coordinator, _near, mut far) = tapped().await;
        far.write_all(bytes).await.unwrap();
        drop(far);
        coordinator.recv().await.err().unwrap()
    })
}

proptest! {
    #[test]
    fn garbage_before_the_handshake_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        block(async { against(bytes).await });
    }

    #[test]
    fn garbage_after_our_magic_is_an_error(
        length in 0_u32..200,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut hello = b"relight\n".to_vec();
        hello.extend(crate::domain::wire::PROTOCOL.to_le_bytes());
        hello.extend(length.to_le_bytes());
        hello.extend(bytes);
        block(async { against(hello).await });
    }

    #[test]
    fn garbage_between_frames_is_an_error(bytes in prop::collection::vec(any::<u8>(), 1..100)) {
        recv_error(&bytes);
    }

    #[test]
    fn any_flipped_bit_is_noticed(at in 0_usize..100, bit in 0_u8..8) {
        block(async {
            let (mut agent, mut coordinator, mut near, mut far) = tapped().await;
            agent.send(&"x".repeat(80)).await.unwrap();
            let mut one = frame(&mut near).await;
            let at = at % one.len();
            one[at] ^= 1 << bit;
            far.write_all(&one).await.unwrap();
            drop(far);
            assert!(coordinator.recv().await.is_err());
        });
    }
}
