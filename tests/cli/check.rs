//! `relight check`.

use crate::home::Home;

/// What it prints, without times and figures of this machine. Columns are as wide as the figures.
fn shown(home: &Home, args: &[&str]) -> String {
    const UNITS: [&str; 7] = ["ms", "B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let plain = |line: &str| {
        if line.trim_start().starts_with("\"took_ms\"") {
            return "\"took_ms\": N".to_owned();
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_figure = |at: usize| {
            let unit = words.get(at + 1).is_some_and(|next| UNITS.contains(next));
            unit && words[at].trim_start_matches('"').parse::<f64>().is_ok()
        };
        let word = |at: usize| match words[at] {
            word if !is_figure(at) => word,
            word if word.starts_with('"') => "\"N",
            _ => "N",
        };
        (0..words.len()).map(word).collect::<Vec<_>>().join(" ")
    };
    let screen = home.screen(args, &[("SLURMD_NODENAME", "n07")]);
    screen.lines().map(plain).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_node_that_is_fit_one_that_is_not_and_one_of_which_nobody_can_tell() {
    let home = Home::new();
    let bad = "echo 'ERROR: GPU 3 is gone'; exit 1";
    insta::assert_snapshot!("check_fit", shown(&home, &["check", "--health-cmd=echo all fine"]));
    insta::assert_snapshot!(
        "check_unfit",
        shown(&home, &["check", "--health-cmd", bad, "--health-cmd=exit 3"])
    );
    insta::assert_snapshot!(
        "check_late",
        shown(&home, &["check", "--health-cmd=while :; do :; done", "--health-timeout=200ms"])
    );
    insta::assert_snapshot!("check_json", shown(&home, &["check", "--json", "--health-cmd", bad]));
}
