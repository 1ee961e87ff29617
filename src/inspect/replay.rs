//! `relight events --replay`: the journal through the rules, once more.

use super::{Said, sentences};
use crate::domain::exit_code;
use crate::domain::ledger::Ledger;
use crate::store::look::RunView;

/// What the ledger says after the last record.
#[must_use]
pub fn render(view: &RunView) -> Said {
    let ledger = match Ledger::replay(&view.records) {
        Ok(ledger) => ledger,
        Err(e) => return Said { text: format!("{e}\n"), code: exit_code::FAILED },
    };
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".into());
    let names = |nodes: Vec<&str>| if nodes.is_empty() { "none".into() } else { nodes.join(", ") };
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<14}{value}\n"));
    line("records", &ledger.next().to_string());
    line("term", &or_none(ledger.term().map(|t| t.to_string())));
    line("leader", &or_none(ledger.leader().map(|(lead, _)| lead.node.to_string())));
    line("attempt", &or_none(ledger.attempt().map(|a| a.to_string())));
    let world = ledger.world().map(|w| {
        let members = w.members.iter().map(|m| format!("slot {} {} x {}", m.slot, m.node, m.nproc));
        members.collect::<Vec<_>>().join(", ")
    });
    line("world", &or_none(world));
    line("voters", &names(ledger.voters().iter().map(|n| n.as_str()).collect()));
    line("restarts", &format!("{} charged in this launch", ledger.charged()));
    line("next incident", &ledger.next_incident().to_string());
    line("end", &or_none(ledger.end().map(sentences::end)));
    if let Some(seq) = ledger.foreign() {
        line("newer", &format!("record {seq} is of a newer relight: may be followed, not led from"));
    }
    if let Some(damage) = &view.damage {
        line("damage", damage);
        return Said { text, code: exit_code::FAILED };
    }
    Said { text, code: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::{crashed, view};

    #[test]
    fn the_ledger_after_the_last_record() {
        let said = render(&view(crashed()));
        assert_eq!(said.code, 0);
        insta::assert_snapshot!(said.text, @r"
        records       6
        term          0
        leader        n01
        attempt       1
        world         slot 0 n01 x 4, slot 1 n02 x 4
        voters        n01, n02
        restarts      1 charged in this launch
        next incident 2
        end           failed, exit code 1: 1 of 1 restarts used
        ");
    }

    #[test]
    fn a_journal_with_a_hole_is_a_failure() {
        let mut records = crashed();
        records.remove(2);
        assert_eq!(render(&view(records)).code, 1);
    }
}
