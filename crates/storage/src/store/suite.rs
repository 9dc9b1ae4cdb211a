//! What every store must do, run on each of them.

use super::local::LocalStore;
use super::memory::MemoryStore;
use super::*;
use tally_core::cell::{RowChange, RowExpiry};
use tally_core::id::CellHasher;

fn key(n: u32) -> CellKey {
    CellHasher::new(5).key(&n.to_le_bytes())
}

fn at(offset: u64) -> Checkpoint {
    let position = Position { epoch: 1, log: 0, offset };
    Checkpoint { position, log_time_ms: offset * 10, counters: 1, config_version: 1, config: "counters: []".into() }
}

fn plain(value: i64) -> Option<Row> {
    Some(Row { value, expiry: None })
}

struct Changes {
    from: Option<u64>,
    to: u64,
    replace: bool,
    rows: Vec<(u32, Option<Row>)>,
    names: Vec<(&'static str, bool)>,
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
    })
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
    let open = || Box::new(LocalStore::open(dir.path(), 1 << 20).unwrap()) as Box<dyn Store>;
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
        let expiring = Row { value: -7, expiry: Some(RowExpiry { at_ms: 99, id: (*b"b").into() }) };
        let rows = vec![(1, plain(10)), (2, Some(expiring.clone()))];
        commit(&*store, Changes { from: None, to: 5, replace: false, rows, names: vec![("a", true), ("b", true)] })
            .unwrap();
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
        commit(&*store, Changes { from: None, to: 1, replace: false, rows, names: vec![("a", true), ("b", true)] })
            .unwrap();
        let rows = vec![(0, None), (1, plain(2))];
        commit(&*store, Changes { from: Some(1), to: 2, replace: false, rows, names: vec![("a", false)] }).unwrap();
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
        let cut = |from, to, value| Changes { from, to, replace: false, rows: vec![(1, plain(value))], names: vec![] };
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
        let first = Changes { from: None, to: 1, replace: false, rows: vec![(1, plain(1))], names: vec![("a", true)] };
        commit(&*store, first).unwrap();
        for replace in [false, true] {
            let mut chunks = vec![Err(Abandoned), Ok(Some(vec![RowChange { key: key(1), row: plain(2) }]))];
            let mut names = Names::default();
            names.deleted(b"a");
            let to = at(2);
            let rows = &mut || chunks.pop().unwrap();
            let result = store.commit(Cut { from: Some(at(1).position), to: &to, replace, names: &names, rows });
            assert!(matches!(result, Err(Error::Abandoned)));
        }
        let store = reopen(store);
        assert_eq!(store.get(key(1)).unwrap(), plain(1));
        assert_eq!(store.checkpoint().unwrap(), Some(at(1)));
        assert_eq!(store.names(b"", None, 9).unwrap(), [b"a"]);
    });
}

#[test]
fn a_replacing_cut_forgets_everything_else() {
    on_each_store(|store, reopen| {
        let rows = (0..50).map(|n| (n, plain(1))).collect();
        let first = Changes { from: None, to: 1, replace: false, rows, names: vec![("a", true), ("b", true)] };
        commit(&*store, first).unwrap();
        let second =
            Changes { from: Some(1), to: 2, replace: true, rows: vec![(7, plain(8))], names: vec![("c", true)] };
        commit(&*store, second).unwrap();
        let store = reopen(store);
        assert_eq!(all_rows(&*store), [(key(7), 8)]);
        assert_eq!(store.names(b"", None, 9).unwrap(), [b"c"]);
        assert_eq!(store.checkpoint().unwrap(), Some(at(2)));
        let third = Changes { from: Some(2), to: 3, replace: true, rows: vec![], names: vec![] };
        commit(&*store, third).unwrap();
        assert!(all_rows(&*store).is_empty());
    });
}

#[test]
fn names_come_in_order_page_by_page_and_by_prefix() {
    on_each_store(|store, _| {
        let names = vec![("", true), ("a", true), ("a:1", true), ("a:2", true), ("b", true)];
        commit(&*store, Changes { from: None, to: 1, replace: false, rows: vec![], names }).unwrap();
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
        commit(&*store, Changes { from: None, to: 1, replace: false, rows, names: vec![] }).unwrap();
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
