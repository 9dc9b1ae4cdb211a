//! What every view must do, written once against the contract on the trait.
//!
//! A check is given a maker of empty views. [`all`] runs every check; [`tests`](crate::view_suite_tests) turns them into tests.

use super::{BucketPart, Shown, Update, Updated, View, ViewError, ViewRow, ViewValue};
use tally_core::limits::VIEW_ROWS_MAX;
use tally_core::position::Position;

/// Makes an empty view.
pub type FreshView<'a> = &'a dyn Fn() -> Box<dyn View>;

pub fn at(offset: u64) -> Position {
    Position { epoch: 1, log: 0, offset }
}

pub fn row(id: &str, value: i64) -> ViewRow {
    ViewRow { id: id.into(), value: Some(ViewValue { value, generation: 0 }) }
}

fn gone(id: &str) -> ViewRow {
    ViewRow { id: id.into(), value: None }
}

/// Sends a bucket in one part.
pub fn send_whole(view: &dyn View, bucket: u32, to: u64, rows: &[ViewRow]) -> Result<(), ViewError> {
    view.send(BucketPart { bucket, sending: to, is_first: true, last: Some(at(to)), rows })
}

pub fn update(view: &dyn View, bucket: u32, from: u64, to: u64, rows: &[ViewRow]) -> Result<Updated, ViewError> {
    view.update(Update { bucket, from: at(from), to: at(to), rows })
}

fn read(view: &dyn View, bucket: u32, id: &str) -> (Option<u64>, Option<i64>) {
    let Shown { position, value } = view.read(&[(bucket, id.as_bytes())]).expect("it can be read").remove(0);
    (position.map(|position| position.offset), value.map(|value| value.value))
}

pub fn a_bucket_that_was_never_there_stands_nowhere_and_takes_no_update(fresh: FreshView<'_>) {
    let view = fresh();
    assert_eq!(view.positions(&[1, 2]), Ok(vec![None, None]));
    assert_eq!(read(&*view, 1, "a"), (None, None));
    assert_eq!(update(&*view, 1, 0, 5, &[row("a", 1)]), Err(ViewError::Lost { bucket: 1 }));
    assert_eq!(view.positions(&[1]), Ok(vec![None]));
}

pub fn rows_and_their_position_are_read_as_they_were_written(fresh: FreshView<'_>) {
    let view = fresh();
    send_whole(&*view, 1, 10, &[row("a", 1), row("b", 2)]).expect("a bucket");
    let corrected = ViewRow { id: b"c".to_vec(), value: Some(ViewValue { value: -3, generation: 7 }) };
    assert_eq!(update(&*view, 1, 10, 20, &[gone("a"), row("b", i64::MIN), corrected.clone()]), Ok(Updated::Written));
    let shown = view.read(&[(1, b"a"), (1, b"b"), (1, b"c"), (2, b"a")]).expect("it can be read");
    assert!(shown[..3].iter().all(|shown| shown.position == Some(at(20))));
    assert_eq!((shown[0].value, shown[1].value.map(|value| value.value)), (None, Some(i64::MIN)));
    assert_eq!((shown[2].value, &shown[3]), (corrected.value, &Shown { position: None, value: None }));
    assert_eq!(view.positions(&[2, 1]), Ok(vec![None, Some(at(20))]));
}

pub fn an_update_is_taken_once_and_one_that_is_behind_is_seen(fresh: FreshView<'_>) {
    let view = fresh();
    send_whole(&*view, 1, 10, &[]).expect("a bucket");
    assert_eq!(update(&*view, 1, 10, 20, &[row("a", 2)]), Ok(Updated::Written));
    assert_eq!(update(&*view, 1, 10, 20, &[row("a", 2)]), Ok(Updated::Seen));
    assert_eq!(update(&*view, 1, 5, 15, &[row("a", 1)]), Ok(Updated::Seen), "from one who was owner before");
    assert_eq!(read(&*view, 1, "a"), (Some(20), Some(2)));
    assert_eq!(update(&*view, 1, 15, 30, &[row("a", 3)]), Ok(Updated::Written), "it begins before, and goes on behind");
    assert_eq!(read(&*view, 1, "a"), (Some(30), Some(3)));
}

pub fn a_gap_is_told_with_where_the_bucket_stands_and_changes_nothing(fresh: FreshView<'_>) {
    let view = fresh();
    send_whole(&*view, 1, 10, &[row("a", 1)]).expect("a bucket");
    let gap = update(&*view, 1, 11, 20, &[row("a", 2)]);
    assert!(matches!(gap, Err(ViewError::Behind { bucket: 1, found }) if found.offset == 10), "{gap:?}");
    assert_eq!(read(&*view, 1, "a"), (Some(10), Some(1)));
}

pub fn a_call_is_checked_before_anything_of_it_is_written(fresh: FreshView<'_>) {
    let view = fresh();
    let many: Vec<ViewRow> = (0..=VIEW_ROWS_MAX).map(|n| row(&format!("k{n:06}"), 1)).collect();
    let refused =
        |result: Result<Updated, ViewError>| assert!(matches!(result, Err(ViewError::Refused(_))), "{result:?}");
    send_whole(&*view, 1, 10, &many[..VIEW_ROWS_MAX]).expect("as many as a call takes");
    refused(update(&*view, 1, 10, 20, &many));
    refused(update(&*view, 1, 10, 20, &[row("b", 1), row("a", 1)]));
    refused(update(&*view, 1, 10, 20, &[row("a", 1), row("a", 2)]));
    refused(update(&*view, 1, 10, 10, &[row("a", 1)]));
    let sent = send_whole(&*view, 1, 20, &many);
    assert!(matches!(sent, Err(ViewError::Refused(_))), "{sent:?}");
    assert_eq!((read(&*view, 1, "a"), read(&*view, 1, "k000000")), ((Some(10), None), (Some(10), Some(1))));
    let ids: Vec<(u32, &[u8])> = many.iter().map(|row| (1, row.id.as_slice())).collect();
    assert!(matches!(view.read(&ids), Err(ViewError::Refused(_))));
    assert_eq!(view.read(&ids[..VIEW_ROWS_MAX]).map(|shown| shown.len()), Ok(VIEW_ROWS_MAX));
}

pub fn a_bucket_that_is_sent_in_parts_stands_nowhere_until_the_last(fresh: FreshView<'_>) {
    let view = fresh();
    send_whole(&*view, 1, 10, &[row("a", 1), row("z", 1)]).expect("a bucket");
    let part = |is_first, last: Option<u64>, rows: &[ViewRow]| {
        view.send(BucketPart { bucket: 1, sending: 77, is_first, last: last.map(at), rows })
    };
    part(true, None, &[row("a", 2)]).expect("the first part");
    assert_eq!(read(&*view, 1, "a"), (None, None));
    assert_eq!(update(&*view, 1, 10, 20, &[row("a", 9)]), Err(ViewError::Lost { bucket: 1 }));
    part(false, Some(20), &[row("b", 3)]).expect("the last part");
    assert_eq!((read(&*view, 1, "a"), read(&*view, 1, "b")), ((Some(20), Some(2)), (Some(20), Some(3))));
    assert_eq!(read(&*view, 1, "z"), (Some(20), None), "nothing is left of before");
    part(true, None, &[row("a", 2)]).expect("once more");
    part(false, Some(20), &[row("b", 3)]).expect("once more");
    assert_eq!((read(&*view, 1, "a"), read(&*view, 1, "b")), ((Some(20), Some(2)), (Some(20), Some(3))));
}

pub fn parts_of_two_sendings_never_mix(fresh: FreshView<'_>) {
    let view = fresh();
    let part = |sending, is_first, last: Option<u64>, rows: &[ViewRow]| {
        view.send(BucketPart { bucket: 1, sending, is_first, last: last.map(at), rows })
    };
    part(1, true, None, &[row("a", 1)]).expect("one sender");
    part(2, true, None, &[row("b", 2)]).expect("another sender");
    assert_eq!(part(1, false, Some(10), &[row("c", 1)]), Err(ViewError::Fenced { bucket: 1 }));
    part(2, false, Some(20), &[row("d", 2)]).expect("the last part");
    assert_eq!(
        (read(&*view, 1, "a"), read(&*view, 1, "c"), read(&*view, 1, "d")),
        ((Some(20), None), (Some(20), None), (Some(20), Some(2)))
    );
    assert_eq!(view.positions(&[2]), Ok(vec![None]), "other buckets know nothing of it");
}

macro_rules! checks {
    ($dollar:tt $($name:ident)*) => {
        /// Runs every check.
        pub fn all(fresh: FreshView<'_>) {
            $($name(fresh);)*
        }

        /// A test per check, for the views that the expression makes.
        #[macro_export]
        macro_rules! view_suite_tests {
            ($dollar fresh:expr) => {
                $(#[test]
                fn $name() {
                    $dollar crate::view::suite::$name($dollar fresh);
                })*
            };
        }
    };
}

checks! {
    $
    a_bucket_that_was_never_there_stands_nowhere_and_takes_no_update
    rows_and_their_position_are_read_as_they_were_written
    an_update_is_taken_once_and_one_that_is_behind_is_seen
    a_gap_is_told_with_where_the_bucket_stands_and_changes_nothing
    a_call_is_checked_before_anything_of_it_is_written
    a_bucket_that_is_sent_in_parts_stands_nowhere_until_the_last
    parts_of_two_sendings_never_mix
}

pub use view_suite_tests as tests;
