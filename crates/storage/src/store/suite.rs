//! What every store must do, written once against the contract on the traits.
//!
//! A check is given a maker of empty stores: each call of what it makes opens that store, again after the first time.
//! [`all`] runs every check; [`tests`](crate::store_suite_tests) turns them into tests.

#![allow(clippy::unwrap_used, reason = "what does not go well fails the check")]

use super::*;
use tally_core::id::CellHasher;
use tally_core::memory::cell::{RowChange, RowExpiry};
use tally_core::record::take_signed;

fn key(n: u32) -> CellKey {
    CellHasher::new(5).key(&n.to_le_bytes())
}

fn at(offset: u64) -> Checkpoint {
    let position = Position { epoch: 1, log: 0, offset };
    Checkpoint { position, counters: 1, state: offset.to_string().into() }
}

fn plain(value: i64) -> Option<CellRow> {
    Some(CellRow::plain(value))
}

#[derive(Default)]
struct DraftCut {
    from: Option<u64>,
    to: u64,
    replace: bool,
    rows: Vec<(u32, Option<CellRow>)>,
    names: Vec<(&'static str, bool)>,
    ledger: Vec<(&'static str, Change)>,
}

fn put(value: &str) -> Change {
    Change::Put(value.into())
}

fn add(number: i64) -> Change {
    Change::Add(vec![number])
}

/// A row of one number.
fn sum(number: i64) -> String {
    let row = ledger::add(None, &[number]).unwrap().unwrap();
    String::from_utf8(row).unwrap()
}

fn put_sum(number: i64) -> Change {
    put(&sum(number))
}

fn commit(store: &dyn Store, changes: DraftCut) -> Result<(), Error> {
    let rows: Collected = changes.rows.into_iter().map(|(n, row)| RowChange { key: key(n), row }).collect();
    // One chunk per row: chunks are no boundary of anything.
    let mut chunks = rows.sorted().map(|row| Collected::from_iter([row]));
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
        ledger: &mut changes.ledger.into_iter().map(|(key, change)| Ok(LedgerRow { key: key.into(), change })),
    })
}

fn commit_ledger(store: &dyn Store, from: Option<u64>, to: u64, ledger: Vec<(&'static str, Change)>) {
    commit(store, DraftCut { from, to, ledger, ..DraftCut::default() }).unwrap();
}

/// A cut that adds to one row.
pub fn small_cut(store: &dyn Store, from: Option<u64>, to: u64, number: i64) -> Result<(), Error> {
    commit(store, DraftCut { from, to, ledger: vec![("sum", add(number))], ..DraftCut::default() })
}

/// What [`small_cut`] has added up.
pub fn small_sum(store: &dyn Store) -> i64 {
    let row = store.ledger_get(b"sum").unwrap().unwrap_or(vec![0]);
    take_signed(&mut row.as_slice()).unwrap()
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

/// Opens one store, again and again.
pub type Opener = Box<dyn Fn() -> Box<dyn Store>>;
/// Makes an empty store.
pub type FreshStore<'a> = &'a dyn Fn() -> Opener;

/// Runs a check on an empty store; the second argument of the check reopens it.
fn on(fresh: FreshStore<'_>, check: impl Fn(Box<dyn Store>, &dyn Fn(Box<dyn Store>) -> Box<dyn Store>)) {
    let open = fresh();
    check(open(), &|store| {
        drop(store);
        open()
    });
}

pub fn a_new_store_stands_nowhere_and_knows_nothing(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
        assert_eq!(store.checkpoint().unwrap(), None);
        assert_eq!(store.get(key(1)).unwrap(), None);
        assert!(store.names(b"", None, 10).unwrap().is_empty());
    });
}

pub fn a_commit_is_all_there_after_reopening(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        let expiring = CellRow { expiry: Some(RowExpiry { at_ms: 99, id: (*b"b").into() }), ..CellRow::plain(-7) };
        let rows = vec![(1, plain(10)), (2, Some(expiring.clone()))];
        commit(&*store, DraftCut { to: 5, rows, names: vec![("a", true), ("b", true)], ..DraftCut::default() })
            .unwrap();
        let store = reopen(store);
        assert_eq!(store.checkpoint().unwrap(), Some(at(5)));
        assert_eq!(store.get(key(1)).unwrap(), plain(10));
        assert_eq!(store.get(key(2)).unwrap(), Some(expiring));
        assert_eq!(store.get(key(3)).unwrap(), None);
        assert_eq!(store.names(b"", None, 10).unwrap(), [b"a", b"b"]);
    });
}

pub fn a_later_commit_changes_and_removes(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        let rows = (0..100).map(|n| (n, plain(1))).collect();
        commit(&*store, DraftCut { to: 1, rows, names: vec![("a", true), ("b", true)], ..DraftCut::default() })
            .unwrap();
        let rows = vec![(0, None), (1, plain(2))];
        commit(&*store, DraftCut { from: Some(1), to: 2, rows, names: vec![("a", false)], ..DraftCut::default() })
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

pub fn a_cut_that_does_not_fit_is_refused_and_changes_nothing(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
        let cut = |from, to, value| DraftCut { from, to, rows: vec![(1, plain(value))], ..DraftCut::default() };
        commit(&*store, cut(None, 1, 1)).unwrap();
        for from in [None, Some(0), Some(2)] {
            assert!(matches!(commit(&*store, cut(from, 3, 2)), Err(Error::Fenced { .. })), "{from:?}");
        }
        assert_eq!(store.get(key(1)).unwrap(), plain(1));
        assert_eq!(store.checkpoint().unwrap(), Some(at(1)));
    });
}

pub fn an_abandoned_cut_leaves_no_trace(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        let (rows, names, ledger_rows) = (vec![(1, plain(1))], vec![("a", true)], vec![("k", put("1"))]);
        commit(&*store, DraftCut { to: 1, rows, names, ledger: ledger_rows, ..DraftCut::default() }).unwrap();
        for replace in [false, true] {
            let mut chunks =
                vec![Err(Abandoned), Ok(Some(Collected::from_iter([RowChange { key: key(1), row: plain(2) }])))];
            let mut names = Names::default();
            names.deleted(b"a");
            let to = at(2);
            let rows = &mut || chunks.pop().unwrap();
            let ledger = &mut std::iter::once(Ok(LedgerRow { key: b"k".into(), change: Change::Delete }));
            let from = Some(at(1).position);
            let result = store.commit(Cut { from, to: &to, replace, names: &names, rows, ledger });
            assert!(matches!(result, Err(Error::Abandoned)));
            // A row that could not be made is as good as none.
            let put = Ok(LedgerRow { key: b"j".into(), change: put("2") });
            let ledger = &mut [put, Err(Error::Retry("unread".into()))].into_iter();
            let result = store.commit(Cut { from, to: &to, replace, names: &names, rows: &mut || Ok(None), ledger });
            assert!(matches!(result, Err(Error::Retry(_))), "{result:?}");
        }
        let store = reopen(store);
        assert_eq!(store.get(key(1)).unwrap(), plain(1));
        assert_eq!(store.checkpoint().unwrap(), Some(at(1)));
        assert_eq!(store.names(b"", None, 9).unwrap(), [b"a"]);
        assert_eq!(ledger(&*store), rows_of([("k", "1")]));
    });
}

pub fn a_replacing_cut_forgets_everything_else(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        let rows = (0..50).map(|n| (n, plain(1))).collect();
        let first = DraftCut { to: 1, rows, names: vec![("a", true), ("b", true)], ..DraftCut::default() };
        commit(&*store, first).unwrap();
        let second = DraftCut {
            from: Some(1),
            to: 2,
            replace: true,
            rows: vec![(7, plain(8))],
            names: vec![("c", true)],
            ..DraftCut::default()
        };
        commit(&*store, second).unwrap();
        let store = reopen(store);
        assert_eq!(all_rows(&*store), [(key(7), 8)]);
        assert_eq!(store.names(b"", None, 9).unwrap(), [b"c"]);
        assert_eq!(store.checkpoint().unwrap(), Some(at(2)));
        let third = DraftCut { from: Some(2), to: 3, replace: true, ..DraftCut::default() };
        commit(&*store, third).unwrap();
        assert!(all_rows(&*store).is_empty());
    });
}

pub fn a_snapshot_stays_as_it_was_whatever_is_committed(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
        let rows = (0..50).map(|n| (n, plain(1))).collect();
        commit(&*store, DraftCut { to: 1, rows, names: vec![("a", true), ("b", true)], ..DraftCut::default() })
            .unwrap();
        let first = store.snapshot().unwrap();
        let rows = vec![(0, None), (1, plain(2)), (90, plain(9))];
        commit(&*store, DraftCut { from: Some(1), to: 2, rows, names: vec![("a", false)], ..DraftCut::default() })
            .unwrap();
        let second = store.snapshot().unwrap();
        commit(&*store, DraftCut { from: Some(2), to: 3, replace: true, ..DraftCut::default() }).unwrap();
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

pub fn names_come_in_order_page_by_page_and_by_prefix(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
        let names = vec![("", true), ("a", true), ("a:1", true), ("a:2", true), ("b", true)];
        commit(&*store, DraftCut { to: 1, names, ..DraftCut::default() }).unwrap();
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

pub fn rows_can_be_visited_from_the_middle_and_left_early(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
        let rows = (0..20).map(|n| (n, plain(i64::from(n)))).collect();
        commit(&*store, DraftCut { to: 1, rows, ..DraftCut::default() }).unwrap();
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

pub fn ledger_rows_and_the_position_are_one_commit_and_survive_reopening(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put("1")), ("b", put("2")), ("c", put("3"))]);
        let (rows, names) = (vec![(1, plain(1))], vec![("n", true)]);
        let changes = vec![("a", Change::Delete), ("c", put("4")), ("d", put("5"))];
        commit(&*store, DraftCut { from: Some(1), to: 2, rows, names, ledger: changes, ..DraftCut::default() })
            .unwrap();
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

pub fn what_is_added_is_added_to_the_row_as_of_before_the_cut_and_zero_is_no_row(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put_sum(1)), ("b", put_sum(2)), ("c", add(0)), ("d", add(7))]);
        assert_eq!(ledger(&*store), rows_of([("a", &sum(1)), ("b", &sum(2)), ("d", &sum(7))]));
        commit_ledger(&*store, Some(1), 2, vec![("a", add(4)), ("b", add(-2)), ("d", add(-8))]);
        commit_ledger(&*store, Some(2), 3, vec![("a", add(5)), ("b", add(3))]);
        let store = reopen(store);
        assert_eq!(ledger(&*store), rows_of([("a", &sum(10)), ("b", &sum(3)), ("d", &sum(-1))]));
    });
}

pub fn a_cut_that_fails_leaves_the_ledger_as_it_was(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put_sum(1)), ("b", put("no number"))]);
        let changes = |from, replace| {
            let ledger = vec![("a", add(1)), ("b", add(1)), ("c", put("1"))];
            DraftCut { from: Some(from), to: 2, replace, rows: vec![(1, plain(1))], ledger, ..DraftCut::default() }
        };
        assert!(matches!(commit(&*store, changes(7, false)), Err(Error::Fenced { .. })));
        assert!(matches!(commit(&*store, changes(7, true)), Err(Error::Fenced { .. })));
        let Err(Error::Damaged(reason)) = commit(&*store, changes(1, false)) else {
            panic!("what cannot be added to fails the cut")
        };
        assert!(reason.starts_with("the ledger row b: "), "{reason}");
        let store = reopen(store);
        assert_eq!(store.checkpoint().unwrap(), Some(at(1)));
        assert_eq!(ledger(&*store), rows_of([("a", &sum(1)), ("b", "no number")]));
        assert!(all_rows(&*store).is_empty());
    });
}

pub fn a_replacing_cut_forgets_the_ledger_and_adds_to_nothing(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        commit_ledger(&*store, None, 1, vec![("a", put_sum(1)), ("b", put_sum(2)), ("c", put_sum(3))]);
        let changes = vec![("a", add(5)), ("b", Change::Delete)];
        commit(&*store, DraftCut { from: Some(1), to: 2, replace: true, ledger: changes, ..DraftCut::default() })
            .unwrap();
        let store = reopen(store);
        assert_eq!(ledger(&*store), rows_of([("a", &sum(5))]));
        commit_ledger(&*store, Some(2), 3, vec![("a", add(5))]);
        assert_eq!(ledger(&*store), rows_of([("a", &sum(10))]));
    });
}

pub fn ledger_ranges_go_forward_and_backward_between_their_bounds(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
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

pub fn a_visit_of_the_ledger_can_be_left_early(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
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

pub fn the_ledger_takes_empty_keys_and_empty_values(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        commit_ledger(&*store, None, 1, vec![("", put("")), ("a", put(""))]);
        let store = reopen(store);
        assert_eq!(ledger(&*store), rows_of([("", ""), ("a", "")]));
        assert_eq!(store.ledger_get(b"").unwrap(), Some(vec![]));
        commit_ledger(&*store, Some(1), 2, vec![("", Change::Delete)]);
        assert_eq!(store.ledger_get(b"").unwrap(), None);
        assert_eq!(store.ledger_get(b"a").unwrap(), Some(vec![]));
    });
}

pub fn many_are_read_in_the_order_of_their_keys_and_what_is_not_there_is_told(fresh: FreshStore<'_>) {
    on(fresh, |store, reopen| {
        let rows = (0..50).map(|n| (n, plain(i64::from(n)))).collect();
        let changes = vec![("a", put("1")), ("b", put("2"))];
        commit(&*store, DraftCut { to: 1, rows, names: vec![("n", true)], ledger: changes, ..DraftCut::default() })
            .unwrap();
        let store = reopen(store);
        let mut bytes = Vec::new();
        CellRow::plain(7).encode(&mut bytes);
        let keys = [
            Key::Ledger(b"b"),
            Key::Cell(key(7)),
            Key::Cell(key(99)),
            Key::Ledger(b"z"),
            Key::Ledger(b"a"),
            Key::Cell(key(7)),
        ];
        let expected = [Some(b"2".to_vec()), Some(bytes.clone()), None, None, Some(b"1".to_vec()), Some(bytes)];
        assert_eq!(store.read(&keys).unwrap(), expected);
        assert_eq!(store.read(&[Key::Name(b"n"), Key::Name(b"m")]).unwrap(), [Some(vec![]), None]);
        assert!(store.read(&[]).unwrap().is_empty());
    });
}

pub fn a_snapshot_of_the_ledger_stays_as_it_was_in_ranges_and_reads(fresh: FreshStore<'_>) {
    on(fresh, |store, _| {
        commit_ledger(&*store, None, 1, vec![("a", put("1")), ("b", put("2"))]);
        let snapshot = store.snapshot().unwrap();
        commit_ledger(&*store, Some(1), 2, vec![("a", Change::Delete), ("b", put("3")), ("c", put("4"))]);
        let (mut forward, mut back) = (Vec::new(), Vec::new());
        snapshot.ledger_rows(b"", b"z", &mut |key, value| visit_text(&mut forward, key, value)).unwrap();
        snapshot.ledger_rows_back(b"", b"z", &mut |key, value| visit_text(&mut back, key, value)).unwrap();
        assert_eq!((forward, back), (rows_of([("a", "1"), ("b", "2")]), rows_of([("b", "2"), ("a", "1")])));
        assert_eq!(snapshot.ledger_get(b"a").unwrap(), Some(b"1".to_vec()));
        assert_eq!(store.ledger_get(b"a").unwrap(), None);
    });
}

macro_rules! checks {
    ($dollar:tt $($name:ident)*) => {
        /// Runs every check.
        pub fn all(fresh: FreshStore<'_>) {
            $($name(fresh);)*
        }

        /// A test per check, for the stores that the expression makes.
        #[macro_export]
        macro_rules! store_suite_tests {
            ($dollar fresh:expr) => {
                $(#[test]
                fn $name() {
                    $dollar crate::store::suite::$name($dollar fresh);
                })*
            };
        }
    };
}

checks! {
    $
    a_new_store_stands_nowhere_and_knows_nothing
    a_commit_is_all_there_after_reopening
    a_later_commit_changes_and_removes
    a_cut_that_does_not_fit_is_refused_and_changes_nothing
    an_abandoned_cut_leaves_no_trace
    a_replacing_cut_forgets_everything_else
    a_snapshot_stays_as_it_was_whatever_is_committed
    names_come_in_order_page_by_page_and_by_prefix
    rows_can_be_visited_from_the_middle_and_left_early
    ledger_rows_and_the_position_are_one_commit_and_survive_reopening
    what_is_added_is_added_to_the_row_as_of_before_the_cut_and_zero_is_no_row
    a_cut_that_fails_leaves_the_ledger_as_it_was
    a_replacing_cut_forgets_the_ledger_and_adds_to_nothing
    ledger_ranges_go_forward_and_backward_between_their_bounds
    a_visit_of_the_ledger_can_be_left_early
    the_ledger_takes_empty_keys_and_empty_values
    many_are_read_in_the_order_of_their_keys_and_what_is_not_there_is_told
    a_snapshot_of_the_ledger_stays_as_it_was_in_ranges_and_reads
}

pub use store_suite_tests as tests;
