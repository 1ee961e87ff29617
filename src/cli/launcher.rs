//! Other launchers in the place of a program: each starts the ranks of a job itself, and there is a line of relight for
//! what it does.

/// A launcher that was typed as the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// The line to write in its place.
    pub instead: String,
}

/// What stands in the place of a launcher.
enum Instead {
    /// This sentence.
    Say(&'static str),
    /// It has torchrun's options: the same words behind `relight run`.
    SameWords,
}

struct Launcher {
    /// As a program.
    programs: &'static [&'static str],
    /// As a module of Python's.
    modules: &'static [&'static str],
    instead: Instead,
}

const ALL: &[Launcher] = &[
    Launcher { programs: &["torchrun"], modules: &["torch.distributed.run"], instead: Instead::SameWords },
    Launcher {
        programs: &[],
        modules: &["torch.distributed.launch"],
        instead: Instead::Say(
            "relight run --nproc-per-node=N SCRIPT ARGS; the script reads LOCAL_RANK in place of --local-rank",
        ),
    },
    Launcher {
        programs: &["accelerate", "accelerate-launch"],
        modules: &["accelerate", "accelerate.commands.accelerate_cli", "accelerate.commands.launch"],
        instead: Instead::Say(
            "in place of `accelerate launch`: relight run --nproc-per-node=N SCRIPT ARGS, and for example ACCELERATE_MIXED_PRECISION=bf16 in the environment",
        ),
    },
    Launcher {
        programs: &["deepspeed", "ds"],
        modules: &["deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch"],
        instead: Instead::Say(
            "in place of `deepspeed`: relight run --nproc-per-node=N SCRIPT ARGS; it needs no hostfile",
        ),
    },
    Launcher {
        programs: &["ft_launcher"],
        modules: &["nvidia_resiliency_ext.fault_tolerance.launcher"],
        instead: Instead::Say(
            "in place of `ft_launcher`: relight run with its options but those that begin with --ft, SCRIPT ARGS",
        ),
    },
    Launcher {
        programs: &["dlrover-run"],
        modules: &["dlrover.trainer.torch.main"],
        instead: Instead::Say("in place of `dlrover-run`: relight run --nproc-per-node=N SCRIPT ARGS"),
    },
    Launcher {
        programs: &["composer"],
        modules: &["composer.cli.launcher"],
        instead: Instead::Say("in place of `composer -n N`: relight run --nproc-per-node=N SCRIPT ARGS"),
    },
    Launcher {
        programs: &["torchx"],
        modules: &["torchx.apps.main", "torchx"],
        instead: Instead::Say(
            "torchx submits jobs: in the batch script it is relight run --nproc-per-node=N SCRIPT ARGS",
        ),
    },
    Launcher {
        programs: &["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun", "horovodrun"],
        modules: &["mpi4py.run"],
        instead: Instead::Say(
            "MPI programs are not covered; for a torch program: relight run --nproc-per-node=N SCRIPT ARGS",
        ),
    },
    Launcher {
        programs: &["srun"],
        modules: &[],
        instead: Instead::Say("turn it round: relight srun [its options] -- relight run SCRIPT ARGS"),
    },
    Launcher {
        programs: &["sbatch", "salloc"],
        modules: &[],
        instead: Instead::Say("turn it round: the batch script says relight run SCRIPT ARGS"),
    },
    Launcher {
        programs: &["relight"],
        modules: &[],
        instead: Instead::Say("say it once: relight run SCRIPT ARGS"),
    },
];

/// The launcher in a command: by its name or a path, as a module, or behind `python`.
#[must_use]
pub fn find(module: bool, program: &str, args: &[String]) -> Option<Found> {
    if module {
        return named(true, program, args);
    }
    named(false, program, args).or_else(|| {
        let (module, name, rest) = behind_python(program, args)?;
        named(module, name, rest)
    })
}

fn named(module: bool, name: &str, rest: &[String]) -> Option<Found> {
    let base = if module { name } else { base(name) };
    let names = |launcher: &&Launcher| {
        let names = if module { launcher.modules } else { launcher.programs };
        names.contains(&base)
    };
    let launcher = ALL.iter().find(names)?;
    let instead = match launcher.instead {
        Instead::Say(sentence) => sentence.to_owned(),
        Instead::SameWords => same_words(rest),
    };
    Some(Found { name: base.to_owned(), instead })
}

/// What an interpreter would run: whether it is a module, its name, and what is behind it.
fn behind_python<'a>(program: &str, args: &'a [String]) -> Option<(bool, &'a str, &'a [String])> {
    let version = base(program).strip_prefix("python").or_else(|| base(program).strip_prefix("pypy"))?;
    if !version.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let mut at = 0;
    while let Some(word) = args.get(at) {
        at += 1;
        match word.as_str() {
            "-m" => return Some((true, args.get(at)?, args.get(at + 1..).unwrap_or_default())),
            "-c" | "--" | "-" => return None,
            // These have a value of their own.
            "-X" | "-W" => at += 1,
            word if word.starts_with("-m") => return Some((true, &word[2..], &args[at..])),
            word if word.starts_with('-') => {}
            word => return Some((false, word, &args[at..])),
        }
    }
    None
}

fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Torchrun's words behind `relight run`, as far as they fit into a line.
fn same_words(rest: &[String]) -> String {
    const LONGEST: usize = 200;
    let plain = |word: &&String| !word.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\'');
    let words: Vec<&str> = rest.iter().take_while(plain).map(String::as_str).collect();
    let line = words.join(" ");
    if line.is_empty() || line.len() > LONGEST || words.len() < rest.len() {
        return "relight takes torchrun's options itself: relight run --nproc-per-node=N SCRIPT ARGS"
            .to_owned();
    }
    format!("relight takes torchrun's options itself: relight run {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wherever_they_hide() {
        for (command, want) in [
            ("torchrun --nproc-per-node 8 x.py", Some("torchrun")),
            ("/opt/bin/torchrun x.py", Some("torchrun")),
            ("python -m torch.distributed.run x.py", Some("torch.distributed.run")),
            (
                "/env/bin/python3.11 -u -X dev -W ignore -m accelerate.commands.launch x.py",
                Some("accelerate.commands.launch"),
            ),
            ("python3 -mtorch.distributed.launch x.py", Some("torch.distributed.launch")),
            ("python /env/bin/deepspeed x.py", Some("deepspeed")),
            ("-m deepspeed.launcher.runner x.py", Some("deepspeed.launcher.runner")),
            ("-m torchrun x.py", None),
            ("accelerate launch x.py", Some("accelerate")),
            ("ft_launcher x.py", Some("ft_launcher")),
            ("mpiexec -n 2 x", Some("mpiexec")),
            ("python train.py -m torch.distributed.run", None),
            ("python -c torchrun", None),
            ("python", None),
            ("python -m", None),
            ("pythonic torchrun", None),
            ("train.py torchrun", None),
        ] {
            let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let module = words[0] == "-m";
            if module {
                words.remove(0);
            }
            let found = find(module, &words[0], &words[1..]);
            assert_eq!(found.as_ref().map(|found| found.name.as_str()), want, "{command}");
        }
    }

    #[test]
    fn the_same_words() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let line = find(false, "torchrun", &words("--nproc-per-node 8 x.py --lr 3")).unwrap().instead;
        assert!(line.ends_with(": relight run --nproc-per-node 8 x.py --lr 3"), "{line}");
        for odd in [vec![], vec!["a b".to_owned()], vec!["x".repeat(300)]] {
            let line = find(false, "torchrun", &odd).unwrap().instead;
            assert!(line.ends_with("--nproc-per-node=N SCRIPT ARGS"), "{line}");
        }
    }
}
