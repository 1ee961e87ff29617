//! Options of the launcher among the arguments of the program: torchrun passes them on without a word, and the program
//! is started as if they had not been typed.

use super::args::Args;
use super::key::Key;

/// Those that hardly a program has for its own.
const OURS: [Key; 8] = [
    Key::NprocPerNode,
    Key::Nnodes,
    Key::Spares,
    Key::MaxRestarts,
    Key::Standalone,
    Key::RdzvBackend,
    Key::RdzvEndpoint,
    Key::RdzvConf,
];

/// What stands behind the program, is no option of the launcher there, and was said nowhere else, as people are told.
pub(super) fn without_effect(args: &Args, is_given: impl Fn(Key) -> bool) -> Vec<String> {
    let Some(program) = &args.program else { return Vec::new() };
    let program = program.rsplit('/').next().unwrap_or(program);
    let words = args.args.iter().take_while(|word| *word != "--");
    let names = words.filter_map(|word| Some(word.strip_prefix("--")?.split('=').next()?.replace('_', "-")));
    let mut found: Vec<Key> = names
        .filter_map(|name| Key::named(&name))
        .filter(|key| OURS.contains(key) && !is_given(*key))
        .collect();
    found.dedup();
    found.into_iter().map(|key| format!("--{} behind {program}", key.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_and_was_not_given() {
        for (line, given, want) in [
            ("train.py --nproc-per-node 2", None, vec!["--nproc-per-node behind train.py"]),
            ("/a/b/train.py --max_restarts=2 --lr 3", None, vec!["--max-restarts behind train.py"]),
            ("train.py --nnodes 2", Some(Key::Nnodes), vec![]),
            ("train.py -- --nnodes 2", None, vec![]),
            ("train.py nnodes --log-dir l --role x -r 3 --nn 2", None, vec![]),
            (
                "train.py --nnodes 2 --nnodes=3 --standalone",
                None,
                vec!["--nnodes behind train.py", "--standalone behind train.py"],
            ),
            ("", None, vec![]),
        ] {
            let mut words = line.split_whitespace().map(str::to_owned);
            let args = Args { program: words.next(), args: words.collect(), ..Args::default() };
            assert_eq!(without_effect(&args, |key| given == Some(key)), want, "{line}");
        }
    }
}
