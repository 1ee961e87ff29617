//! The generated parts of `docs/` are what the program prints. To renew them: `RELIGHT_UPDATE_DOCS=1`.

use std::fs;
use std::path::Path;

use relight::cli::flags::Generated;
use relight::cli::generate;

#[test]
fn documentation_is_what_the_program_says() {
    let update = std::env::var_os("RELIGHT_UPDATE_DOCS").is_some();
    for (name, gen_name, what) in [
        ("environment.md", "env-table", Generated::EnvTable),
        ("exit-codes.md", "exit-codes", Generated::ExitCodes),
        ("cli.md", "cli", Generated::Cli),
        ("torchrun.md", "torchrun", Generated::Torchrun),
        ("attribution.md", "attribution", Generated::Attribution),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        let page = fs::read_to_string(&path).unwrap();
        let begin = format!("<!-- made by `relight gen {gen_name}` -->\n");
        let end = "<!-- end -->";
        let (before, rest) = page.split_once(&begin).expect("the marker of the beginning");
        let (_, after) = rest.split_once(end).expect("the marker of the end");
        let renewed = format!("{before}{begin}\n{}\n{end}{after}", generate::text(what));
        if update {
            fs::write(&path, &renewed).unwrap();
        } else {
            assert!(
                page == renewed,
                "docs/{name} is not what `relight gen {gen_name}` prints: RELIGHT_UPDATE_DOCS=1"
            );
        }
    }
}

#[test]
fn every_variable_of_a_setting_is_documented() {
    use relight::domain::env;
    use relight::domain::settings::Key;
    let settings = Key::ALL.into_iter().flat_map(|key| key.env().iter());
    for var in settings {
        assert!(env::ALL.contains(var), "{}", var.name);
        assert!(var.direction != env::Direction::Sets, "{}", var.name);
    }
}
