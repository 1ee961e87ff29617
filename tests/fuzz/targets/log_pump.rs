//! A logs worker that says anything: the pump lets go of it, and goes on.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use relight::logs::Stream;
use relight::logs::pump::{Config, Event, Pump};
use relight::logs::spec::LogSpec;

use crate::engine::{Target, shape};

pub const TARGET: Target = Target {
    name: "log_pump",
    seeds: || {
        // `Ready`, and a path of one letter that is given up, as frames.
        vec![
            vec![1, 0, 0, 0, 2],
            vec![4, 0, 0, 0, 3, 1, b'a', 10],
            vec![2, 0, 0, 0, 0, 9],
            vec![2, 0, 0, 0, 1, 9],
        ]
    },
    run,
    longest: 16 << 10,
    heap: |length| 64 * length + (1 << 20),
    words: &[],
};

fn run(input: &[u8]) -> u64 {
    let (tell, events) = mpsc::channel();
    let pump = Pump::start(Config::new(LogSpec::default()), move |event| drop(tell.send(event))).unwrap();
    let (ours, mut worker) = UnixStream::pair().unwrap();
    let handle = pump.handle();
    handle.say(Stream::Err, "a line\n");
    handle.attach(OwnedFd::from(ours));
    // It may be let go of in the middle.
    let _ = worker.write_all(input);
    let _ = worker.shutdown(Shutdown::Write);
    let mut said = Vec::new();
    loop {
        match events.recv_timeout(Duration::from_secs(20)) {
            Ok(Event::WorkerTrouble(trouble)) => {
                said.truncate(4);
                return shape((said, trouble));
            }
            Ok(event) => said.push(event),
            Err(_) => panic!("the pump keeps a worker that ended"),
        }
    }
}
