use proptest::prelude::*;

use super::*;

fn names(text: &str) -> Result<String, HostlistError> {
    expand(text).map(|nodes| nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" "))
}

#[test]
fn lists_are_read_as_slurm_reads_them() {
    let table = [
        ("", ""),
        ("alpha,beta,gamma", "alpha beta gamma"),
        ("node[1,3,5-7]", "node1 node3 node5 node6 node7"),
        ("node[08-11]", "node08 node09 node10 node11"),
        ("node[8-11]", "node8 node9 node10 node11"),
        ("node[9-011]", "node9 node10 node11"),
        ("node[007-9]", "node007 node008 node009"),
        ("node[00-2]", "node00 node01 node02"),
        ("n0[1-3]", "n01 n02 n03"),
        ("r[1-2]n[01-02],login1", "r1n01 r1n02 r2n01 r2n02 login1"),
        ("r[1-2]c[0-1]n[0-1]", "r1c0n0 r1c0n1 r2c0n0 r2c0n1 r1c1n0 r1c1n1 r2c1n0 r2c1n1"),
        ("n[000-002][0-1]", "n0000 n0001 n0010 n0011 n0020 n0021"),
        ("[1-3]", "1 2 3"),
        ("jean-zay-ia[810-811,815]", "jean-zay-ia810 jean-zay-ia811 jean-zay-ia815"),
        ("ip-10-1-7-[12,40]", "ip-10-1-7-12 ip-10-1-7-40"),
        ("a-st-p5-[1-2],a-dy-p5-1", "a-st-p5-1 a-st-p5-2 a-dy-p5-1"),
        ("10.0.0.[1-3]", "10.0.0.1 10.0.0.2 10.0.0.3"),
        ("node[1-3,2]", "node1 node2 node3 node2"),
        ("node1,node1", "node1 node1"),
        ("n[1-2]-ib", "n1-ib n2-ib"),
        ("a b\tc\nd", "a b c d"),
        (",a,,b,", "a b"),
    ];
    for (list, expected) in table {
        assert_eq!(names(list).as_deref(), Ok(expected), "{list}");
    }
}

#[test]
fn what_is_doubtful_is_an_error_with_its_place() {
    use HostlistError as E;
    let table = [
        ("node[1-3", E::Unclosed { at: 4 }),
        ("a[1[2]]", E::Unclosed { at: 1 }),
        ("node1-3]", E::Unopened { at: 7 }),
        ("node[]", E::NotANumber { at: 5 }),
        ("node[3-1]", E::Backwards { at: 5 }),
        ("n[1,,3]", E::NotANumber { at: 4 }),
        ("n[-3]", E::NotANumber { at: 2 }),
        ("n[1-]", E::NotANumber { at: 4 }),
        ("n[1 - 3]", E::NotANumber { at: 2 }),
        ("x,node[a-c]", E::NotANumber { at: 7 }),
        ("node[1x2]", E::NotANumber { at: 5 }),
        ("n[1234567890123456789]", E::NotANumber { at: 2 }),
        ("host1*2", E::Character { at: 5 }),
        ("feature{x}", E::Character { at: 7 }),
        ("a,größe", E::Character { at: 4 }),
        ("tux[1-65537]", E::TooMany { at: 0, limit: MOST }),
        ("a,t[0-9][0-9][0-999999999999999999]", E::TooMany { at: 2, limit: MOST }),
    ];
    for (list, expected) in table {
        assert_eq!(names(list), Err(expected), "{list}");
    }
    let long = format!("{}[1-60000]", "x".repeat(LONGEST));
    assert_eq!(names(&long), Err(E::NameTooLong { at: 0 }));
    assert_eq!(names(&"n[1]".repeat(17)), Err(E::NameTooLong { at: 0 }));
    assert_eq!(expand_within("a[1-3]", 2), Err(E::TooMany { at: 0, limit: 2 }));
}

#[test]
fn lists_are_written_as_slurm_writes_them() {
    let table: [(&[&str], &str); 9] = [
        (&[], ""),
        (&["n1"], "n1"),
        (&["n8", "n9", "n10"], "n[8-10]"),
        (&["n10", "n9", "n8"], "n[10,9,8]"),
        (&["n1", "n01", "n001"], "n[1,01,001]"),
        (&["n08", "n09", "n10", "n12"], "n[08-10,12]"),
        (&["a1b", "a2b"], "a1b,a2b"),
        (&["n1", "n2", "m", "n3"], "n[1-2],m,n3"),
        (&["n1", "n1"], "n[1,1]"),
    ];
    for (nodes, expected) in table {
        let nodes: Vec<NodeName> = nodes.iter().map(|name| NodeName::new(*name)).collect();
        assert_eq!(compress(&nodes), expected);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        nodes in prop::collection::vec("[a-z.-]{0,3}[0-9]{0,3}(x[0-9]{1,2})?|n(0|9|10|99|100|098|101)|n[0-9]{17,22}", 0..40),
    ) {
        let nodes: Vec<NodeName> = nodes.into_iter().filter(|n| !n.is_empty()).map(NodeName::from).collect();
        prop_assert_eq!(expand(&compress(&nodes)), Ok(nodes));
    }

    #[test]
    fn ranges_are_read_back(start in 0_u64..2000, count in 1_u64..300, width in 1_usize..6) {
        let nodes: Vec<NodeName> =
            (start..start + count).map(|no| NodeName::new(format!("n{no:0width$}"))).collect();
        let written = compress(&nodes);
        prop_assert!(written.len() < 20, "{}", written);
        prop_assert_eq!(expand(&written), Ok(nodes));
    }

    #[test]
    fn any_text_has_an_answer(text in "[a-z0-9\\[\\],\\- é*]{0,40}", limit in 0_usize..50) {
        if let Ok(nodes) = expand_within(&text, limit) {
            prop_assert!(nodes.len() <= limit);
            prop_assert_eq!(expand(&compress(&nodes)), Ok(nodes));
        }
    }
}
