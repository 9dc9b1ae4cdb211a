//! What happens to an engine, and a model of what its counters should be then.

use super::super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tally_core::event::Event;
use tally_core::record::{ExpireCondition, Expiry, SetCondition};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) value: i64,
    pub(super) deadline: Option<u64>,
}

/// What the counters should be. What is remembered beside counts is kept under names that begin with a zero.
pub(super) type Model = BTreeMap<Vec<u8>, Value>;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Add(u8, i64),
    Set(u8, i64, SetCondition),
    Delete(u8),
    Expire(u8, u64),
    Persist(u8),
    Get(u8),
    Event(u8, i64),
    /// An event id, and which page it says.
    Claim(u8, u8),
    /// A user, a page, a time, and whether it is liked.
    Like(u8, u8, i64, bool),
    /// A session and a number there.
    View(u8, u64),
    /// A counter, an idempotency key and a delta.
    Once(u8, u8, i64),
    Flush,
}

/// What happens between two submissions.
#[derive(Clone, Debug)]
pub(super) enum Life {
    Submit(Vec<Step>),
    Checkpoint,
    Scan,
    Restart,
    Crash,
}

pub(super) fn id(n: u8) -> Vec<u8> {
    format!("c{n}").into_bytes()
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let far = || (1u64..4).prop_map(|years| 4_000_000_000_000 * years);
    let condition =
        prop_oneof![Just(SetCondition::Always), Just(SetCondition::IfAbsent), Just(SetCondition::IfPresent)];
    prop_oneof![
        10 => (0u8..40, -9i64..9).prop_map(|(n, delta)| Step::Add(n, delta)),
        1 => (0u8..40).prop_map(|n| Step::Add(n, i64::MAX)),
        3 => (0u8..40, any::<i64>(), condition).prop_map(|(n, value, condition)| Step::Set(n, value, condition)),
        3 => (0u8..40).prop_map(Step::Delete),
        2 => (0u8..40, prop_oneof![far(), Just(5)]).prop_map(|(n, at_ms)| Step::Expire(n, at_ms)),
        1 => (0u8..40).prop_map(Step::Persist),
        3 => (0u8..40).prop_map(Step::Get),
        4 => (0u8..20, -3i64..3).prop_map(|(n, delta)| Step::Event(n, delta)),
        8 => (0u8..60, 0u8..2).prop_map(|(id, page)| Step::Claim(id, page)),
        6 => (0u8..8, 0u8..4, 0i64..6, any::<bool>()).prop_map(|(user, page, at, on)| Step::Like(user, page, at, on)),
        5 => (0u8..3, 0u64..30).prop_map(|(session, seq)| Step::View(session, seq)),
        4 => (0u8..10, 0u8..6, 1i64..3).prop_map(|(n, key, delta)| Step::Once(n, key, delta)),
    ]
}

pub(super) fn lives() -> impl Strategy<Value = Vec<Life>> {
    let life = prop_oneof![
        12 => proptest::collection::vec(step(), 1..12).prop_map(Life::Submit),
        1 => Just(Life::Submit(vec![Step::Flush])),
        2 => Just(Life::Checkpoint),
        1 => Just(Life::Scan),
        1 => Just(Life::Restart),
        2 => Just(Life::Crash),
    ];
    proptest::collection::vec(life, 1..40)
}

/// What is remembered of something, and what was.
pub(super) fn remember(model: &mut Model, fact: String, value: i64) -> Option<i64> {
    let fact = format!("\0{fact}").into_bytes();
    model.insert(fact, Value { value, deadline: None }).map(|old| old.value)
}

/// Applies a step to the model and answers what the engine should answer.
pub(super) fn apply(model: &mut Model, step: &Step) -> Vec<Answer> {
    let previous = |model: &Model, n: &u8| model.get(&id(*n)).map(|counter| counter.value);
    let add = |model: &mut Model, id: Vec<u8>, delta: i64| {
        let counter = model.entry(id).or_insert(Value { value: 0, deadline: None });
        match counter.value.checked_add(delta) {
            Some(sum) => {
                counter.value = sum;
                Answer::Value(sum)
            }
            None => Answer::Overflow,
        }
    };
    let count = |model: &mut Model, id: String, delta: i64| {
        let Answer::Value(_) = add(model, id.into_bytes(), delta) else { panic!("there is always room for an entry") };
        Answer::Counted
    };
    vec![match step {
        Step::Claim(claimed, page) => {
            let first = remember(model, format!("claim {claimed}"), i64::from(*page));
            remember(model, format!("claim {claimed}"), first.unwrap_or(i64::from(*page)));
            return match first {
                None => {
                    let paid = count(model, format!("paid:p{page}"), 1);
                    vec![Answer::Yes, paid, count(model, "all".into(), 1)]
                }
                Some(first) if first == i64::from(*page) => vec![Answer::No, Answer::Duplicate, Answer::Duplicate],
                Some(_) => vec![Answer::No, Answer::Conflict, Answer::Conflict],
            };
        }
        Step::Like(user, page, at, on) => {
            let fact = |what| format!("{what} of {user}");
            let last = remember(model, fact("time"), *at);
            if let Some(last) = last.filter(|last| last > at) {
                remember(model, fact("time"), last);
                return vec![Answer::Ignored];
            }
            let liked =
                remember(model, fact("page"), if *on { i64::from(*page) } else { -1 }).filter(|page| *page >= 0);
            match liked {
                None if *on => count(model, format!("likes:p{page}"), 1),
                Some(liked) if !on => count(model, format!("likes:p{liked}"), -1),
                Some(liked) if liked == i64::from(*page) => Answer::Ignored,
                Some(liked) => {
                    count(model, format!("likes:p{liked}"), -1);
                    count(model, format!("likes:p{page}"), 1)
                }
                None => Answer::Ignored,
            }
        }
        Step::View(session, seq) => match remember(model, format!("view {session} {seq}"), 1) {
            None => count(model, "views".into(), 1),
            Some(_) => Answer::Duplicate,
        },
        Step::Once(n, key, delta) => {
            let fact = |what| format!("{what} {key} for {n}");
            match remember(model, fact("delta"), *delta) {
                None => {
                    let answer = add(model, id(*n), *delta);
                    match answer {
                        Answer::Value(value) => _ = remember(model, fact("answer"), value),
                        _ => _ = model.remove(format!("\0{}", fact("delta")).as_bytes()),
                    }
                    answer
                }
                Some(first) if first == *delta => {
                    let answer = remember(model, fact("answer"), 0).unwrap();
                    remember(model, fact("answer"), answer);
                    Answer::Repeated(answer)
                }
                Some(first) => {
                    remember(model, fact("delta"), first);
                    Answer::OtherDelta(first)
                }
            }
        }
        Step::Add(n, delta) => add(model, id(*n), *delta),
        Step::Event(n, delta) => count(model, format!("hits:p{n}"), *delta),
        Step::Get(n) => previous(model, n).map_or(Answer::Absent, Answer::Value),
        Step::Delete(n) => model.remove(&id(*n)).map_or(Answer::Absent, |counter| Answer::Value(counter.value)),
        Step::Set(n, value, condition) => {
            let previous = previous(model, n);
            let applied = match condition {
                SetCondition::Always => true,
                SetCondition::IfAbsent => previous.is_none(),
                SetCondition::IfPresent => previous.is_some(),
            };
            if applied {
                model.insert(id(*n), Value { value: *value, deadline: None });
            }
            Answer::Set { previous, applied }
        }
        // Time 5 has passed long ago.
        Step::Expire(n, 5) => {
            if model.remove(&id(*n)).is_some() {
                Answer::Yes
            } else {
                Answer::No
            }
        }
        Step::Expire(n, at_ms) => match model.get_mut(&id(*n)) {
            Some(counter) => {
                counter.deadline = Some(*at_ms);
                Answer::Yes
            }
            None => Answer::No,
        },
        Step::Persist(n) => match model.get_mut(&id(*n)).and_then(|counter| counter.deadline.take()) {
            Some(_) => Answer::Yes,
            None => Answer::No,
        },
        Step::Flush => {
            // What was seen within a window is not forgotten: it is the log that remembers it.
            model.retain(|name, _| name.starts_with(b"\0view"));
            Answer::Yes
        }
    }]
}

pub(super) fn submission(steps: &[Step], engine: &Engine) -> Submission {
    let mut out = Submission::default();
    let mut stager = tally_core::counter::Stager::new(engine.declarations(), engine.hasher());
    for step in steps {
        let named = |n: &u8| (engine.hasher().key(&id(*n)), id(*n));
        match step {
            Step::Add(n, delta) => out.add(named(n).0, &named(n).1, *delta),
            Step::Set(n, value, condition) => out.set(named(n).0, &named(n).1, *value, *condition, Expiry::Clear),
            Step::Delete(n) => out.delete(named(n).0, &named(n).1),
            Step::Expire(n, at_ms) => out.expire(named(n).0, &named(n).1, *at_ms, ExpireCondition::Always),
            Step::Persist(n) => out.persist(named(n).0, &named(n).1),
            Step::Get(n) => out.get(named(n).0),
            Step::Flush => out.flush(),
            Step::Once(n, key, delta) => {
                let (cell, name) = named(n);
                let hashed = tally_core::fact::answer_key(&engine.hasher(), &name, &[*key]);
                out.add_once(&tally_core::counter::Target::ad_hoc(cell, &name), *delta, hashed, &[*key]);
            }
            Step::Event(..) | Step::Claim(..) | Step::Like(..) | Step::View(..) => {
                let event = event(step);
                let at = out.event(&event);
                stager.stage(&event, at, &mut out, &mut |_, rejection| panic!("{rejection}"));
            }
        }
    }
    out
}

pub(super) fn event(step: &Step) -> Event<'static> {
    let (kind, page) = match step {
        Step::Event(n, _) => ("hit", n),
        Step::Claim(_, page) => ("ad", page),
        Step::Like(_, page, _, true) => ("like", page),
        Step::Like(_, page, _, false) => ("unlike", page),
        _ => ("view", &0),
    };
    let mut event = Event::new(kind, 0);
    event.dimensions.push(("page".into(), format!("p{page}").into()));
    match step {
        Step::Event(_, delta) => event.delta = *delta,
        Step::Claim(id, _) => event.event_id = Some(format!("e{id}").into()),
        Step::Like(user, _, at, _) => {
            event.dimensions.push(("user".into(), user.to_string().into()));
            event.occurred_at_ms = Some(*at);
        }
        Step::View(session, seq) => {
            event.session = Some(session.to_string().into());
            event.seq = Some(*seq);
        }
        _ => unreachable!("the others are no events"),
    }
    event
}
