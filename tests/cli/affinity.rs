//! `--numa-binding`: ranks run where they are bound to.

use std::path::Path;

use relight::domain::numa::NumaBinding;
use relight::sys::topology;

use crate::home::Home;

#[test]
#[allow(clippy::print_stderr)]
fn ranks_run_on_their_cpus() {
    let mut machine = topology::read(Path::new("/sys"));
    machine.spread(2);
    for way in [NumaBinding::Exclusive, NumaBinding::Node] {
        let want: Result<Vec<_>, _> = (0..2).map(|rank| machine.bind(way, rank)).collect();
        let want = match want {
            Ok(want) => want,
            Err(why) => {
                eprintln!("skipped: {why}");
                return;
            }
        };
        let home = Home::new();
        let binding = format!("--numa-binding={}", way.name());
        let tell = "echo $LOCAL_RANK: $(grep Cpus_allowed_list /proc/self/status)";
        let args =
            ["run", "--nproc-per-node=2", &binding, "--log-dir=/dev/null", "--no-python", "sh", "-c", tell];
        // No GPU hides behind another order of ranks.
        let mut command = home.relight(&args);
        let output = command.env("PATH", "/usr/bin:/bin").env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        for (rank, cpus) in want.iter().enumerate() {
            let line =
                text.lines().find_map(|line| line.strip_prefix(&format!("{rank}: Cpus_allowed_list:")));
            let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
            let got: Vec<u32> = relight::domain::numa::cpu_list(line).into_iter().collect();
            assert_eq!(&got, cpus, "{way:?}: {text}");
        }
    }
}
