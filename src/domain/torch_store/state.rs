//! What the store holds, and how it answers. Total: a request gets its replies or closes its own connection, never
//! another one; whatever a client sends, what it can make the store keep is bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use super::frame::{Dialect, Fault, List, Request};
use super::seen::Seen;
use super::{MOST_FRAME, NOT_READY, READY, STOP_WAITING, WAIT_CANCELED};

/// A connection, by the number that the driver gave it. A number may be used again after [`Store::disconnect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conn(pub u32);

/// Where replies go: to be sent in the order in which they were put.
pub trait Sink {
    /// The end of what is to be sent to this connection.
    fn reply(&mut self, to: Conn) -> &mut Vec<u8>;
}

/// How much a store keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In bytes: keys, values, queues and waits together, with what the maps cost.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30 }
    }
}

/// What an entry of a map costs beside its bytes, about.
const ENTRY: usize = 96;

/// In bytes: how long a value may grow that is appended to. A reply with it is no longer than a reply may be.
const LONGEST: usize = MOST_FRAME / 2;

type Key = Box<[u8]>;

#[derive(Debug, Default)]
struct Client {
    open: bool,
    /// How it speaks, since its first request.
    dialect: Option<Dialect>,
    /// Keys that its wait still lacks; 0: it does not wait.
    lacks: u32,
    /// The keys that it was entered for, each once.
    waits: Vec<Key>,
    /// Its place in the line of each of them.
    ticket: u64,
}

impl Client {
    /// The request that these bytes are; `None`: the word with which a connection may begin.
    fn hears<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Request<'a>>, Fault> {
        let unknown = Fault::unknown(bytes.first().copied().unwrap_or_default());
        let is_first = self.dialect.is_none();
        let dialect = self.dialect.or_else(|| Dialect::of(bytes)).ok_or(unknown)?;
        self.dialect = Some(dialect);
        if is_first && dialect == Dialect::Validated {
            return Ok(None);
        }
        Request::read(bytes, dialect).map(Some).ok_or(unknown)
    }
}

/// The store of one attempt.
#[derive(Debug)]
pub struct Store {
    limits: Limits,
    used: usize,
    keys: BTreeMap<Key, Vec<u8>>,
    queues: BTreeMap<Key, VecDeque<Vec<u8>>>,
    /// Who waits for a key, by ticket, so in the order in which they came. A client is found without a search, and is
    /// entered once however often it named the key: what one client can make this thread do is bounded by what it sent.
    waiting: BTreeMap<Key, BTreeMap<u64, Conn>>,
    tickets: u64,
    clients: Vec<Client>,
    seen: Seen,
    /// Lines that were looked into.
    #[cfg(test)]
    pub(super) steps: usize,
}

impl Store {
    /// An empty store for a world of so many ranks.
    #[must_use]
    pub fn new(limits: Limits, world: u32) -> Self {
        Self {
            limits,
            used: 0,
            keys: BTreeMap::new(),
            queues: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
            clients: Vec::new(),
            seen: Seen::new(world),
            #[cfg(test)]
            steps: 0,
        }
    }

    /// What it tells about the ranks.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// As [`seen`](Self::seen), to ask whether anything is new.
    pub fn seen_mut(&mut self) -> &mut Seen {
        &mut self.seen
    }

    /// In bytes: what it keeps.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// A connection was opened.
    pub fn connect(&mut self, conn: Conn) {
        let at = conn.0 as usize;
        if self.clients.len() <= at {
            self.clients.resize_with(at + 1, Client::default);
        }
        self.disconnect(conn);
        if let Some(client) = self.clients.get_mut(at) {
            client.open = true;
        }
    }

    /// A connection is gone, and with it what it waited for.
    pub fn disconnect(&mut self, conn: Conn) {
        self.cancel(conn);
        if let Some(client) = self.clients.get_mut(conn.0 as usize) {
            *client = Client::default();
        }
    }

    /// Answers one request, which [`Scanner`](super::Scanner) found, of a connection from `peer`.
    ///
    /// # Errors
    /// Why this connection must be closed. What it asked for is not done; of `MULTI_SET` what fitted is.
    pub fn handle(
        &mut self,
        conn: Conn,
        peer: IpAddr,
        request: &[u8],
        out: &mut impl Sink,
    ) -> Result<(), Fault> {
        let client = self.clients.get_mut(conn.0 as usize).filter(|client| client.open);
        let client = client.ok_or(Fault::Stranger)?;
        let Some(request) = client.hears(request)? else { return Ok(()) };
        match request {
            Request::Validate { .. } => return Err(Fault::Unknown(0)),
            Request::Set { key, value } => {
                self.seen.set(key);
                self.set(key, value, out)?;
            }
            Request::CompareSet { key, expected, desired } => {
                let fits = match self.keys.get(key) {
                    Some(now) => now == expected,
                    None => expected.is_empty(),
                };
                if fits {
                    self.set(key, desired, out)?;
                }
                // Where there is no such key torch answers what was expected, although nothing is.
                let now = self.keys.get(key).map_or(expected, Vec::as_slice);
                put_bytes(out.reply(conn), now);
            }
            Request::Get { key } => put_bytes(out.reply(conn), self.get(key)),
            Request::Add { key, delta } => {
                let sum = self.add(key, delta)?;
                self.seen.add(key, delta, peer);
                self.wake_all(key, out);
                out.reply(conn).extend_from_slice(&sum.to_le_bytes());
            }
            Request::Check { mut keys } => {
                let all = keys.all(|key| self.has(key));
                out.reply(conn).push(if all { READY } else { NOT_READY });
            }
            Request::Wait { keys } => self.wait(conn, keys, out)?,
            Request::NumKeys => put_count(out.reply(conn), self.keys.len()),
            Request::Delete { key } => {
                let gone = self.remove(key);
                put_count(out.reply(conn), usize::from(gone));
            }
            Request::Append { key, value } => {
                self.append(key, value)?;
                self.wake_all(key, out);
            }
            Request::MultiGet { keys } => {
                self.bounded(keys.map(|key| self.get(key).len()))?;
                let reply = out.reply(conn);
                keys.for_each(|key| put_bytes(reply, self.get(key)));
            }
            Request::MultiSet { pairs } => self.multi_set(pairs, out)?,
            Request::CancelWait => {
                self.cancel(conn);
                out.reply(conn).push(WAIT_CANCELED);
            }
            Request::Ping { nonce } => out.reply(conn).extend_from_slice(&nonce),
            Request::QueuePush { key, value } => self.push(key, value, out)?,
            Request::QueuePop { key } => self.pop(conn, key, out),
            Request::QueueLen { key } => {
                put_count(out.reply(conn), self.queues.get(key).map_or(0, VecDeque::len));
            }
            Request::ListKeys => {
                self.bounded(self.keys.keys().map(|key| key.len()))?;
                let reply = out.reply(conn);
                put_count(reply, self.keys.len());
                self.keys.keys().for_each(|key| put_bytes(reply, key));
            }
            Request::Barrier { key, world } => {
                self.barrier(conn, key, world, out)?;
                self.seen.barrier(key, world, peer);
            }
        }
        Ok(())
    }

    fn bounded(&self, mut lengths: impl Iterator<Item = usize>) -> Result<(), Fault> {
        let sum = lengths.try_fold(8_usize, |sum, length| {
            let sum = sum.saturating_add(length).saturating_add(8);
            (sum <= MOST_FRAME).then_some(sum)
        });
        sum.map(|_| ()).ok_or(Fault::ReplyTooLong)
    }

    fn get(&self, key: &[u8]) -> &[u8] {
        self.keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// A queue with something in it is there as well.
    fn has(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key) || self.queues.get(key).is_some_and(|queue| !queue.is_empty())
    }

    /// So much more is kept.
    fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        let used = self.used.saturating_add(bytes);
        if used > self.limits.bytes {
            return Err(Fault::Full);
        }
        self.used = used;
        Ok(())
    }

    fn give(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    fn set(&mut self, key: &[u8], value: &[u8], out: &mut impl Sink) -> Result<(), Fault> {
        self.put(key, value)?;
        self.wake_all(key, out);
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        match self.keys.get_mut(key) {
            Some(old) => {
                let (more, less) = (value.len(), old.capacity());
                // Checked before anything is changed.
                if self.used.saturating_sub(less).saturating_add(more) > self.limits.bytes {
                    return Err(Fault::Full);
                }
                if old.capacity() / 2 > more || old.capacity() < more {
                    *old = value.to_vec();
                } else {
                    old.clear();
                    old.extend_from_slice(value);
                }
                self.used = self.used.saturating_sub(less).saturating_add(old.capacity());
            }
            None => {
                self.take(ENTRY + key.len() + value.len())?;
                self.keys.insert(key.into(), value.to_vec());
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(value) = self.keys.remove(key) else { return false };
        self.give(ENTRY + key.len() + value.capacity());
        true
    }

    fn add(&mut self, key: &[u8], delta: i64) -> Result<i64, Fault> {
        let old = match self.keys.get(key) {
            Some(value) => integer(value).ok_or(Fault::NotANumber)?,
            None => 0,
        };
        let sum = old.wrapping_add(delta);
        self.put(key, sum.to_string().as_bytes())?;
        Ok(sum)
    }

    fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let Some(old) = self.keys.get_mut(key) else { return self.put(key, value) };
        let (before, length) = (old.capacity(), old.len() + value.len());
        if length > LONGEST {
            return Err(Fault::ValueTooLong(length as u64));
        }
        if length > before {
            let room = length + length / 4;
            let used = self.used.saturating_sub(before).saturating_add(room);
            if used > self.limits.bytes {
                return Err(Fault::Full);
            }
            old.reserve_exact(room - old.len());
            self.used = self.used.saturating_sub(before).saturating_add(old.capacity());
        }
        old.extend_from_slice(value);
        Ok(())
    }

    fn multi_set(&mut self, mut pairs: List<'_>, out: &mut impl Sink) -> Result<(), Fault> {
        while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
            self.seen.set(key);
            self.set(key, value, out)?;
        }
        Ok(())
    }

    fn wait(&mut self, conn: Conn, keys: List<'_>, out: &mut impl Sink) -> Result<(), Fault> {
        if self.waits(conn) {
            return Err(Fault::WaitsTwice);
        }
        let missing: BTreeSet<&[u8]> = keys.filter(|key| !self.has(key)).collect();
        if missing.is_empty() {
            out.reply(conn).push(STOP_WAITING);
            return Ok(());
        }
        self.enter(conn, missing.into_iter().map(Key::from).collect())
    }

    fn waits(&self, conn: Conn) -> bool {
        self.clients.get(conn.0 as usize).is_some_and(|client| client.lacks > 0)
    }

    /// From now on it waits for these, of which none is named twice.
    fn enter(&mut self, conn: Conn, missing: Vec<Key>) -> Result<(), Fault> {
        self.take(wait_cost(&missing))?;
        self.tickets += 1;
        for key in &missing {
            self.step();
            match self.waiting.get_mut(key) {
                Some(line) => {
                    line.insert(self.tickets, conn);
                }
                None => {
                    self.waiting.insert(key.clone(), BTreeMap::from([(self.tickets, conn)]));
                }
            }
        }
        if let Some(client) = self.clients.get_mut(conn.0 as usize) {
            client.ticket = self.tickets;
            client.lacks = u32::try_from(missing.len()).unwrap_or(u32::MAX);
            client.waits = missing;
        }
        Ok(())
    }

    /// It does not wait any more.
    fn cancel(&mut self, conn: Conn) {
        let Some(client) = self.clients.get_mut(conn.0 as usize) else { return };
        client.lacks = 0;
        let (waits, ticket) = (std::mem::take(&mut client.waits), client.ticket);
        self.give(wait_cost(&waits));
        for key in &waits {
            self.step();
            if let Some(line) = self.waiting.get_mut(key) {
                line.remove(&ticket);
                if line.is_empty() {
                    self.waiting.remove(key);
                }
            }
        }
    }

    /// One of the keys of its wait came.
    fn came(&mut self, conn: Conn, out: &mut impl Sink) -> bool {
        let Some(client) = self.clients.get_mut(conn.0 as usize) else { return false };
        if client.lacks == 0 {
            return false;
        }
        client.lacks -= 1;
        if client.lacks > 0 {
            return false;
        }
        let waits = std::mem::take(&mut client.waits);
        self.give(wait_cost(&waits));
        out.reply(conn).push(STOP_WAITING);
        true
    }

    fn wake_all(&mut self, key: &[u8], out: &mut impl Sink) {
        if self.waiting.is_empty() {
            return;
        }
        for conn in self.waiting.remove(key).unwrap_or_default().into_values() {
            self.step();
            self.came(conn, out);
        }
    }

    /// Something was put into a queue: one of those who wait for it may take it.
    fn wake_one(&mut self, key: &[u8], out: &mut impl Sink) {
        while let Some((_, conn)) = self.waiting.get_mut(key).and_then(BTreeMap::pop_first) {
            self.step();
            if self.came(conn, out) {
                break;
            }
        }
        if self.waiting.get(key).is_some_and(BTreeMap::is_empty) {
            self.waiting.remove(key);
        }
    }

    fn push(&mut self, key: &[u8], value: &[u8], out: &mut impl Sink) -> Result<(), Fault> {
        self.take(ENTRY + key.len() + value.len())?;
        match self.queues.get_mut(key) {
            Some(queue) => queue.push_back(value.to_vec()),
            None => {
                self.queues.insert(key.into(), VecDeque::from([value.to_vec()]));
            }
        }
        self.wake_one(key, out);
        Ok(())
    }

    fn pop(&mut self, conn: Conn, key: &[u8], out: &mut impl Sink) {
        let Some(queue) = self.queues.get_mut(key) else { return put_count(out.reply(conn), 0) };
        let length = queue.len();
        let value = queue.pop_front().unwrap_or_default();
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.give(ENTRY + key.len() + value.len());
        let reply = out.reply(conn);
        put_count(reply, length);
        put_bytes(reply, &value);
    }

    fn barrier(&mut self, conn: Conn, key: &[u8], world: i64, out: &mut impl Sink) -> Result<(), Fault> {
        if self.waits(conn) {
            return Err(Fault::WaitsTwice);
        }
        let count = self.add(key, 1)?;
        if count < world {
            return self.enter(conn, vec![key.into()]);
        }
        self.wake_all(key, out);
        out.reply(conn).push(STOP_WAITING);
        Ok(())
    }

    #[allow(clippy::unused_self, clippy::needless_pass_by_ref_mut)]
    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    /// What must always hold, for tests: the sum of what is kept is what was counted, and nobody waits in vain.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let keys: usize = self.keys.iter().map(|(k, v)| ENTRY + k.len() + v.capacity()).sum();
        let queued = |(key, queue): (&Key, &VecDeque<Vec<u8>>)| -> usize {
            queue.iter().map(|value| ENTRY + key.len() + value.len()).sum()
        };
        let queues: usize = self.queues.iter().map(queued).sum();
        let waits: usize = self.clients.iter().map(|client| wait_cost(&client.waits)).sum();
        assert_eq!(self.used, keys + queues + waits);
        assert!(self.used <= self.limits.bytes);
        assert!(self.queues.values().all(|queue| !queue.is_empty()));
        assert!(self.waiting.values().all(|line| !line.is_empty()));
        for (ticket, conn) in self.waiting.values().flatten() {
            assert!(self.waits(*conn), "{conn:?} is entered and does not wait");
            assert_eq!(self.clients[conn.0 as usize].ticket, *ticket);
        }
        for client in &self.clients {
            assert!(client.open || (client.waits.is_empty() && client.lacks == 0));
            assert_eq!(client.waits.is_empty(), client.lacks == 0);
        }
    }
}

fn wait_cost(keys: &[Key]) -> usize {
    // The key itself, where it is entered, and a line of its own.
    keys.iter().map(|key| 3 * ENTRY + 2 * key.len()).sum()
}

fn put_count(reply: &mut Vec<u8>, count: usize) {
    reply.extend_from_slice(&(count as u64).to_le_bytes());
}

fn put_bytes(reply: &mut Vec<u8>, bytes: &[u8]) {
    put_count(reply, bytes.len());
    reply.extend_from_slice(bytes);
}

/// As C++ reads one: white space, a sign, digits; what follows them does not count. `None`: no digit, or too large.
fn integer(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut value = digits.iter().take(length).try_fold(0_i64, |value, digit| {
        // Downwards, because there is one negative number more.
        value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))
    })?;
    if !negative {
        value = value.checked_neg()?;
    }
    (length > 0).then_some(value)
}
