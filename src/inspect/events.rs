//! `relight events`: everything that was written down, in order, one line each.

use serde_json::Value;

use super::{Clock, Said, harmless, notes, sentences};
use crate::store::look::RunView;
use crate::store::status::EventLine;

/// Records and events by time; records stay in the order of their numbers.
#[must_use]
pub fn render(view: &RunView, json: bool, clock: &Clock) -> Said {
    let mut text = String::new();
    if view.events_left_out > 0 {
        let bytes = view.events_left_out;
        if json {
            text.push_str(&serde_json::json!({ "events_left_out_bytes": bytes }).to_string());
        } else {
            text.push_str(&format!(
                "the oldest events are left out, {bytes} bytes of {}",
                view.dir.display()
            ));
        }
        text.push('\n');
    }
    let mut events = in_order(view).into_iter().peekable();
    for record in &view.records {
        while let Some((_, line)) = events.next_if(|(at, _)| *at < record.wall_ms) {
            push_event(&mut text, line, json, clock);
        }
        if json {
            text.push_str(&serde_json::to_string(record).unwrap_or_default());
        } else {
            let (at, what) = (clock.stamp(record.wall_ms), sentences::record(record));
            text.push_str(&format!("{at} #{} {what}", record.seq));
        }
        text.push('\n');
    }
    for (_, line) in events {
        push_event(&mut text, line, json, clock);
    }
    let mut code = 0;
    if let Some(damage) = &view.damage {
        code = 1;
        if json {
            text.push_str(&serde_json::json!({ "damage": damage }).to_string());
        } else {
            text.push_str(&format!("the journal is damaged: {damage}"));
        }
        text.push('\n');
    }
    Said { text, code }
}

/// The lines of all writers by time; what has none stays behind the line before it.
fn in_order(view: &RunView) -> Vec<(u64, &String)> {
    let mut lines = Vec::new();
    for source in [&view.events, &view.agents] {
        let mut last = 0;
        for line in source.iter().filter(|l| !l.trim().is_empty()) {
            last = wall_ms(line).unwrap_or(last);
            lines.push((last, line));
        }
    }
    lines.sort_by_key(|(at, _)| *at);
    lines
}

fn wall_ms(line: &str) -> Option<u64> {
    let value: Value = serde_json::from_str(line).ok()?;
    value.get("wall_ms")?.as_u64()
}

fn push_event(text: &mut String, line: &str, json: bool, clock: &Clock) {
    if json {
        text.push_str(line);
    } else {
        text.push_str(&event(line, clock));
    }
    text.push('\n');
}

/// An event in one line: `time node sentence`; one of a newer program is shown as it is, `time node name key=value …`.
fn event(line: &str, clock: &Clock) -> String {
    if let Ok(known) = serde_json::from_str::<EventLine>(line) {
        let said = format!("{} {} {}", clock.stamp(known.wall_ms), known.node, notes::sentence(&known.note));
        return harmless(&said).replace('\n', "\\n");
    }
    let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(line) else {
        // The last line of a run that lost power may be torn.
        return format!("? {}", harmless(line));
    };
    let at = fields.remove("wall_ms").and_then(|v| v.as_u64());
    let mut out = at.map_or_else(|| "?".into(), |ms| clock.stamp(ms));
    if let Some(Value::String(node)) = fields.remove("node") {
        out.push_str(&format!(" {node}"));
    }
    match fields.remove("note") {
        Some(Value::Object(note)) if note.len() == 1 => {
            for (name, body) in note {
                out.push_str(&format!(" {name}"));
                flat(&mut out, "", &body);
            }
        }
        Some(Value::String(name)) => out.push_str(&format!(" {name}")),
        Some(other) => flat(&mut out, "note", &other),
        None => {}
    }
    for (key, value) in &fields {
        flat(&mut out, key, value);
    }
    harmless(&out).replace('\n', "\\n")
}

fn flat(out: &mut String, key: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (inner, value) in fields {
                let key = if key.is_empty() { inner.clone() } else { format!("{key}.{inner}") };
                flat(out, &key, value);
            }
        }
        Value::String(text) if !text.is_empty() && !text.contains(char::is_whitespace) => {
            out.push_str(&format!(" {key}={text}"));
        }
        other => out.push_str(&format!(" {key}={other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::{crashed, view};

    #[test]
    fn a_run_in_lines() {
        let mut view = view(crashed());
        view.events = [
            r#"{"wall_ms":1700000003500,"node":"n01","note":{"attempt_running":{"attempt":0,"ranks":8,"nodes":2,"down":null,"spares":0}}}"#,
            r#"{"wall_ms":1700000004000,"node":"n01","note":{"stale":{"what":"of term 0"}},"n":[1,2]}"#,
            r#"{"wall_ms":17000"#,
            "",
        ]
        .map(str::to_owned)
        .to_vec();
        view.agents =
            vec![r#"{"wall_ms":1700000062000,"node":"n02","note":{"said":{"text":"ending job 7"}}}"#.into()];
        let said = render(&view, false, &Clock::utc());
        assert_eq!(said.code, 0);
        insta::assert_snapshot!(said.text, @r#"
        2023-11-14 22:13:20.000 #0 n01 leads term 0: a launch
        2023-11-14 22:13:22.000 #1 attempt 0: 2 nodes, 8 ranks
        2023-11-14 22:13:23.500 n01 attempt 0 runs: 8 ranks, 2 nodes
        2023-11-14 22:13:24.000 n01 stale what="of term 0" n=[1,2]
        ? {"wall_ms":17000
        2023-11-14 22:14:02.100 #2 attempt 1: 2 nodes, 8 ranks after incident 0: rank 5 (n02) failed: ValueError: boom (exit code 1); restart on the same nodes
        2023-11-14 22:14:06.000 #3 incident 0 settled: rank 5 (n02) failed: ValueError: boom (exit code 1); 7 victims because of it; stopped in 0.3 s, running again after 0.9 s
        2023-11-14 22:14:20.500 #4 incident 1 settled: rank 2 (n01) died: SIGKILL; stopped in 0.1 s
        2023-11-14 22:14:21.000 #5 failed, exit code 1: 1 of 1 restarts used
        2023-11-14 22:14:22.000 n02 ending job 7
        "#);
        let json = render(&view, true, &Clock::utc()).text;
        assert_eq!(json.lines().count(), said.text.lines().count());
        for line in json.lines().filter(|l| !l.ends_with("17000")) {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }

    #[test]
    fn damage_is_said_and_is_a_failure() {
        let mut view = view(vec![]);
        view.damage = Some("record 3 is missing, and record 4 is there".into());
        let said = render(&view, false, &Clock::utc());
        assert_eq!(said.code, 1);
        insta::assert_snapshot!(said.text, @"the journal is damaged: record 3 is missing, and record 4 is there");
    }
}
