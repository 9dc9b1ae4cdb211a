//! Wall clocks that step, leap and fall back, and the time that a node makes of them.

use super::*;

const NOON_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const MINUTE_MS: u64 = 60_000;

fn started(log_ms: u64, wall_ms: u64) -> (Clock, Arc<Hands>) {
    let (clock, hands) = Clock::settable(wall_ms);
    clock.go_on_from(log_ms, false).unwrap();
    (clock, hands)
}

/// Lets time pass as a node does, with a look at the wall clock every 50 ms.
fn pass(clock: &Clock, hands: &Hands, ms: u64) {
    for _ in 0..ms / 50 {
        hands.pass(50);
        let before_ms = clock.now_ms();
        clock.steer();
        assert!(clock.now_ms() >= before_ms, "time never runs backwards");
    }
}

#[test]
fn a_clock_that_is_right_is_followed() {
    let (clock, hands) = started(NOON_MS - MINUTE_MS, NOON_MS);
    assert_eq!(clock.now_ms(), NOON_MS);
    pass(&clock, &hands, 3_000);
    assert_eq!(clock.now_ms(), hands.wall_ms());
    hands.set_wall(hands.wall_ms() + CLOCK_STEP_MS_MAX);
    assert_eq!(clock.steer(), Standing { ahead_ms: 0, follows_in_ms: None });
    assert_eq!(clock.now_ms(), hands.wall_ms());
}

#[test]
fn a_clock_that_is_behind_slows_time_down_until_they_meet() {
    let (clock, hands) = started(NOON_MS, NOON_MS);
    hands.set_wall(NOON_MS - 3_000);
    assert_eq!(clock.steer().ahead_ms, -3_000);
    pass(&clock, &hands, 1_600);
    assert_eq!(clock.now_ms(), NOON_MS + 1_500, "it passes, a little slower");
    pass(&clock, &hands, MINUTE_MS);
    assert_eq!(clock.now_ms(), hands.wall_ms());
    pass(&clock, &hands, 1_000);
    assert_eq!(clock.now_ms(), hands.wall_ms());
}

#[test]
fn a_leap_ahead_is_followed_once_it_has_stayed_for_a_minute() {
    let (clock, hands) = started(NOON_MS, NOON_MS);
    hands.set_wall(NOON_MS + DAY_MS);
    let standing = clock.steer();
    assert_eq!(standing, Standing { ahead_ms: DAY_MS as i64, follows_in_ms: Some(CLOCK_SETTLE_MS) });
    assert!(standing.trouble().unwrap().contains("leapt ahead of the time of the log by 1d"), "{standing:?}");
    pass(&clock, &hands, MINUTE_MS - 50);
    assert_eq!(clock.now_ms(), NOON_MS + MINUTE_MS - 50);
    pass(&clock, &hands, 50);
    assert_eq!(clock.now_ms(), NOON_MS + DAY_MS + MINUTE_MS);
    assert_eq!(clock.steer().trouble(), None);
}

#[test]
fn a_leap_that_is_taken_back_leaves_no_trace() {
    let (clock, hands) = started(NOON_MS, NOON_MS);
    for leap_ms in [DAY_MS, 3 * DAY_MS, 365 * DAY_MS] {
        hands.set_wall(hands.wall_ms() + leap_ms);
        pass(&clock, &hands, MINUTE_MS - 5_000);
        hands.set_wall(hands.wall_ms() - leap_ms);
        pass(&clock, &hands, 5_000);
        assert_eq!(clock.now_ms(), hands.wall_ms());
        assert!(!clock.is_held());
    }
}

#[test]
fn a_leap_that_leaps_again_has_to_stay_anew() {
    let (clock, hands) = started(NOON_MS, NOON_MS);
    hands.set_wall(NOON_MS + DAY_MS);
    pass(&clock, &hands, MINUTE_MS - 5_000);
    hands.set_wall(hands.wall_ms() + DAY_MS);
    pass(&clock, &hands, MINUTE_MS - 5_000);
    assert_eq!(clock.now_ms(), NOON_MS + 2 * (MINUTE_MS - 5_000));
    pass(&clock, &hands, 5_050);
    assert_eq!(clock.now_ms(), hands.wall_ms());
}

#[test]
fn a_leap_of_more_than_a_month_is_not_followed() {
    let (clock, hands) = started(NOON_MS, NOON_MS);
    hands.set_wall(NOON_MS + 365 * DAY_MS);
    pass(&clock, &hands, 2 * MINUTE_MS);
    assert_eq!(clock.now_ms(), NOON_MS + 2 * MINUTE_MS);
    assert!(clock.steer().trouble().unwrap().contains("--accept-clock"));
}

#[test]
fn what_has_a_time_to_live_lives_so_long_across_a_leap() {
    let (clock, hands) = started(NOON_MS, NOON_MS + 2 * DAY_MS);
    assert!(clock.is_held(), "a start after two days is a leap like any other");
    let ttls_ms = [-1, 0, 10_000, MINUTE_MS as i64, MINUTE_MS as i64 + 1, 3_600_000, 30 * DAY_MS as i64];
    let deadlines_ms = ttls_ms.map(|ttl_ms| clock.deadline_ms(ttl_ms).unwrap() as u64);
    let left_ms = || deadlines_ms.map(|deadline_ms| clock.left_ms(deadline_ms));
    assert_eq!(left_ms(), ttls_ms.map(|ttl_ms| ttl_ms.max(0) as u64));
    let mut passed_ms = 0;
    for step_ms in [5_000, 10_000, 44_950, 50, 5_000, 3_600_000] {
        pass(&clock, &hands, step_ms);
        passed_ms += step_ms as i64;
        assert_eq!(left_ms(), ttls_ms.map(|ttl_ms| (ttl_ms - passed_ms).max(0) as u64), "after {passed_ms} ms");
    }
    assert_eq!(clock.deadline_ms(i64::MAX), None);
}

#[test]
fn a_start_refuses_what_can_hardly_be_true() {
    let start = |log_ms: u64, accepted| Clock::settable(NOON_MS).0.go_on_from(log_ms, accepted);
    for fine in [0, NOON_MS, NOON_MS + CLOCK_STEP_MS_MAX, NOON_MS - 3 * DAY_MS, NOON_MS - 31 * DAY_MS] {
        assert_eq!(start(fine, false), Ok(()));
    }
    let behind = start(NOON_MS + DAY_MS, false).unwrap_err();
    assert_eq!(
        behind.to_string(),
        "the clock of this machine is 1d behind the last write: it says 2027-01-15T08:00:00Z, and the log ends at \
         2027-01-16T08:00:00Z"
    );
    let ahead = start(NOON_MS - 32 * DAY_MS, false).unwrap_err().to_string();
    assert!(ahead.starts_with("the clock of this machine is 32d ahead of the last write"), "{ahead}");
    for accepted in [NOON_MS + DAY_MS, NOON_MS - 32 * DAY_MS] {
        assert_eq!(start(accepted, true), Ok(()));
    }
}

#[test]
fn a_start_that_was_accepted_goes_on_from_the_later_time() {
    for (log_ms, at_ms) in [(NOON_MS + DAY_MS, NOON_MS + DAY_MS), (NOON_MS - 40 * DAY_MS, NOON_MS)] {
        let (clock, hands) = Clock::settable(NOON_MS);
        clock.go_on_from(log_ms, true).unwrap();
        assert_eq!(clock.now_ms(), at_ms);
        pass(&clock, &hands, 1_600);
        assert!(clock.now_ms() >= at_ms + 1_500, "and time passes");
    }
}

#[test]
fn on_a_simulated_clock_waits_end_when_its_hands_are_moved() {
    let (clock, hands) = Clock::simulated(NOON_MS);
    let order = std::cell::RefCell::new(Vec::new());
    let waiting = async {
        clock.sleep(Duration::from_millis(30)).await;
        order.borrow_mut().push("woken");
        assert_eq!(clock.timeout(Duration::from_secs(1), std::future::pending::<()>()).await, None);
        order.borrow_mut().push("timed out");
        assert_eq!(clock.timeout(Duration::from_secs(1), async { 7 }).await, Some(7));
    };
    let mut waiting = std::pin::pin!(waiting);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut is_over = || waiting.as_mut().poll(&mut context).is_ready();
    assert!(!is_over());
    assert_eq!(hands.until_next_ms(), Some(30));
    hands.pass(29);
    assert!(!is_over());
    assert_eq!(hands.until_next_ms(), Some(1));
    hands.pass(1);
    assert!(!is_over());
    assert_eq!(hands.until_next_ms(), Some(1_000));
    hands.pass(5_000);
    assert!(is_over());
    assert_eq!(hands.until_next_ms(), None, "a wait that is over, or given up, is gone");
    assert_eq!((clock.passed(), order.take()), (Duration::from_millis(5_030), vec!["woken", "timed out"]));
}

#[test]
fn a_thread_works_no_longer_than_time_passes_and_for_no_time_in_a_simulation() {
    let clock = Clock::system();
    let (passed, worked) = (clock.passed(), clock.worked());
    while clock.worked() == worked {
        std::hint::spin_loop();
    }
    let has_worked = clock.worked() - worked;
    assert!(has_worked <= clock.passed() - passed + Duration::from_millis(1));
    assert_eq!(Clock::simulated(7).0.worked(), Duration::ZERO);
}
