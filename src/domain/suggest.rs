//! "Did you mean": the closest known word to one that was mistyped.

/// Edits (insert, drop, replace, swap of neighbours) between two words.
#[must_use]
pub fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

/// A word as a shell takes it, for lines that are to be copied: quoted where it must be.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The candidate closest to `typed`, when it is close enough to be meant: at most one edit in three letters.
/// Words of absurd length have none (the work is bounded).
#[must_use]
pub fn closest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if typed.is_empty() || typed.len() > 64 {
        return None;
    }
    let typed = typed.to_ascii_lowercase();
    let allowed = (typed.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|word| (distance(&typed, word), word))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("nproc", "nproc", 0),
            ("ndoes", "nodes", 1),
            ("kitten", "sitting", 3),
            ("größe", "große", 1),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn only_what_is_close() {
        let words = ["nnodes", "nproc-per-node", "max-restarts", "role"];
        for (typed, meant) in [
            ("nproc-per-nod", Some("nproc-per-node")),
            ("max-restart", Some("max-restarts")),
            ("nodes", Some("nnodes")),
            ("rloe", Some("role")),
            ("learning-rate", None),
            ("", None),
        ] {
            assert_eq!(closest(typed, words), meant, "{typed}");
        }
    }

    #[test]
    fn words_for_a_shell() {
        for (word, shown) in [
            ("48213.0", "48213.0"),
            ("/scratch/me/run=1", "/scratch/me/run=1"),
            ("", "''"),
            ("my run", "'my run'"),
            ("it's", r"'it'\''s'"),
            ("a;rm -rf ~", "'a;rm -rf ~'"),
            ("48213.0~1", "'48213.0~1'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }
}
