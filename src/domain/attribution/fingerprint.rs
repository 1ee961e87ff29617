//! What a failure is known by, and what it happened to: two attempts that fail alike have the same fingerprint, whatever
//! numbers, paths and addresses are in their messages.

/// The most of a fingerprint, in bytes.
pub const MAX_FINGERPRINT: usize = 240;
/// The most of an entity, in bytes.
pub const MAX_ENTITY: usize = 160;

/// A fingerprint of class, kind of error, innermost frame of the user and message.
#[must_use]
pub fn fingerprint(class: &str, kind: &str, frame: &str, message: &str) -> String {
    let mut text = format!("{class}|{}|{frame}|{}", normal(kind), normal(message));
    cut(&mut text, MAX_FINGERPRINT);
    text
}

/// A message without what differs from one failure to the next: numbers, addresses and identifiers become `#`, paths `/`.
#[must_use]
pub fn normal(message: &str) -> String {
    let mut out = String::new();
    for (at, word) in message.split_ascii_whitespace().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        let (open, inner, close) = wrapped(word);
        out.push_str(open);
        if is_path(inner) {
            out.push('/')
        } else {
            out.push_str(&numberless(inner))
        }
        out.push_str(close);
        if out.len() > 4 * MAX_FINGERPRINT {
            break;
        }
    }
    out
}

/// Signs before, a word, signs behind.
fn wrapped(word: &str) -> (&str, &str, &str) {
    let sign = |c: char| {
        matches!(c, '\'' | '"' | '`' | '(' | ')' | '[' | ']' | '<' | '>' | '{' | '}' | ',' | ':' | ';' | '=')
    };
    let inner = word.trim_start_matches(sign);
    let open = word.len() - inner.len();
    let inner = inner.trim_end_matches(sign);
    (&word[..open], inner, &word[open + inner.len()..])
}

/// `/a/b`, `a/b/c`, `~/x`, `s3://x/y`; not `N/A` or `and/or`.
fn is_path(word: &str) -> bool {
    word.starts_with('/') && word.len() > 1
        || word.starts_with("~/")
        || word.starts_with("./")
        || word.starts_with("../")
        || word.contains("://")
        || word.matches('/').count() > 1
}

/// Every number, and every identifier of hexadecimal digits, as `#`.
fn numberless(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        let length = number(rest, out.chars().next_back());
        if length > 0 {
            out.push('#');
            rest = &rest[length..];
            // `0x7f` and `10.0.0.7:80` are one each.
            continue;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    // A list of numbers is one number, so that its length does not count.
    while let Some(at) = out.find("#-#").or_else(|| out.find("#,#")).or_else(|| out.find("#:#")) {
        out.replace_range(at..at + 3, "#");
    }
    out
}

/// The length of what begins here as a number, in bytes; 0 for none.
fn number(text: &str, before: Option<char>) -> usize {
    let bytes = text.as_bytes();
    let hex = |byte: &&u8| byte.is_ascii_hexdigit();
    let starts_word = !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    if text.starts_with("0x") || text.starts_with("0X") {
        return 2 + bytes[2..].iter().take_while(hex).count();
    }
    if starts_word {
        // A digest, a part of a UUID: digits and letters, and enough of them.
        let run = bytes.iter().take_while(|byte| hex(byte) || **byte == b'-').count();
        let run = text[..run].trim_end_matches('-').len();
        let ends_word = !bytes.get(run).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let mixed = text[..run].contains(|c: char| c.is_ascii_digit())
            && text[..run].contains(|c: char| c.is_ascii_alphabetic());
        if run >= 7 && ends_word && mixed {
            return run;
        }
    }
    let sign = usize::from(starts_word && matches!(bytes.first(), Some(b'-' | b'+')));
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    if !digit(sign) {
        return 0;
    }
    let mut at = sign;
    while digit(at) || (matches!(bytes.get(at), Some(b'.' | b',')) && digit(at + 1)) {
        at += 1;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let exponent = at + 1 + usize::from(matches!(bytes.get(at + 1), Some(b'-' | b'+')));
        if digit(exponent) {
            at = exponent;
            while digit(at) {
                at += 1;
            }
        }
    }
    at
}

/// What a line says that it happened to: a file, a sample, a device. The first of them.
#[must_use]
pub fn entity(line: &str) -> Option<String> {
    let found = device(line).or_else(|| position(line)).or_else(|| path(line))?;
    let mut found = found;
    cut(&mut found, MAX_ENTITY);
    Some(found)
}

/// `PCI:0000:1b:00`, `GPU-5c8f…`, `GPU 3`, `cuda:3`.
fn device(line: &str) -> Option<String> {
    let words = || line.split(|c: char| c.is_ascii_whitespace() || matches!(c, '(' | ')' | ',' | ';' | '\''));
    if let Some(pci) = words().find_map(|word| word.strip_prefix("PCI:")) {
        return Some(format!("gpu {}", pci.trim_end_matches(':')));
    }
    let numbered = |word: &&str| {
        let number = word.strip_prefix("cuda:").or_else(|| word.strip_prefix("GPU-"));
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()))
    };
    if let Some(word) = words().find(numbered) {
        return Some(format!("gpu {}", word.trim_end_matches([':', '.'])));
    }
    let number = following(line, &["GPU "])?;
    Some(format!("gpu {number}"))
}

/// `sample 1234`, `batch 17`, `index 5`, `shard-7.tar`.
fn position(line: &str) -> Option<String> {
    for word in ["sample", "batch", "record", "document", "row", "shard", "token"] {
        let ways = [format!("{word} "), format!("{word}="), format!("{word}: "), format!("{word} #")];
        let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
        if let Some(number) = following(line, &ways) {
            return Some(format!("{word} {number}"));
        }
    }
    None
}

/// The digits that follow one of these words.
fn following(line: &str, words: &[&str]) -> Option<String> {
    words.iter().find_map(|word| {
        line.match_indices(word).find_map(|(at, _)| {
            let starts = !line[..at].ends_with(|c: char| c.is_alphanumeric());
            let digits: String =
                line[at + word.len()..].chars().take_while(char::is_ascii_digit).take(20).collect();
            (starts && !digits.is_empty()).then_some(digits)
        })
    })
}

fn path(line: &str) -> Option<String> {
    let quoted = |quote: char| {
        let mut parts = line.split(quote);
        parts.next();
        parts.step_by(2).find(|part| is_path(part) && !part.contains("://")).map(str::to_owned)
    };
    let bare = || {
        let words = line.split_ascii_whitespace().map(|word| wrapped(word).1);
        words.filter(|word| word.starts_with('/') && word.len() > 1).map(str::to_owned).next()
    };
    quoted('\'').or_else(|| quoted('"')).or_else(bare)
}

/// The addresses of peers that a line names, without their ports: `[10.0.0.7]:3021`, `10.0.0.7<43211>`.
#[must_use]
pub fn addresses(line: &str) -> Vec<String> {
    let words =
        line.split(|c: char| c.is_ascii_whitespace() || matches!(c, '[' | ']' | '<' | '>' | '(' | ')' | ','));
    let address = |word: &str| {
        let word = word.trim_end_matches(['.', ':', ';']);
        let without_port = word.rsplit_once(':').map_or(word, |(address, _)| address);
        let parsed = word.parse().or_else(|_| without_port.parse::<std::net::IpAddr>());
        parsed.ok().map(|address: std::net::IpAddr| address.to_string())
    };
    let mut found: Vec<String> = words.filter_map(address).take(4).collect();
    found.dedup();
    found
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_is_taken_out() {
        for (message, wanted) in [
            ("'labels'", "'labels'"),
            ("CUDA out of memory. Tried to allocate 2.00 GiB", "CUDA out of memory. Tried to allocate # GiB"),
            ("[Errno 2] No such file: '/data/a b'", "[Errno #] No such file: '/ b'"),
            ("loss is -1.5e-3 at 0x7ffeab", "loss is # at #"),
            ("id 123e4567-e89b-12d3-a456-426614174000 gone", "id # gone"),
            ("digest deadbeef01 differs", "digest # differs"),
            ("layer12.weight of s3://b/k/3", "layer#.weight of /"),
            ("4096 vs 2048", "# vs #"),
            ("N/A or and/or", "N/A or and/or"),
        ] {
            assert_eq!(normal(message), wanted);
        }
    }

    #[test]
    fn what_it_happened_to() {
        for (line, wanted) in [
            ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x.json'", Some("/data/x.json")),
            (
                "RuntimeError: checksum mismatch in /scratch/step_18/rank_3.pt",
                Some("/scratch/step_18/rank_3.pt"),
            ),
            ("ValueError: bad token in sample 1234 of 9", Some("sample 1234")),
            ("IndexError: batch=17", Some("batch 17")),
            ("NVRM: Xid (PCI:0000:1b:00): 79, pid=1", Some("gpu 0000:1b:00")),
            ("torch.OutOfMemoryError: CUDA out of memory. GPU 3 has", Some("gpu 3")),
            ("error on cuda:5: no", Some("gpu cuda:5")),
            ("KeyError: 'labels'", None),
            ("resample 3 and a throw 4", None),
        ] {
            assert_eq!(entity(line).as_deref(), wanted, "{line}");
        }
    }

    #[test]
    fn whom_a_line_names() {
        assert_eq!(addresses("Connection closed by peer [10.0.0.7]:3021"), ["10.0.0.7"]);
        assert_eq!(addresses("completion from peer 10.0.0.7<43211> with"), ["10.0.0.7"]);
        assert_eq!(addresses("to 10.0.0.7:80 and fe80::1"), ["10.0.0.7", "fe80::1"]);
        assert!(addresses("version 1.2.3 at step:4 ::").is_empty());
    }

    proptest! {
        #[test]
        fn numbers_paths_and_addresses_do_not_count(
            a in any::<u64>(), b in any::<u64>(), x in any::<f32>(), y in any::<f32>(),
            p in "/[a-z0-9_./]{1,30}", q in "/[a-z0-9_./]{1,30}", address in any::<u32>(), other in any::<u32>(),
        ) {
            prop_assume!(x.is_finite() && y.is_finite());
            let say = |n: u64, f: f32, path: &str, address: u32| {
                let dotted = std::net::Ipv4Addr::from(address);
                normal(&format!("step {n}: loss {f:e} ({f}) of '{path}' at 0x{n:x} from {dotted}:80, layer{n}.w {n},{n}"))
            };
            prop_assert_eq!(say(a, x, &p, address), say(b, y, &q, other));
        }

        #[test]
        fn any_text_is_taken(text in any::<String>()) {
            prop_assert!(fingerprint("root", "E", "f.py:g", &text).len() <= MAX_FINGERPRINT);
            prop_assert!(entity(&text).is_none_or(|e| e.len() <= MAX_ENTITY));
            let _ = addresses(&text);
            let _ = normal(&text);
        }
    }
}
