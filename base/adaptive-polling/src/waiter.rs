//! Decision for each wait, whether and for how long to spin.

use std::hint;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::crowd::Crowd;
use crate::doubt::Doubt;
use crate::gathering::Gathering;
use crate::machine::{Machine, ThisMachine};
use crate::permits::SpinPermits;

/// Maximum duration of a spin, and maximum typical wait for which spinning is tried.
///
/// About twice the cost of blocking for a request: waking the thread, and the delay until it runs.
pub const SPIN_MAX_DEFAULT: Duration = Duration::from_micros(100);

/// Number of polls between two clock reads, at which the core is also yielded. A poll is a system
/// call of some hundred nanoseconds in most loops.
const LOOKS_PER_GLANCE: u32 = 8;

/// Number of polls during busy traffic before the clock is read and a permit is taken. Most
/// requests arrive within these.
const LOOKS_BEFORE_GLANCE: u32 = 4;

/// Number of CPU pause instructions between two clock reads, while not polling.
const SPINS_PER_GLANCE_IN_PAUSE: u32 = 8;

/// Duration of a yield from which on another thread is considered to need the core.
const CORE_TAKEN_AFTER: Duration = Duration::from_micros(50);

/// Duration of a yield from which on another thread has used the core.
const CORE_USED_AFTER: Duration = Duration::from_micros(2);

/// Maximum duration of a spin, in multiples of the typical wait.
const SPIN_PER_TYPICAL_WAIT: u32 = 3;

/// Ratio of the maximum to the minimum duration of a spin.
const SPIN_MIN_PER_SPIN_MAX: u32 = 8;

/// Number of waits over which the typical wait is averaged: a new wait has a weight of one in this
/// many.
const WAITS_REMEMBERED: u64 = 8;

/// Maximum counted duration of a wait, in multiples of the maximum spin, so that a few short waits
/// suffice after a long idle time.
const WAIT_COUNTED_MAX_PER_SPIN_MAX: u64 = 4;

/// Waiting strategy of one queue loop. Each loop has its own and calls [`Waiter::wait`] for each
/// request.
#[derive(Debug)]
pub struct Waiter<M: Machine = ThisMachine> {
    permits: Arc<SpinPermits>,
    machine: M,
    spin_max: Duration,
    /// Decaying average of recent waits, in nanoseconds.
    typical_wait: u64,
    expects_traffic: bool,
    doubt: Doubt,
    crowd: Crowd,
    /// Another thread used the core while it was yielded during this wait.
    was_core_used: bool,
    /// The last request arrived while the core was yielded, so its sender shares the core.
    offers_first: bool,
    gathering: Gathering,
}

impl Waiter {
    /// Creates a waiter for a thread of this process. Initially it expects no traffic.
    pub fn new(permits: Arc<SpinPermits>, spin_max: Duration) -> Self {
        Self::on_machine(ThisMachine::new(), permits, spin_max)
    }
}

impl<M: Machine> Waiter<M> {
    /// Creates a waiter as [`Waiter::new`] does, with a given clock and scheduler.
    pub fn on_machine(machine: M, permits: Arc<SpinPermits>, spin_max: Duration) -> Self {
        let typical_wait = nanoseconds(spin_max) * WAIT_COUNTED_MAX_PER_SPIN_MAX;
        Self {
            permits,
            machine,
            spin_max,
            typical_wait,
            expects_traffic: false,
            doubt: Doubt::default(),
            crowd: Crowd::new(),
            was_core_used: false,
            offers_first: false,
            gathering: Gathering::new(),
        }
    }

    /// Polls with `poll` for a bounded time and returns its result. Otherwise returns the result of
    /// `block`, which is called at most once and may sleep for any time.
    pub fn wait<T>(&mut self, mut poll: impl FnMut() -> Poll<T>, block: impl FnOnce() -> T) -> T {
        if let Poll::Ready(found) = poll() {
            self.learn(0);
            return found;
        }
        if let Some(found) = self.offer_before_looks(&mut poll) {
            return found;
        }
        if let Some(found) = self.look_before_glance(&mut poll) {
            return found;
        }
        let start = self.machine.now();
        let (found, now) = match self.spin(start, poll) {
            Spun::Found { found, glance } => {
                self.doubt.found();
                (found, glance)
            }
            Spun::InVain => {
                self.doubt.failed();
                self.crowd.spell_failed();
                (block(), self.machine.now())
            }
            Spun::NotAtAll => (block(), self.machine.now()),
        };
        self.learn(nanoseconds(now.saturating_sub(start)));
        self.crowd.saw_wait(std::mem::take(&mut self.was_core_used));
        self.leave_crowd(now);
        found
    }

    /// Must be called before [`Waiter::wait`] by loops that answer requests in batches, with the
    /// number of requests started since the last call. Pauses for at most 20 µs, so that more
    /// requests arrive, if that was found to increase throughput.
    pub fn gather(&mut self, request_count: u32) {
        if !self.expects_traffic {
            return;
        }
        let start = self.machine.now();
        let pause = self.gathering.answered(start, request_count);
        if pause.is_zero() {
            return;
        }
        let Some(_permit) = self.permits.take() else { return };
        while self.machine.now().saturating_sub(start) < pause {
            for _ in 0..SPINS_PER_GLANCE_IN_PAUSE {
                hint::spin_loop();
            }
        }
    }

    /// Returns whether recent waits were short enough to spin.
    pub fn expects_traffic(&self) -> bool {
        self.expects_traffic
    }

    /// Yields the core immediately if the last request arrived during a yield: polling would delay
    /// its sender, as on a single core. A yield without a result ends this mode.
    #[inline]
    fn offer_before_looks<T>(&mut self, poll: &mut impl FnMut() -> Poll<T>) -> Option<T> {
        if !std::mem::take(&mut self.offers_first) || !self.expects_traffic {
            return None;
        }
        let offered = self.machine.now();
        self.machine.offer_core();
        let now = self.machine.now();
        let away = now.saturating_sub(offered);
        if !is_short_use(away) {
            return None;
        }
        let Poll::Ready(found) = poll() else { return None };
        self.offers_first = true;
        self.doubt.found();
        self.crowd.saw_wait(true);
        self.learn(nanoseconds(away));
        self.leave_crowd(now);
        Some(found)
    }

    /// Polls a few times where that was successful before, for a microsecond or two, which is too
    /// short to be measured.
    #[inline]
    fn look_before_glance<T>(&mut self, poll: &mut impl FnMut() -> Poll<T>) -> Option<T> {
        if !self.expects_traffic || self.doubt.is_pausing() {
            return None;
        }
        for _ in 0..LOOKS_BEFORE_GLANCE {
            if let Poll::Ready(found) = poll() {
                self.doubt.found();
                self.crowd.saw_wait(false);
                self.learn(0);
                return Some(found);
            }
        }
        None
    }

    fn spin<T>(&mut self, start: Duration, mut poll: impl FnMut() -> Poll<T>) -> Spun<T> {
        let budget = self.spin_budget();
        if budget.is_zero() || !self.doubt.allows_spell() {
            return Spun::NotAtAll;
        }
        let Some(_permit) = self.permits.take() else {
            return Spun::NotAtAll;
        };
        let mut glance = start;
        let mut was_short_use = false;
        while glance.saturating_sub(start) < budget {
            for look in 0..LOOKS_PER_GLANCE {
                if let Poll::Ready(found) = poll() {
                    self.offers_first = was_short_use && look == 0;
                    return Spun::Found { found, glance };
                }
            }
            let offered = self.machine.now();
            self.machine.offer_core();
            glance = self.machine.now();
            let away = glance.saturating_sub(offered);
            self.was_core_used |= away > CORE_USED_AFTER;
            was_short_use = is_short_use(away);
            if away > CORE_TAKEN_AFTER {
                break;
            }
        }
        Spun::InVain
    }

    /// Moves to another core if clients need this one.
    fn leave_crowd(&mut self, now: Duration) {
        if self.expects_traffic && self.crowd.advises_to_leave(now) {
            self.machine.change_core();
            // The estimates belong to the former core.
            self.doubt = Doubt::default();
            self.offers_first = false;
        }
    }

    fn spin_budget(&self) -> Duration {
        if !self.expects_traffic {
            return Duration::ZERO;
        }
        let spin_min = self.spin_max / SPIN_MIN_PER_SPIN_MAX;
        let typical_wait = Duration::from_nanos(self.typical_wait);
        (typical_wait * SPIN_PER_TYPICAL_WAIT).clamp(spin_min, self.spin_max)
    }

    #[inline]
    fn learn(&mut self, wait: u64) {
        let spin_max = nanoseconds(self.spin_max);
        let counted = wait.min(spin_max * WAIT_COUNTED_MAX_PER_SPIN_MAX);
        self.typical_wait =
            (self.typical_wait * (WAITS_REMEMBERED - 1) + counted) / WAITS_REMEMBERED;
        self.expects_traffic = self.typical_wait <= spin_max;
        if self.expects_traffic {
            self.permits.saw_traffic();
        }
    }
}

/// Returns whether another thread used the yielded core for no longer than answering takes.
fn is_short_use(away: Duration) -> bool {
    (CORE_USED_AFTER..=CORE_TAKEN_AFTER).contains(&away)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Outcome of a spin.
enum Spun<T> {
    /// The clock was read shortly before, so the request need not wait for another read.
    Found {
        found: T,
        glance: Duration,
    },
    InVain,
    NotAtAll,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_latency::{CpuLatencyRequest, CpuLatencyState};
    use std::cell::Cell;

    const LOOK: Duration = Duration::from_micros(1);
    const SPIN_MAX: Duration = Duration::from_micros(100);

    /// Simulated host whose time advances with the operations on it.
    #[derive(Default)]
    struct FakeMachine {
        now: Cell<Duration>,
        offer_takes: Cell<Duration>,
        glance_takes: Cell<Duration>,
        core_changes: Cell<u32>,
        offers: Cell<u32>,
    }

    impl FakeMachine {
        fn pass(&self, time: Duration) {
            self.now.set(self.now.get() + time);
        }
    }

    impl Machine for &FakeMachine {
        fn now(&self) -> Duration {
            self.pass(self.glance_takes.get());
            self.now.get()
        }

        fn offer_core(&self) {
            self.offers.set(self.offers.get() + 1);
            self.pass(self.offer_takes.get());
        }

        fn change_core(&self) {
            self.core_changes.set(self.core_changes.get() + 1);
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum How {
        Polled,
        Blocked,
    }

    struct Loop<'machine> {
        machine: &'machine FakeMachine,
        waiter: Waiter<&'machine FakeMachine>,
    }

    impl<'machine> Loop<'machine> {
        fn new(machine: &'machine FakeMachine, permits: &Arc<SpinPermits>) -> Self {
            let waiter = Waiter::on_machine(machine, Arc::clone(permits), SPIN_MAX);
            Self { machine, waiter }
        }

        /// Waits for a request that arrives after `gap`. Returns how it was found.
        fn wait(&mut self, gap: Duration) -> How {
            let (machine, arrival) = (self.machine, self.machine.now.get() + gap);
            let poll = || {
                machine.pass(LOOK);
                if machine.now.get() >= arrival { Poll::Ready(How::Polled) } else { Poll::Pending }
            };
            self.waiter.wait(poll, || {
                machine.now.set(machine.now.get().max(arrival));
                How::Blocked
            })
        }

        fn wait_often(&mut self, gap: Duration) -> How {
            (0..100).map(|_| self.wait(gap)).last().expect("a hundred waits")
        }
    }

    #[track_caller]
    fn check(gap_us: u64, expected: How) {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        assert_eq!(a_loop.wait_often(Duration::from_micros(gap_us)), expected);
    }

    #[test]
    fn steady_traffic_is_found_by_spinning() {
        check(0, How::Polled);
        check(20, How::Polled);
        check(80, How::Polled);
    }

    #[test]
    fn rare_traffic_is_waited_for_by_blocking() {
        check(200, How::Blocked);
        check(1_000_000, How::Blocked);
    }

    /// Checks whether traffic with this gap between requests causes a request for low CPU latency.
    #[track_caller]
    fn check_wish(gap_us: u64, is_expected: bool) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let request = CpuLatencyRequest::on_file(file.reopen().expect("a file"), 0);
        let request = Arc::new(request.expect("a thread"));
        let permits = SpinPermits::new(0).with_cpu_latency(Arc::clone(&request));
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(permits));
        let start = std::time::Instant::now();
        let may_take = Duration::from_millis(if is_expected { 60_000 } else { 100 });
        // The request is withdrawn when this thread does not run for a while, so it is checked
        // immediately.
        let is_held = loop {
            a_loop.wait_often(Duration::from_micros(gap_us));
            let is_held = request.state() == CpuLatencyState::Held;
            if is_held || start.elapsed() >= may_take {
                break is_held;
            }
        };
        assert_eq!(is_held, is_expected);
    }

    #[test]
    fn lively_traffic_keeps_cores_quick_even_where_nobody_may_spin() {
        check_wish(20, true);
    }

    #[test]
    fn a_hundred_requests_a_second_let_cores_halt() {
        check_wish(10_000, false);
    }

    #[test]
    fn a_first_wait_blocks() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        assert!(!a_loop.waiter.expects_traffic());
        assert_eq!(a_loop.wait(Duration::from_micros(20)), How::Blocked);
    }

    #[test]
    fn one_long_wait_spins_no_longer_than_the_limit() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        a_loop.wait_often(Duration::from_micros(20));
        let start = machine.now.get();
        let poll = || -> Poll<Duration> {
            machine.pass(LOOK);
            Poll::Pending
        };
        let blocked_at = a_loop.waiter.wait(poll, || machine.now.get());
        assert!(blocked_at - start <= SPIN_MAX + LOOK * (LOOKS_PER_GLANCE + 1));
    }

    #[test]
    fn a_day_of_silence_is_forgotten_within_twenty_requests() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        a_loop.wait(Duration::from_secs(86_400));
        for _ in 0..20 {
            a_loop.wait(Duration::from_micros(20));
        }
        assert_eq!(a_loop.wait(Duration::from_micros(20)), How::Polled);
    }

    #[test]
    fn without_a_free_permit_a_wait_blocks() {
        let machine = FakeMachine::default();
        let permits = Arc::new(SpinPermits::new(1));
        let mut a_loop = Loop::new(&machine, &permits);
        a_loop.wait_often(Duration::from_micros(20));
        let _taken = permits.take().expect("no thread spins");
        assert_eq!(a_loop.wait(Duration::from_micros(20)), How::Blocked);
    }

    #[test]
    fn a_finished_wait_gives_its_permit_back() {
        let machine = FakeMachine::default();
        let permits = Arc::new(SpinPermits::new(1));
        Loop::new(&machine, &permits).wait_often(Duration::from_micros(20));
        assert!(permits.take().is_some());
    }

    /// Returns whether a wait spins if its request arrives only when the thread yields its core.
    fn spins_on_a_busy_core(a_loop: &mut Loop<'_>) -> bool {
        let machine = a_loop.machine;
        let mut look_count = 0;
        let poll = || {
            look_count += 1;
            machine.pass(LOOK);
            Poll::Pending
        };
        a_loop.waiter.wait(poll, || machine.pass(Duration::from_micros(20)));
        look_count > 1
    }

    #[test]
    fn spinning_that_keeps_requests_from_coming_is_given_up_for_ever_longer() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        a_loop.wait_often(Duration::from_micros(20));
        let spell_count = (0..1000).filter(|_| spins_on_a_busy_core(&mut a_loop)).count();
        assert!((8..16).contains(&spell_count), "{spell_count} spells in a thousand waits");
    }

    #[test]
    fn spinning_is_tried_again_and_comes_back_when_it_pays() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        a_loop.wait_often(Duration::from_micros(20));
        for _ in 0..1000 {
            spins_on_a_busy_core(&mut a_loop);
        }
        for _ in 0..3 {
            a_loop.wait_often(Duration::from_micros(20));
        }
        assert_eq!(a_loop.wait_often(Duration::from_micros(20)), How::Polled);
    }

    #[test]
    fn a_core_that_others_take_is_left_and_a_quiet_one_is_kept() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        for _ in 0..10 {
            a_loop.wait_often(Duration::from_micros(20));
        }
        assert_eq!(machine.core_changes.get(), 0);
        machine.offer_takes.set(CORE_USED_AFTER * 2);
        for _ in 0..10 {
            a_loop.wait_often(Duration::from_micros(20));
        }
        assert!(machine.core_changes.get() > 0);
    }

    /// Number of polls of a wait whose request arrives while the core is yielded.
    fn looks_until_offered(a_loop: &mut Loop<'_>) -> u32 {
        let machine = a_loop.machine;
        let mut look_count = 0;
        let is_offered = machine.offers.get();
        let poll = || {
            look_count += 1;
            machine.pass(LOOK / 10);
            if machine.offers.get() > is_offered { Poll::Ready(()) } else { Poll::Pending }
        };
        a_loop.waiter.wait(poll, || machine.pass(Duration::from_micros(20)));
        look_count
    }

    #[test]
    fn a_core_that_is_shared_with_who_answers_is_offered_at_once() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        a_loop.wait_often(Duration::from_micros(20));
        machine.offer_takes.set(CORE_USED_AFTER * 2);
        let learning = looks_until_offered(&mut a_loop);
        assert!(learning > LOOKS_PER_GLANCE, "{learning} looks");
        assert_eq!(looks_until_offered(&mut a_loop), 2);
        // When the thread has a core of its own again, it polls after one yield without a result.
        machine.offer_takes.set(Duration::ZERO);
        assert_eq!(a_loop.wait(Duration::from_micros(20)), How::Polled);
        machine.offer_takes.set(CORE_USED_AFTER * 2);
        assert!(looks_until_offered(&mut a_loop) > LOOKS_PER_GLANCE);
    }

    #[test]
    fn an_offered_core_that_is_gone_for_long_is_not_offered_at_once_again() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        a_loop.wait_often(Duration::from_micros(20));
        machine.offer_takes.set(CORE_USED_AFTER * 2);
        looks_until_offered(&mut a_loop);
        machine.offer_takes.set(CORE_TAKEN_AFTER * 2);
        looks_until_offered(&mut a_loop);
        machine.offer_takes.set(CORE_USED_AFTER * 2);
        assert!(looks_until_offered(&mut a_loop) > 2);
    }

    /// Duration of a loop's pause after `batch_requests` requests at once, when a pause was found
    /// beneficial.
    fn gathering_time(permits: &Arc<SpinPermits>, gap_us: u64, batch_requests: u32) -> Duration {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, permits);
        a_loop.wait_often(Duration::from_micros(gap_us));
        a_loop.waiter.gathering = Gathering::settled_on_the_longest();
        let start = machine.now.get();
        machine.glance_takes.set(Duration::from_nanos(100));
        a_loop.waiter.gather(batch_requests);
        machine.now.get() - start
    }

    #[test]
    fn busy_clients_are_left_alone_for_as_long_as_it_pays() {
        let time = gathering_time(&Arc::new(SpinPermits::new(1)), 10, 4);
        assert_eq!(time.as_micros(), 20);
    }

    #[test]
    fn rare_requests_are_not_gathered() {
        let time = gathering_time(&Arc::new(SpinPermits::new(1)), 1000, 4);
        assert_eq!(time, Duration::ZERO);
    }

    #[test]
    fn nobody_pauses_without_a_permit_to_spin() {
        let permits = Arc::new(SpinPermits::new(0));
        assert!(gathering_time(&permits, 10, 4) < Duration::from_micros(1));
    }

    #[test]
    fn a_spell_ends_when_the_offered_core_is_taken() {
        let machine = FakeMachine::default();
        let mut a_loop = Loop::new(&machine, &Arc::new(SpinPermits::new(1)));
        a_loop.wait_often(Duration::from_micros(20));
        machine.offer_takes.set(CORE_TAKEN_AFTER * 2);
        let looks = 1 + LOOKS_BEFORE_GLANCE + LOOKS_PER_GLANCE;
        assert_eq!(a_loop.wait(LOOK * (looks + 1)), How::Blocked);
    }
}
