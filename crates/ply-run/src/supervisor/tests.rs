//! The rules one by one, each with its own story.

use super::*;

const S: Duration = Duration::from_secs(1);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn policy(restart: RestartPolicy, gate: Gate) -> Policy {
    Policy {
        restart,
        backoff: S,
        max_backoff: 60 * S,
        gate,
        stop_timeout: 10 * S,
        drain: 10 * S,
        least: 1,
        most: 10,
    }
}

const GATED: Gate = Gate::Always { grace: Duration::from_secs(30) };

fn life(slot: u32, run: u64) -> Life {
    Life { slot, run }
}

fn starts(life: Life) -> Action {
    Action::Start(life, Release::FIRST)
}

fn died(life: Life, code: i32) -> Event {
    Event::Ended { life, code, spread: 0 }
}

fn yes(life: Life) -> Event {
    Event::Answer { life, yes: true }
}

fn no(life: Life) -> Event {
    Event::Answer { life, yes: false }
}

/// Two healthy slots, at one second.
fn two(restart: RestartPolicy) -> Supervisor {
    let mut sup = Supervisor::new(policy(restart, GATED));
    let begun = sup.step(Duration::ZERO, Event::Begin(2));
    assert_eq!(begun, [starts(life(1, 1)), starts(life(2, 2))]);
    sup.step(S, Event::Tick);
    for one in [life(1, 1), life(2, 2)] {
        assert_eq!(sup.step(S, yes(one)), [Action::Join(one)]);
    }
    sup
}

#[test]
fn an_instance_joins_only_after_it_has_answered() {
    let mut sup = Supervisor::new(policy(RestartPolicy::Never, GATED));
    let one = life(1, 1);
    assert_eq!(sup.step(Duration::ZERO, Event::Begin(1)), [starts(one)]);
    let mut now = Duration::ZERO;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let wake = sup.wake().unwrap();
        pauses.push((wake - now).as_millis());
        now = wake;
        assert_eq!(sup.step(now, Event::Tick), [Action::Ask(one)]);
        assert_eq!(sup.wake(), None, "it is not asked twice at once");
        assert_eq!(sup.step(now, no(one)), []);
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
    assert_eq!(sup.step(now, yes(one)), [Action::Join(one)]);
    assert_eq!(sup.settled(), Some(vec![]));
}

#[test]
fn with_nothing_to_ask_it_is_healthy_once_it_has_run_for_a_moment() {
    let mut sup = Supervisor::new(policy(RestartPolicy::Never, Gate::Runs));
    sup.step(Duration::ZERO, Event::Begin(1));
    assert_eq!(sup.wake(), Some(SETTLE));
    // However long the launch took, its moment begins when it runs.
    sup.step(S, Event::Started(life(1, 1)));
    assert_eq!(sup.wake(), Some(S + SETTLE));
    assert_eq!(sup.step(ms(1199), Event::Tick), []);
    assert_eq!(sup.step(ms(1200), Event::Tick), [Action::Join(life(1, 1))]);
    assert_eq!(sup.wake(), None);
}

#[test]
fn a_gate_fails_after_its_grace_and_the_process_is_left_alone() {
    let mut sup = Supervisor::new(policy(RestartPolicy::Always, GATED));
    let one = life(1, 1);
    sup.step(Duration::ZERO, Event::Begin(1));
    // However far the clock jumps, it is asked once more before it is judged.
    assert_eq!(sup.step(1000 * S, Event::Tick), [Action::Ask(one)]);
    assert_eq!(sup.step(1000 * S, no(one)), [Action::Unhealthy(one)]);
    assert_eq!(sup.settled(), Some(vec![1]));
    assert_eq!(sup.wake(), Some(1005 * S));
    assert_eq!(sup.step(1005 * S, Event::Tick), [Action::Ask(one)]);
    assert_eq!(sup.step(1005 * S, yes(one)), [Action::Join(one)]);
}

#[test]
fn three_misses_take_it_out_and_an_answer_brings_it_back() {
    let mut sup = two(RestartPolicy::Never);
    let one = life(1, 1);
    for (n, expected) in [(1, vec![]), (2, vec![]), (3, vec![Action::Unhealthy(one)])] {
        let now = S + n * CHECK_EVERY;
        let asked = sup.step(now, Event::Tick);
        assert!(asked.contains(&Action::Ask(one)), "{asked:?}");
        sup.step(now, yes(life(2, 2)));
        assert_eq!(sup.step(now, no(one)), expected);
    }
    sup.step(30 * S, Event::Tick);
    assert_eq!(sup.step(30 * S, yes(one)), [Action::Join(one)]);
    // Misses in a row only.
    for answer in [no(one), no(one), yes(one), no(one), no(one)] {
        assert_eq!(sup.step(31 * S, answer), []);
    }
}

#[test]
fn backoff_doubles_up_to_its_most_and_a_healthy_minute_resets_it() {
    let mut sup = Supervisor::new(policy(RestartPolicy::OnFailure, GATED));
    sup.step(Duration::ZERO, Event::Begin(1));
    let (mut now, mut run) = (Duration::ZERO, 1);
    let mut fail = |sup: &mut Supervisor, healthy_for: Duration, spread: u8| {
        sup.step(now, yes(life(1, run)));
        now += healthy_for;
        let out = sup.step(now, Event::Ended { life: life(1, run), code: 1, spread });
        let wait = out.iter().find_map(|a| match a {
            Action::Wait(_, pause) => Some(*pause),
            _ => None,
        });
        now = sup.wake().unwrap();
        run += 1;
        assert_eq!(sup.step(now, Event::Tick), [starts(life(1, run))]);
        wait.unwrap()
    };
    let pauses: Vec<u64> = (0..8).map(|_| fail(&mut sup, 59 * S, 0).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(fail(&mut sup, S, 255), 66 * S, "up to a tenth more");
    assert_eq!(fail(&mut sup, S, 0), 66 * S, "and never less while it fails");
    assert_eq!(fail(&mut sup, 60 * S, 0), S, "a healthy minute forgives");
}

#[test]
fn the_policy_decides_what_an_exit_means() {
    for (restart, code, again) in [
        (RestartPolicy::Never, 0, false),
        (RestartPolicy::Never, 1, false),
        (RestartPolicy::OnFailure, 0, false),
        (RestartPolicy::OnFailure, 137, true),
        (RestartPolicy::Always, 0, true),
        (RestartPolicy::Always, 1, true),
    ] {
        let mut sup = two(restart);
        sup.step(S, died(life(1, 1), code));
        sup.step(S, died(life(2, 2), code));
        assert_eq!(!sup.is_over(), again, "{restart:?} {code}");
        assert_eq!(sup.wake().is_some(), again);
    }
}

#[test]
fn a_stop_signals_at_once_kills_after_its_time_and_is_never_a_failure() {
    let mut sup = two(RestartPolicy::Always);
    let (one, two) = (life(1, 1), life(2, 2));
    assert_eq!(sup.step(2 * S, Event::Stop), [Action::Signal(one), Action::Signal(two)]);
    assert_eq!(sup.step(3 * S, Event::Stop), [], "once");
    assert_eq!(sup.step(4 * S, died(one, 1)), [Action::Over(one)]);
    assert_eq!(sup.wake(), Some(12 * S));
    assert_eq!(sup.step(12 * S, Event::Tick), [Action::Kill(two)]);
    assert_eq!(sup.wake(), None);
    assert!(!sup.is_over());
    sup.step(12 * S, died(two, 137));
    assert!(sup.is_over());
}

#[test]
fn a_stop_during_a_backoff_ends_it_and_one_during_a_gate_too() {
    let mut sup = two(RestartPolicy::Always);
    sup.step(S, died(life(1, 1), 1));
    sup.step(S, died(life(2, 2), 1));
    sup.step(2 * S, Event::Tick);
    assert_eq!(sup.step(2 * S, died(life(3, 3), 1)), [], "nobody knows that one");
    sup.step(2 * S, died(life(2, 4), 1));
    assert_eq!(sup.step(2 * S, Event::Stop), [Action::Signal(life(1, 3))]);
    sup.step(2 * S, died(life(1, 3), 143));
    assert!(sup.is_over());
    assert_eq!(sup.step(2 * S, Event::Restart(7)), [Action::Answer(7, Outcome::Stopping)]);
    let scale = Event::Scale { ticket: 8, to: 3 };
    assert_eq!(sup.step(2 * S, scale), [Action::Answer(8, Outcome::Stopping)]);
}

#[test]
fn a_roll_drains_each_instance_before_its_signal_while_others_serve() {
    let mut sup = two(RestartPolicy::Never);
    let (one, two) = (life(1, 1), life(2, 2));
    let begins = |slot| Action::Progress(9, Step::Begins(slot));
    let healthy = |slot| Action::Progress(9, Step::Healthy(slot));
    assert_eq!(sup.step(2 * S, Event::Restart(9)), [begins(1), Action::Drain(one)]);
    assert_eq!(sup.step(3 * S, Event::Drained(one)), [Action::Signal(one)]);
    let anew = life(1, 3);
    assert_eq!(sup.step(4 * S, died(one, 0)), [Action::Wait(one, Duration::ZERO), starts(anew)]);
    let out = sup.step(5 * S, yes(anew));
    assert_eq!(out[..4], [Action::Join(anew), healthy(1), begins(2), Action::Drain(two)]);
    // Connections that don't end are not waited for longer than the drain.
    assert_eq!(sup.step(ms(14_999), Event::Tick), [Action::Ask(anew)]);
    sup.step(ms(14_999), yes(anew));
    assert_eq!(sup.step(15 * S, Event::Tick), [Action::Signal(two)]);
    sup.step(15 * S, died(two, 137));
    let out = sup.step(16 * S, yes(life(2, 4)));
    assert_eq!(out, [Action::Join(life(2, 4)), healthy(2), Action::Answer(9, Outcome::Rolled(2))]);
}

#[test]
fn a_roll_of_a_single_instance_signals_at_once() {
    let mut sup = Supervisor::new(policy(RestartPolicy::Never, GATED));
    let one = life(1, 1);
    sup.step(Duration::ZERO, Event::Begin(1));
    sup.step(S, yes(one));
    assert_eq!(sup.step(S, Event::Restart(1)).last(), Some(&Action::Signal(one)));
}

#[test]
fn a_roll_ends_where_a_gate_fails_and_leaves_the_others_alone() {
    for silent in [false, true] {
        let mut sup = two(RestartPolicy::Never);
        sup.step(2 * S, Event::Restart(9));
        sup.step(2 * S, Event::Drained(life(1, 1)));
        sup.step(2 * S, died(life(1, 1), 0));
        let anew = life(1, 3);
        let out = if silent { sup.step(33 * S, no(anew)) } else { sup.step(3 * S, died(anew, 3)) };
        let why = if silent { Failure::Silent } else { Failure::Died { code: 3 } };
        assert!(out.contains(&Action::Answer(9, Outcome::Failed(1, why))), "{out:?}");
        assert!(!out.contains(&Action::Drain(life(2, 2))), "{out:?}");
        assert!(!sup.is_over());
    }
}

#[test]
fn rolls_come_one_after_the_other_and_a_stop_answers_them_all() {
    let mut sup = two(RestartPolicy::Never);
    sup.step(2 * S, Event::Restart(1));
    assert_eq!(sup.step(2 * S, Event::Restart(2)), []);
    let out = sup.step(3 * S, Event::Stop);
    for ticket in [1, 2] {
        assert!(out.contains(&Action::Answer(ticket, Outcome::Stopping)), "{out:?}");
    }
    // The one that drained is signalled now.
    assert!(out.contains(&Action::Signal(life(1, 1))), "{out:?}");
}

#[test]
fn scaling_takes_the_lowest_free_numbers_and_lets_the_highest_leave() {
    let mut sup = two(RestartPolicy::Never);
    let scale = |to| Event::Scale { ticket: 5, to };
    let answer = |from, to| Action::Answer(5, Outcome::Scaled { from, to });
    let out = sup.step(2 * S, scale(4));
    assert_eq!(out, [starts(life(3, 3)), starts(life(4, 4)), answer(2, 4)]);
    sup.step(2 * S, yes(life(3, 3)));
    // 4 has no connections: it is signalled at once; 3 drains.
    let out = sup.step(2 * S, scale(2));
    assert_eq!(out, [Action::Signal(life(4, 4)), Action::Drain(life(3, 3)), answer(4, 2)]);
    assert_eq!(sup.members(), 2);
    assert_eq!(sup.step(2 * S, died(life(4, 4), 0)), [Action::Over(life(4, 4)), Action::Forget(4)]);
    // One that leaves and is wanted again comes back as a new instance.
    assert_eq!(sup.step(2 * S, scale(3)), [answer(2, 3)]);
    sup.step(3 * S, Event::Drained(life(3, 3)));
    let out = sup.step(3 * S, died(life(3, 3), 0));
    assert_eq!(out.last(), Some(&starts(life(3, 5))));
    assert_eq!(sup.step(3 * S, scale(0)), [Action::Answer(5, Outcome::TooFew(1))]);
    assert_eq!(sup.step(3 * S, scale(11)), [Action::Answer(5, Outcome::TooMany(10))]);
}

#[test]
fn a_scale_down_during_a_roll_does_not_hold_it() {
    let mut sup = two(RestartPolicy::Never);
    sup.step(2 * S, Event::Restart(1));
    sup.step(2 * S, Event::Drained(life(1, 1)));
    sup.step(2 * S, died(life(1, 1), 0));
    sup.step(3 * S, yes(life(1, 3)));
    // The roll is at slot 2, which is given up.
    let out = sup.step(3 * S, Event::Scale { ticket: 2, to: 1 });
    assert_eq!(
        out,
        [Action::Answer(2, Outcome::Scaled { from: 2, to: 1 }), Action::Answer(1, Outcome::Rolled(1))]
    );
}

#[test]
fn a_slot_that_waits_or_has_ended_is_started_by_a_roll_and_removed_by_a_scale_down() {
    for restart in [RestartPolicy::Never, RestartPolicy::Always] {
        let mut sup = two(restart);
        sup.step(S, died(life(2, 2), 1));
        let out = sup.step(S, Event::Scale { ticket: 2, to: 1 });
        assert!(out.contains(&Action::Forget(2)), "{out:?}");
        let mut sup = two(restart);
        sup.step(S, died(life(1, 1), 1));
        let out = sup.step(S, Event::Restart(3));
        assert!(out.contains(&starts(life(1, 3))), "{out:?}");
    }
}

const NEXT: Release = Release(2);

fn deploy(ticket: Ticket, spare: bool) -> Event {
    Event::Deploy { ticket, release: NEXT, policy: policy(RestartPolicy::Never, GATED), spare }
}

/// One healthy slot, at one second.
fn single(restart: RestartPolicy) -> Supervisor {
    let mut sup = Supervisor::new(policy(restart, GATED));
    sup.step(Duration::ZERO, Event::Begin(1));
    assert_eq!(sup.step(S, yes(life(1, 1))), [Action::Join(life(1, 1))]);
    sup
}

#[test]
fn a_deploy_goes_slot_by_slot_and_is_current_when_all_have_it() {
    let mut sup = two(RestartPolicy::Never);
    let (one, two) = (life(1, 1), life(2, 2));
    let progress = |step| Action::Progress(9, step);
    assert_eq!(sup.step(2 * S, deploy(9, true)), [progress(Step::Begins(1)), Action::Drain(one)]);
    assert_eq!(sup.step(2 * S, Event::Drained(one)), [Action::Signal(one)]);
    let out = sup.step(2 * S, died(one, 0));
    assert_eq!(out, [Action::Wait(one, Duration::ZERO), Action::Start(life(1, 3), NEXT)]);
    // One that is new meanwhile has what is current, and its turn comes.
    let out = sup.step(2 * S, Event::Scale { ticket: 1, to: 3 });
    assert_eq!(out[0], starts(life(3, 4)));
    sup.step(3 * S, yes(life(1, 3)));
    let out = sup.step(3 * S, Event::Tick);
    assert_eq!(out, []);
    assert!(matches!(sup.slots[&2].phase, Phase::Draining { .. }));
    sup.step(3 * S, Event::Drained(two));
    assert_eq!(sup.step(3 * S, died(two, 0)).last(), Some(&Action::Start(life(2, 5), NEXT)));
    sup.step(3 * S, yes(life(2, 5)));
    assert_eq!(sup.current(), Release::FIRST, "not before the last one");
    assert_eq!(sup.step(3 * S, died(life(3, 4), 143)).last(), Some(&Action::Start(life(3, 6), NEXT)));
    let out = sup.step(4 * S, yes(life(3, 6)));
    assert_eq!(out[2..], [Action::Current(NEXT), Action::Answer(9, Outcome::Deployed(3))]);
    assert!(!sup.uses(Release::FIRST) && sup.uses(NEXT));
    assert_eq!(sup.step(4 * S, Event::Scale { ticket: 2, to: 4 })[0], Action::Start(life(4, 7), NEXT));
}

#[test]
fn a_failed_gate_brings_the_old_release_back_in_every_slot() {
    for silent in [false, true] {
        let mut sup = two(RestartPolicy::OnFailure);
        let (one, two) = (life(1, 1), life(2, 2));
        sup.step(2 * S, deploy(9, false));
        sup.step(2 * S, Event::Drained(one));
        sup.step(2 * S, died(one, 0));
        sup.step(3 * S, yes(life(1, 3)));
        sup.step(3 * S, Event::Drained(two));
        sup.step(3 * S, died(two, 0));
        let anew = life(2, 4);
        let why = if silent { Failure::Silent } else { Failure::Died { code: 3 } };
        let out = if silent { sup.step(34 * S, no(anew)) } else { sup.step(4 * S, died(anew, 3)) };
        let fails = [Action::Progress(9, Step::Fails(anew, why)), Action::Progress(9, Step::Back(2))];
        if silent {
            assert_eq!(out[1..4], [fails[0].clone(), fails[1].clone(), Action::Signal(anew)]);
            sup.step(34 * S, died(anew, 143));
        } else {
            // At once: what its policy says of a failure is for the release that stays.
            assert_eq!(out[..2], fails);
            assert_eq!(out[2..], [Action::Wait(anew, Duration::ZERO), starts(life(2, 5))]);
        }
        let out = sup.step(35 * S, yes(life(2, 5)));
        assert!(out.contains(&Action::Progress(9, Step::Back(1))), "{out:?}");
        sup.step(35 * S, Event::Drained(life(1, 3)));
        assert_eq!(sup.step(35 * S, died(life(1, 3), 0)).last(), Some(&starts(life(1, 6))));
        let out = sup.step(36 * S, yes(life(1, 6)));
        assert_eq!(out.last(), Some(&Action::Answer(9, Outcome::Reverted(2, why))), "{out:?}");
        assert!(sup.current() == Release::FIRST && !sup.uses(NEXT));
    }
}

#[test]
fn the_successor_of_a_single_instance_stands_beside_it_until_it_is_healthy() {
    let mut sup = single(RestartPolicy::Never);
    let (old, new) = (life(1, 1), life(2, 2));
    let out = sup.step(2 * S, deploy(9, true));
    assert_eq!(out, [Action::Progress(9, Step::Begins(2)), Action::Start(new, NEXT)]);
    assert_eq!(sup.members(), 1);
    let out = sup.step(3 * S, yes(new));
    assert_eq!(
        out,
        [
            Action::Join(new),
            Action::Progress(9, Step::Healthy(2)),
            Action::Drain(old),
            Action::Current(NEXT),
            Action::Answer(9, Outcome::Deployed(1))
        ]
    );
    sup.step(3 * S, Event::Drained(old));
    assert_eq!(sup.step(3 * S, died(old, 0)), [Action::Over(old), Action::Forget(1)]);
    assert_eq!(sup.members(), 1);
}

#[test]
fn a_spare_that_fails_leaves_the_old_one_alone() {
    for silent in [false, true] {
        let mut sup = single(RestartPolicy::Always);
        let new = life(2, 2);
        sup.step(2 * S, deploy(9, true));
        let why = if silent { Failure::Silent } else { Failure::Died { code: 1 } };
        let out = if silent { sup.step(33 * S, no(new)) } else { sup.step(3 * S, died(new, 1)) };
        assert!(out.contains(&Action::Answer(9, Outcome::Reverted(2, why))), "{out:?}");
        assert!(!out.contains(&Action::Signal(life(1, 1))) && !out.contains(&Action::Drain(life(1, 1))));
        if silent {
            assert!(out.contains(&Action::Signal(new)));
            assert_eq!(sup.step(34 * S, died(new, 143)), [Action::Over(new), Action::Forget(2)]);
        }
        assert_eq!(sup.members(), 1);
        assert!(!sup.uses(NEXT));
    }
}

#[test]
fn a_deploy_during_a_backoff_takes_its_place_and_a_stop_during_its_gate_ends_it() {
    let mut sup = single(RestartPolicy::Always);
    sup.step(2 * S, died(life(1, 1), 1));
    let out = sup.step(2 * S, deploy(9, false));
    assert_eq!(out, [Action::Progress(9, Step::Begins(1)), Action::Start(life(1, 2), NEXT)]);
    let out = sup.step(3 * S, Event::Stop);
    assert_eq!(out, [Action::Answer(9, Outcome::Stopping), Action::Signal(life(1, 2))]);
    assert_eq!(sup.step(3 * S, died(life(1, 2), 143)), [Action::Over(life(1, 2))]);
    assert!(sup.is_over());
    assert_eq!(sup.step(4 * S, deploy(10, true)), [Action::Answer(10, Outcome::Stopping)]);
}

#[test]
fn a_release_that_wants_more_instances_gets_them_and_auto_is_what_the_run_began_with() {
    let mut sup = single(RestartPolicy::Never);
    let wider = Policy { least: 3, ..policy(RestartPolicy::Never, GATED) };
    sup.step(2 * S, Event::Deploy { ticket: 9, release: NEXT, policy: wider, spare: true });
    let out = sup.step(3 * S, yes(life(2, 2)));
    assert!(out.contains(&Action::Start(life(3, 3), NEXT)), "{out:?}");
    assert_eq!(sup.members(), 3);
    sup.step(3 * S, Event::Scale { ticket: 1, to: 5 });
    let out = sup.step(3 * S, Event::Unpin(2));
    assert_eq!(out.last(), Some(&Action::Answer(2, Outcome::Scaled { from: 5, to: 3 })));
}
