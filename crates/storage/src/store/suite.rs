//! What every store must do, run on each of them.

use super::local::{Identity, LocalStore};
use super::memory::MemoryStore;
use super::*;
use tally_core::cell::{RowChange, RowExpiry};
use tally_core::id::CellHasher;

fn key(n: u32) -> CellKey {
    CellHasher::new(5).key(&n.to_le_bytes())
}

fn at(offset: u64) -> Checkpoint {
    let position = Position { epoch: 1, log: 0, offset };
    Checkpoint { position, counters: 1, state: offset.to_string().into() }
}

fn plain(value: i64) -> Option<Row> {
    Some(Row::plain(value))
}

#[derive(Default)]
struct Changes {
    from: Option<u64>,
    to: u64,
    replace: bool,
    rows: Vec<(u32, Option<Row>)>,
    names: Vec<(&'static str, bool)>,
    ledger: Vec<(&'static str, Change)>,
}

fn put(value: &str) -> Change {
    Change::Put(value.into())
}

fn add(number: &str) -> Change {
    Change::Merge(number.into())
}

/// The rows of these tests are numbers in decimal: a merge adds, and zero is no row.
fn sum(before: Option<&[u8]>, addend: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let number = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        text.parse::<i64>().map_err(|error| format!("{text:?}: {error}"))
    };
    let sum = before.map_or(Ok(0), number)? + number(addend)?;
    Ok((sum != 0).then(|| sum.to_string().into()))
}

fn commit(store: &dyn Store, changes: Changes) -> Result<(), Error> {
    let mut rows: Collected = changes.rows.into_iter().map(|(n, row)| RowChange { key: key(n), row }).collect();
    rows.sort_by_key(|change| change.key);
    // One chunk per row: chunks are no boundary of anything.
    let mut chunks = rows.into_iter().map(|row| vec![row]);
    let mut names = Names::default();
    for (id, exists) in changes.names {
        if exists { names.created(id.as_bytes()) } else { names.deleted(id.as_bytes()) }
    }
    store.commit(Cut {
        from: changes.from.map(|offset| at(offset).position),
        to: &at(changes.to),
        replace: changes.replace,
        names: &names,
        rows: &mut || Ok(chunks.next()),
        ledger: &mut changes.ledger.into_iter().map(|(key, change)| LedgerRow { key: key.into(), change }),
        merge: sum,
    })
}

fn commit_ledger(store: &dyn Store, from: Option<u64>, to: u64, ledger: Vec<(&'static str, Change)>) {
    commit(store, Changes { from, to, ledger, ..Changes::default() }).unwrap();
}

fn ledger(store: &dyn Store) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    store.ledger_rows(b"", &[0xff], &mut |key, value| visit_text(&mut rows, key, value)).unwrap();
    rows
}

fn visit_text(rows: &mut Vec<(String, String)>, key: &[u8], value: &[u8]) -> ControlFlow<()> {
    rows.push((String::from_utf8(key.into()).unwrap(), String::from_utf8(value.into()).unwrap()));
    ControlFlow::Continue(())
}

fn rows_of<const N: usize>(rows: [(&str, &str); N]) -> Vec<(String, String)> {
    rows.map(|(key, value)| (key.into(), value.into())).into()
}

fn all_rows(store: &dyn Store) -> Vec<(CellKey, i64)> {
    let mut rows = Vec::new();
    store
        .rows(CellKey::NONE, &mut |key, row| {
            rows.push((key, row.value));
            ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

/// Runs a check on an empty store of each kind; the second argument reopens it.
fn on_each_store(check: impl Fn(Box<dyn Store>, &dyn Fn(Box<dyn Store>) -> Box<dyn Store>)) {
    check(Box::new(MemoryStore::default()), &|store| store);
    let dir = tempfile::tempdir().unwrap();
    let open = || Box::new(LocalStore::open(dir.path(), Identity::default(), 1 << 20).unwrap()) as Box<dyn Store>;
    check(open(), &|store| {
        drop(store);
        open()
    });
}

#[test]
fn a_new_store_stands_nowhere_and_knows_nothing() {
    on_each_store(|store, _| {
        assert_eq!(store.checkpoint().unwrap(), None);
        assert_eq!(store.get(key(1)).unwrap(), None);
        assert!(store.names(b"", None, 10).unwrap().is_empty());
    });
}

#[test]
fn a_commit_is_all_there_after_reopening() {
    on_each_store(|store, reopen| {
        let expiring = Row { expiry: Some(RowExpiry { at_ms: 99, id: (*b"b").into() }), ..Row::plain(-7) };
        let rows = vec![(1, plain(10)), (2, Some(expiring.clone()))];
        commit(&*store, Changes { to: 5, rows, names: vec![("a", true), ("b", true)], ..Changes::default() }).unwrap();
        let store = reopen(store);
        assert_eq!(store.checkpoint().unwrap(), Some(at(5)));
        assert_eq!(store.get(key(1)).unwrap(), plain(10));
        assert_eq!(store.get(key(2)).unwrap(), Some(expiring));
        assert_eq!(store.get(key(3)).unwrap(), None);
        assert_eq!(store.names(b"", None, 10).unwrap(), [b"a", b"b"]);
    });
}

#[test]
fn a_later_commit_changes_and_removes() {
    on_each_store(|store, reopen| {
        let rows = (0..100).map(|n| (n, plain(1))).collect();
        commit(&*store, Changes { to: 1, rows, names: vec![("a", true), ("b", true)], ..Changes::default() }).unwrap();
        let rows = vec![(0, None), (1, plain(2))];
        commit(&*store, Changes { from: Some(1), to: 2, rows, names: vec![("a", false)], ..Changes::default() })
            .unwrap();
        let store = reopen(store);
        assert_eq!(store.get(key(0)).unwrap(), None);
        assert_eq!(store.get(key(1)).unwrap(), plain(2));
        assert_eq!(store.get(key(2)).unwrap(), plain(1));
        let rows = all_rows(&*store);
        assert_eq!(rows.len(), 99);
        assert!(rows.is_sorted());
        assert_eq!(store.names(b"", None, 10).unwrap(), [b"b"]);
    });
}

#[test]
fn a_cut_that_does_not_fit_is_refused_and_changes_nothing() {
    on_each_store(|store, _| {
        let cut = |from, to, value| Changes { from, to, rows: vec![(1, plain(value))], ..Changes::default() };
        commit(&*store, cut(None, 1, 1)).unwrap();
        for from in [None, Some(0), Some(2)] {
            assert!(matches!(commit(&*store, cut(from, 3, 2)), Err(Error::Fenced { .. })), "{from:?}");
        }
        assert_eq!(store.get(key(1)).unwrap(), plain(1));
        assert_eq!(store.checkpoint().unwrap(), Some(at(1)));
    });
}

#[test]
fn an_abandoned_cut_leaves_no_trace() {
    on_each_store(|store, reopen| {
        let (rows, names, ledger_rows) = (vec![(1, plain(1))], vec![("a", true)], vec![("k", put("1"))]);
        commit(&*store, Changes { to: 1, rows, names, ledger: ledger_rows, ..Changes::default() }).unwrap();
        for replace in [false, true] {
            let mut chunks = vec![Err(Abandoned), Ok(Some(vec![RowChange { key: key(1), row: plain(2) }]))];
            let mut names = Names::default();
            names.deleted(b"a");
            let to = at(2);
            let rows = &mut || chunks.pop().unwrap();
            let ledger = &mut std::iter::once(LedgerRow { key: b"k".into(), change: Change::Delete });
            let from = Some(at(1).position);
            let result = store.commit(Cut { from, to: &to, replace, names: &names, rows, ledger, merge: sum });
            assert!(matches!(result, Err(Error::Abandoned)));
        }
        let store = reopen(store);
        assert_eq!(store.get(key(1)).unwrap(), plain(1));
        assert_eq!(store.checkpoint().unwrap(), Some(at(1)));
        assert_eq!(store.names(b"", None, 9).unwrap(), [b"a"]);
        assert_eq!(ledger(&*store), rows_of([("k", "1")]));
    });
}

#[test]
fn a_replacing_cut_forgets_everything_else() {
    on_each_store(|store, reopen| {
        let rows = (0..50).map(|n| (n, plain(1))).collect();
        let first = Changes { to: 1, rows, names: vec![("a", true), ("b", true)], ..Changes::default() };
        commit(&*store, first).unwrap();
        let second = Changes {
            from: Some(1),
            to: 2,
            replace: true,
            rows: vec![(7, plain(8))],
            names: vec![("c", true)],
            ..Changes::default()
        };
        commit(&*store, second).unwrap();
        let store = reopen(store);
        assert_eq!(all_rows(&*store), [(key(7), 8)]);
        assert_eq!(store.names(b"", None, 9).unwrap(), [b"c"]);
        assert_eq!(store.checkpoint().unwrap(), Some(at(2)));
        let third = Changes { from: Some(2), to: 3, replace: true, ..Changes::default() };
        commit(&*store, third).unwrap();
        assert!(all_rows(&*store).is_empty());
    });
}

#[test]
fn a_snapshot_stays_as_it_was_whatever_is_committed() {
    on_each_store(|store, _| {
        let rows = (0..50).map(|n| (n, plain(1))).collect();
        commit(&*store, Changes { to: 1, rows, names: vec![("a", true), ("b", true)], ..Changes::default() }).unwrap();
        let first = store.snapshot().unwrap();
        let rows = vec![(0, None), (1, plain(2)), (90, plain(9))];
        commit(&*store, Changes { from: Some(1), to: 2, rows, names: vec![("a", false)], ..Changes::default() })
            .unwrap();
        let second = store.snapshot().unwrap();
        commit(&*store, Changes { from: Some(2), to: 3, replace: true, ..Changes::default() }).unwrap();
        for (snapshot, position, names, values) in [
            (&first, 1, vec!["a", "b"], [plain(1), plain(1), None]),
            (&second, 2, vec!["b"], [None, plain(2), plain(9)]),
        ] {
            assert_eq!(snapshot.checkpoint().unwrap(), Some(at(position)));
            assert_eq!(snapshot.names(b"", None, 9).unwrap(), names.iter().map(|id| id.as_bytes()).collect::<Vec<_>>());
            assert_eq!([0, 1, 90].map(|n| snapshot.get(key(n)).unwrap()), values);
        }
        assert_eq!(second.names(b"", Some(b"b"), 9).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(store.get(key(1)).unwrap(), None);
    });
}

#[test]
fn names_come_in_order_page_by_page_and_by_prefix() {
    on_each_store(|store, _| {
        let names = vec![("", true), ("a", true), ("a:1", true), ("a:2", true), ("b", true)];
        commit(&*store, Changes { to: 1, names, ..Changes::default() }).unwrap();
        let page = |prefix: &str, after: Option<&str>, limit| {
            let names = store.names(prefix.as_bytes(), after.map(str::as_bytes), limit).unwrap();
            names.into_iter().map(|id| String::from_utf8(id).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(page("", None, 2), ["", "a"]);
        assert_eq!(page("", Some("a"), 2), ["a:1", "a:2"]);
        assert_eq!(page("a:", None, 9), ["a:1", "a:2"]);
        assert_eq!(page("a:", Some("a:1"), 9), ["a:2"]);
        assert_eq!(page("a:", Some("0"), 9), ["a:1", "a:2"]);
        assert_eq!(page("c", None, 9), Vec::<String>::new());
    });
}

#[test]
fn rows_can_be_visited_from_the_middle_and_left_early() {
    on_each_store(|store, _| {
        let rows = (0..20).map(|n| (n, plain(i64::from(n)))).collect();
        commit(&*store, Changes { to: 1, rows, ..Changes::default() }).unwrap();
        let middle = all_rows(&*store)[10].0;
        let mut seen = Vec::new();
        store
            .rows(middle, &mut |key, _| {
                seen.push(key);
                if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(seen, all_rows(&*store)[10..13].iter().map(|(key, _)| *key).collect::<Vec<_>>());
    });
}

#[test]
fn ledger_rows_and_the_position_are_one_commit_and_survive_reopening() {
    on_each_store(|store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put("1")), ("b", put("2")), ("c", put("3"))]);
        let (rows, names) = (vec![(1, plain(1))], vec![("n", true)]);
        let changes = vec![("a", Change::Delete), ("c", put("4")), ("d", put("5"))];
        commit(&*store, Changes { from: Some(1), to: 2, rows, names, ledger: changes, ..Changes::default() }).unwrap();
        let store = reopen(store);
        assert_eq!(store.checkpoint().unwrap(), Some(at(2)));
        assert_eq!(ledger(&*store), rows_of([("b", "2"), ("c", "4"), ("d", "5")]));
        assert_eq!(store.ledger_get(b"c").unwrap().unwrap(), b"4");
        assert_eq!(store.ledger_get(b"a").unwrap(), None);
        // Neither kind of row is taken for the other.
        assert_eq!(all_rows(&*store), [(key(1), 1)]);
        assert_eq!(store.names(b"", None, 9).unwrap(), [b"n"]);
    });
}

#[test]
fn a_merge_adds_to_the_row_as_of_before_the_cut_and_deletes_it_at_none() {
    on_each_store(|store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put("1")), ("b", put("2")), ("c", add("0")), ("d", add("7"))]);
        assert_eq!(ledger(&*store), rows_of([("a", "1"), ("b", "2"), ("d", "7")]));
        commit_ledger(&*store, Some(1), 2, vec![("a", add("4")), ("b", add("-2")), ("d", add("-8"))]);
        commit_ledger(&*store, Some(2), 3, vec![("a", add("5")), ("b", add("3"))]);
        let store = reopen(store);
        assert_eq!(ledger(&*store), rows_of([("a", "10"), ("b", "3"), ("d", "-1")]));
    });
}

#[test]
fn a_cut_that_fails_leaves_the_ledger_as_it_was() {
    on_each_store(|store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put("1")), ("b", put("no number"))]);
        let changes = |from, replace| {
            let ledger = vec![("a", add("1")), ("b", add("1")), ("c", put("1"))];
            Changes { from: Some(from), to: 2, replace, rows: vec![(1, plain(1))], ledger, ..Changes::default() }
        };
        assert!(matches!(commit(&*store, changes(7, false)), Err(Error::Fenced { .. })));
        assert!(matches!(commit(&*store, changes(7, true)), Err(Error::Fenced { .. })));
        let Err(Error::Damaged(reason)) = commit(&*store, changes(1, false)) else {
            panic!("a merge that cannot be made fails the cut")
        };
        assert_eq!(reason, r#"the ledger row b: "no number": invalid digit found in string"#);
        let store = reopen(store);
        assert_eq!(store.checkpoint().unwrap(), Some(at(1)));
        assert_eq!(ledger(&*store), rows_of([("a", "1"), ("b", "no number")]));
        assert!(all_rows(&*store).is_empty());
    });
}

#[test]
fn a_replacing_cut_forgets_the_ledger_and_merges_into_nothing() {
    on_each_store(|store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put("1")), ("b", put("2")), ("c", put("3"))]);
        let changes = vec![("a", add("5")), ("b", Change::Delete)];
        commit(&*store, Changes { from: Some(1), to: 2, replace: true, ledger: changes, ..Changes::default() })
            .unwrap();
        let store = reopen(store);
        assert_eq!(ledger(&*store), rows_of([("a", "5")]));
        commit_ledger(&*store, Some(2), 3, vec![("a", add("5"))]);
        assert_eq!(ledger(&*store), rows_of([("a", "10")]));
    });
}

#[test]
fn ledger_ranges_go_forward_and_backward_between_their_bounds() {
    on_each_store(|store, _| {
        // Two cuts, so that a range has to join them.
        commit_ledger(&*store, None, 1, vec![("", put("0")), ("a1", put("1")), ("a3", put("3")), ("b", put("9"))]);
        commit_ledger(&*store, Some(1), 2, vec![("a2", put("2")), ("a3", put("33")), ("b", Change::Delete)]);
        let ranges = [
            ("", "z", vec!["", "a1", "a2", "a3"]),
            ("", "a1", vec![""]),
            ("a1", "a3", vec!["a1", "a2"]),
            ("a2", "b", vec!["a2", "a3"]),
            ("a11", "a22", vec!["a2"]),
            ("b", "z", vec![]),
            ("a2", "a2", vec![]),
            ("a3", "a1", vec![]),
        ];
        for (from, to, mut expected) in ranges {
            let (mut forward, mut backward) = (Vec::new(), Vec::new());
            let (from, to) = (from.as_bytes(), to.as_bytes());
            store.ledger_rows(from, to, &mut |key, value| visit_text(&mut forward, key, value)).unwrap();
            store.ledger_rows_back(from, to, &mut |key, value| visit_text(&mut backward, key, value)).unwrap();
            assert_eq!(forward.iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
            expected.reverse();
            assert_eq!(backward.iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
        }
    });
}

#[test]
fn a_visit_of_the_ledger_can_be_left_early() {
    on_each_store(|store, _| {
        commit_ledger(&*store, None, 1, vec![("a", put("1")), ("b", put("2")), ("c", put("3"))]);
        let first = |back: bool| {
            let mut seen = Vec::new();
            let mut visit = |key: &[u8], value: &[u8]| {
                let _ = visit_text(&mut seen, key, value);
                ControlFlow::Break(())
            };
            let visited = match back {
                true => store.ledger_rows_back(b"", b"z", &mut visit),
                false => store.ledger_rows(b"", b"z", &mut visit),
            };
            visited.unwrap();
            seen
        };
        assert_eq!(first(false), rows_of([("a", "1")]));
        assert_eq!(first(true), rows_of([("c", "3")]));
    });
}

#[test]
fn the_ledger_takes_empty_keys_and_empty_values() {
    on_each_store(|store, reopen| {
        commit_ledger(&*store, None, 1, vec![("", put("")), ("a", put(""))]);
        let store = reopen(store);
        assert_eq!(ledger(&*store), rows_of([("", ""), ("a", "")]));
        assert_eq!(store.ledger_get(b"").unwrap(), Some(vec![]));
        commit_ledger(&*store, Some(1), 2, vec![("", Change::Delete)]);
        assert_eq!(store.ledger_get(b"").unwrap(), None);
        assert_eq!(store.ledger_get(b"a").unwrap(), Some(vec![]));
    });
}

#[test]
fn counters_and_checkpoint_are_as_of_one_commit_although_another_comes_in_between() {
    on_each_store(|store, reopen| {
        let names = vec![("a:1", true), ("a:2", true), ("a:3", true), ("b", true)];
        let rows = vec![(1, plain(10)), (2, plain(20)), (3, plain(30)), (4, plain(40))];
        commit(&*store, Changes { to: 1, rows, names, ..Changes::default() }).unwrap();
        let store = reopen(store);
        let cell_of = |id: &[u8]| match id {
            b"a:1" => Some(key(1)),
            b"a:3" => Some(key(3)),
            b"b" => Some(key(4)),
            _ => None,
        };
        let mut seen = Vec::new();
        let checkpoint = store.counters(b"a:", &cell_of, &mut |row| {
            seen.push(row.value);
            if seen.len() == 1 {
                let changes = Changes { from: Some(1), to: 2, rows: vec![(3, plain(31))], ..Changes::default() };
                commit(&*store, changes).unwrap();
            }
            ControlFlow::Continue(())
        });
        assert_eq!((checkpoint.unwrap(), seen), (Some(at(1)), vec![10, 30]));
        let mut seen = Vec::new();
        let checkpoint = store.counters(b"", &cell_of, &mut |row| {
            seen.push(row.value);
            if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((checkpoint.unwrap(), seen), (Some(at(2)), vec![10, 31]), "and then as of the newest");
    });
}
