//! Lines that ranks print, against the table of what failures look like.

use relight::domain::attribution::engine::{MAX_LINE, engine};
use relight::domain::attribution::evidence::{Facts, MAX_FINDINGS, Spoken, survey, weigh};
use relight::domain::attribution::fingerprint::{MAX_ENTITY, MAX_FINGERPRINT};
use relight::domain::attribution::rules::{parse, rules};
use relight::domain::exit::ExitKind;
use relight::domain::last_words::last_words;

use crate::engine::{Target, behaviour};

pub const TARGET: Target = Target {
    name: "patterns",
    seeds: || {
        let examples = rules().iter().filter(|rule| !rule.example.is_empty());
        examples.map(|rule| format!("step 3\n{}\nbye\n", rule.example).into_bytes()).collect()
    },
    run,
    longest: 64 << 10,
    // Of each row one line is kept, and patterns are made when they are first needed.
    heap: |length| 80 * length + (8 << 20),
    words: &[b" ;; ", b"NVRM: Xid (PCI:0000:1b:00): ", b"please try ", b". ", b"\r", b"'/a/b'", b"10.0.0.1:80"],
};

fn run(input: &[u8]) -> u64 {
    let mut longest = 0;
    if let Some(engine) = engine() {
        engine.scan(input, |hit| {
            longest = longest.max(hit.line.len());
            assert!(hit.at + hit.line.len() <= input.len());
        });
    }
    assert!(longest <= MAX_LINE + 128, "{longest}");
    let (words, seen) = (last_words(input), survey(input));
    let spoken = Spoken { headline: &words.headline, frame: &words.frame, text: &words.text, last: true };
    let exit = match input.first() {
        Some(no @ 1..=64) => ExitKind::Signal { no: *no, core: false },
        Some(code) => ExitKind::Code(*code),
        None => ExitKind::Lost,
    };
    let evidence = weigh(&exit, &spoken, &seen, Facts::default());
    assert!(evidence.findings.len() <= MAX_FINDINGS && evidence.fingerprint.len() <= MAX_FINGERPRINT + 4);
    assert!(evidence.entity.as_ref().is_none_or(|entity| entity.len() <= MAX_ENTITY));
    assert!(!evidence.line.contains('\n'), "{evidence:?}");
    let text = String::from_utf8_lossy(input);
    let (rows, bad) = parse(&text);
    behaviour((evidence.rule, evidence.findings.len(), rows.len().min(2), bad.first().map(|bad| bad.what)))
}
