//! The one binary: the command line decides which process this is.

fn main() -> std::process::ExitCode {
    relight::cli::main()
}
