//! What words mean, in this process.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;

use proptest::prelude::*;
use relight::cli::{ParseError, Parsed, parse};
use relight::domain::settings::{Args, Key};

fn run(words: &[&str]) -> Result<Args, String> {
    let mut all = vec!["run"];
    all.extend(words);
    meaning("relight", &all)
}

fn meaning(called_as: &str, words: &[&str]) -> Result<Args, String> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    match parse(OsStr::new(called_as), &words) {
        Ok(Parsed::Run { flags, program }) => Ok(flags.run.args(&program)),
        Ok(other) => Err(format!("{other:?}")),
        Err(ParseError::Usage(error)) => Err(error.to_string()),
        Err(ParseError::Shown(text) | ParseError::NoCommand(text)) => Err(text),
    }
}

/// Given settings, program and arguments on one line.
fn line(args: &Args) -> String {
    let mut words: Vec<String> =
        args.values.iter().map(|(key, value)| format!("{}={value}", key.name())).collect();
    words.push("|".to_owned());
    words.extend(args.program.clone());
    words.extend(args.args.clone());
    words.join(" ")
}

#[test]
fn torchruns_rules() {
    for (words, want) in [
        // Everything behind the first positional is the program's.
        ("x.py --nnodes 3 -r3 -- -h", "| x.py --nnodes 3 -r3 -- -h"),
        ("-- x.py --nnodes 3", "| x.py --nnodes 3"),
        // One -- directly behind it is torchrun's.
        ("x.py -- a -- b", "| x.py a -- b"),
        ("x.py -- --", "| x.py --"),
        ("-- x.py -- a", "| x.py -- a"),
        ("-- -- x.py", "| -- x.py"),
        ("-- -x", "| -x"),
        ("--standalone x.py", "standalone=1 | x.py"),
        ("-", "| -"),
        ("", "|"),
        // Both spellings, with and without an equals sign.
        ("--nproc-per-node 4 x.py", "nproc-per-node=4 | x.py"),
        ("--nproc_per_node=4 x.py", "nproc-per-node=4 | x.py"),
        ("--nproc-per_node=4 x.py", "nproc-per-node=4 | x.py"),
        ("--log_dir=/a=b x.py", "log-dir=/a=b | x.py"),
        ("--role= x.py", "role= | x.py"),
        // Unique prefixes.
        ("--stand --nn 1 --nproc 2 x.py", "standalone=1 nnodes=1 nproc-per-node=2 | x.py"),
        (
            "--local-r 0 --rdzv-en h:1 --master-p 1 x.py",
            "local-ranks-filter=0 rdzv-endpoint=h:1 master-port=1 | x.py",
        ),
        ("--rdzv_i 7 x.py", "run-id=7 | x.py"),
        // What torchrun takes for its own is that, though options of ours begin so.
        ("--run- x.py", "run-path=1 | x.py"),
        // Short ones.
        ("-r3 -t 1 x.py", "redirects=3 tee=1 | x.py"),
        ("-r=0:1,1:2 -m pkg.mod -m", "module=1 redirects=0:1,1:2 | pkg.mod -m"),
        ("-mr3 pkg", "module=1 redirects=3 | pkg"),
        // The last counts; a run id by either name.
        ("--max-restarts 1 --max-restarts=2 x.py", "max-restarts=2 | x.py"),
        ("--run-id a --rdzv-id b x.py", "run-id=b | x.py"),
        // Negative numbers are values.
        ("--max-restarts -1 x.py", "max-restarts=-1 | x.py"),
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let got = run(&words).map(|args| line(&args).trim_end().to_owned());
        assert_eq!(got, Ok(want.trim_end().to_owned()), "{words:?}");
    }
}

#[test]
fn what_makes_no_sense() {
    for (words, sentence) in [
        ("--bogus x.py", "there is no option --bogus"),
        ("--nporc-per-node 2 x.py", "there is no option --nporc-per-node"),
        ("-x x.py", "there is no option -x"),
        ("-mpkg", "there is no option -p"),
        ("--local 1 x.py", "--local can mean --local-addr or --local-ranks-filter"),
        ("--run x.py", "--run can mean --run-dir or --run-id or --run-path"),
        ("--nnodes", "--nnodes needs a value"),
        ("--nnodes --standalone x.py", "--nnodes needs a value"),
        ("-r", "-r needs a value"),
        ("--standalone=1 x.py", "--standalone takes no value"),
        ("--=3 x.py", "there is no option --"),
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(run(&words), Err(sentence.to_owned()), "{words:?}");
    }
    let broken = [OsString::from("run"), OsString::from_vec(vec![b'a', 0xff])];
    match parse(OsStr::new("relight"), &broken) {
        Err(ParseError::Usage(error)) => {
            assert_eq!(error.to_string(), "the argument 'a\u{fffd}' is not valid UTF-8")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn under_the_name_torchrun() {
    let args = meaning("/usr/bin/torchrun", &["--nproc-per-node=2", "run", "x"]).unwrap();
    assert_eq!(line(&args), "nproc-per-node=2 | run x");
    assert!(meaning("relight-torchrun", &["--nproc-per-node=2", "run", "x"]).is_err());
}

#[test]
fn every_setting_can_be_typed() {
    let flags =
        [Key::Standalone, Key::Module, Key::NoPython, Key::RunPath, Key::VirtualLocalRank, Key::Insecure];
    for key in Key::ALL {
        let (word, want) = if flags.contains(&key) {
            (format!("--{}", key.name()), "1")
        } else {
            (format!("--{}=v", key.name()), "v")
        };
        let args = run(&[&word, "x.py"]).unwrap();
        assert_eq!(args.values.get(&key).map(String::as_str), Some(want), "{word}");
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "run", "config", "show", "status", "why", "logs", "events", "gc", "inject", "gen", "kill-rank", "--", "-",
            "--nnodes", "--nproc_per_node=4", "--max-restarts", "-r3", "-m", "-rrr", "-h", "--help", "--version", "-V",
            "--rdzv-conf", "--rank", "--signal=9", "x.py", "--replay", "--json", "--dry-run", "--no", "1", "-1", "",
        ]).prop_map(str::to_owned),
        1 => "-{0,3}[a-z_=-]{0,12}",
        1 => "\\PC{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Any words give an answer; what makes no sense is said in one line.
    #[test]
    fn no_words_make_it_panic(words in prop::collection::vec(word(), 0..8), torchrun in any::<bool>()) {
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let called_as = if torchrun { "torchrun" } else { "relight" };
        if let Err(ParseError::Usage(error)) = parse(OsStr::new(called_as), &words) {
            let sentence = error.to_string();
            prop_assert!(!sentence.is_empty());
        }
    }

    /// What stands behind the program reaches it untouched.
    #[test]
    fn the_programs_arguments_are_its_own(tail in prop::collection::vec("\\PC{0,10}", 0..6)) {
        let mut words = vec![OsString::from("run"), OsString::from("--nnodes=1"), OsString::from("x.py")];
        words.extend(tail.iter().map(OsString::from));
        match parse(OsStr::new("relight"), &words) {
            Ok(Parsed::Run { flags, program }) => {
                let args = flags.run.args(&program);
                prop_assert_eq!(args.program.as_deref(), Some("x.py"));
                let taken = usize::from(tail.first().is_some_and(|word| word == "--"));
                prop_assert_eq!(&args.args, &tail[taken..]);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
