use std::time::Instant;

use super::*;
use crate::domain::health::Finding;

fn program(command: &str, limit: Duration) -> Said {
    let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    Program { command: command.into(), limit, env, cwd: "/".into() }.look()
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn programs_that_are_fine_sick_hanging_crashing_and_talking_nonsense() {
    let table = [
        ("echo all fine", Finding::Pass, "all fine"),
        ("echo 'ERROR: GPU 3 is gone' >&2; exit 1", Finding::Fail, "ERROR: GPU 3 is gone"),
        ("exit 1", Finding::Unknown, "it ended with 1 and did not say why"),
        ("kill -SEGV $$", Finding::Unknown, "it did not come to an answer: "),
        ("/no/such/checker", Finding::Unknown, "it did not come to an answer: "),
        // Megabytes without a sense.
        ("head -c 3000000 /dev/urandom; exit 1", Finding::Unknown, ""),
        ("yes | head -c 5000000; exit 0", Finding::Pass, "y"),
    ];
    for (command, finding, sentence) in table {
        let said = program(command, LONG);
        assert_eq!(said.finding, finding, "{command}: {said:?}");
        assert!(said.sentence.starts_with(sentence) || sentence == "y", "{command}: {said:?}");
    }
    let began = Instant::now();
    for hangs in ["sleep 1000", "trap '' TERM INT; sleep 1000 & wait", "yes"] {
        let said = program(hangs, Duration::from_millis(300));
        assert_eq!(said.finding, Finding::Unknown, "{hangs}");
        assert!(said.sentence.contains("has not answered"), "{said:?}");
    }
    assert!(began.elapsed() < LONG);
}

#[test]
fn a_directory_that_can_be_used_and_one_that_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let check = |dir: &Path| SharedDirectory { dir: dir.into(), name: "n1".into(), above: false }.look();
    assert_eq!(check(dir.path()).finding, Finding::Pass);
    fs::write(dir.path().join(".health-n1.new"), "left").unwrap();
    assert_eq!(check(dir.path()).finding, Finding::Pass);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(check(&dir.path().join("gone")).finding, Finding::Fail);
    let above = SharedDirectory { dir: dir.path().join("to/come"), name: "n1".into(), above: true };
    assert_eq!(above.look().finding, Finding::Pass);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // Not ours to say whose fault that is.
    assert_eq!(check(Path::new("/proc")).finding, check(Path::new("/proc/gone")).finding);
}

#[test]
fn memory_of_the_machine_and_of_groups() {
    let meminfo = "MemTotal:       65536 kB\nMemFree:  100 kB\nMemAvailable:   1024 kB\n";
    assert_eq!(machine(meminfo), Some((1 << 20, 64 << 20)));
    assert_eq!(machine("MemTotal: 1 kB\n"), None);
    assert_eq!(machine(""), None);
    let own = "12:cpu,cpuacct:/a\n7:memory:/slurm/job_3/step_0\n0::/user.slice/x\n";
    let names: Vec<String> = groups(own).iter().map(|path| path.display().to_string()).collect();
    assert_eq!(
        names,
        [
            "/sys/fs/cgroup/memory/slurm/job_3/step_0",
            "/sys/fs/cgroup/memory/slurm/job_3",
            "/sys/fs/cgroup/memory/slurm",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/user.slice/x",
            "/sys/fs/cgroup/user.slice",
            "/sys/fs/cgroup",
        ]
    );
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    assert_eq!(limit_of(dir.path()), None);
    write("memory.max", "max\n");
    write("memory.current", "900\n");
    assert_eq!(limit_of(dir.path()), None);
    write("memory.max", "1000\n");
    write("memory.stat", "anon 100\ninactive_file 300\nactive_file 200\nfile 600\n");
    assert_eq!(limit_of(dir.path()), Some((600, 1000)));
    // The first version of groups.
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("memory.limit_in_bytes", "9223372036854771712\n");
    write("memory.usage_in_bytes", "900\n");
    assert_eq!(limit_of(dir.path()), None);
    write("memory.limit_in_bytes", "1000\n");
    assert_eq!(limit_of(dir.path()), Some((100, 1000)));
}

#[test]
fn this_machine_is_looked_at_in_no_time() {
    let found = local();
    let names: Vec<&str> = found.iter().map(|result| result.check.as_str()).collect();
    assert_eq!(names, ["/dev/shm", "memory"]);
    assert!(found.iter().all(|result| result.finding != Finding::Unknown), "{found:?}");
}
