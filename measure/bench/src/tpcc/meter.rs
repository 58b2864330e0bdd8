//! Transactions of one database's users, with durations by kind.

use std::time::Instant;

use super::database::{Done, End};
use super::input::Kind;
use crate::latency::Latencies;

/// Number of pieces of the measurement in which steadiness is judged.
const ROUNDS: usize = 5;

/// Measured window. Transactions that start and end in it count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
}

impl Window {
    /// Returns the number of whole seconds.
    pub(crate) fn whole_seconds(self) -> usize {
        usize::try_from((self.end - self.begin).as_secs()).unwrap_or(usize::MAX)
    }

    /// Returns the second that contains a moment, from 0, or `None` outside the whole seconds.
    pub(crate) fn second(self, moment: Instant) -> Option<usize> {
        let after = moment.checked_duration_since(self.begin)?;
        let second = usize::try_from(after.as_secs()).ok()?;
        (second < self.whole_seconds()).then_some(second)
    }
}

/// Times of a transaction: when it was due (with a schedule), sent and answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) due: Option<Instant>,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
}

/// Transactions of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    pub(crate) retries: u64,
    pub(crate) service: Latencies,
    /// Latencies from when transactions were due.
    pub(crate) intended: Latencies,
}

impl Tally {
    fn new() -> Self {
        let (service, intended) = (Latencies::new(), Latencies::new());
        Self { committed: 0, rolled_back: 0, retries: 0, service, intended }
    }
}

/// All transactions of a database.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    window: Window,
    /// In the order of [`Kind::ALL`].
    tallies: Vec<Tally>,
    /// New orders committed in each piece of the window.
    rounds: [u64; ROUNDS],
    /// New orders committed in each second of the window.
    seconds: Vec<u64>,
    /// New orders committed in the whole run, including outside the window.
    pub(crate) new_orders_ever: u64,
}

impl Meter {
    pub(crate) fn new(window: Window) -> Self {
        let tallies = Kind::ALL.iter().map(|_| Tally::new()).collect();
        let seconds = vec![0; window.whole_seconds()];
        Self { window, tallies, rounds: [0; ROUNDS], seconds, new_orders_ever: 0 }
    }

    pub(crate) fn record(&mut self, kind: Kind, done: Done, moments: Moments) {
        let is_new_order = kind == Kind::NewOrder && done.end == End::Committed;
        self.new_orders_ever += u64::from(is_new_order);
        let Window { begin, end } = self.window;
        // A transaction due in the window and answered after it also counts as waiting.
        if let Some(due) = moments.due.filter(|due| (begin..end).contains(due)) {
            let waited = moments.answered.saturating_duration_since(due);
            self.tallies[kind as usize].intended.record_time(waited);
        }
        if moments.due.unwrap_or(moments.sent) < begin || moments.answered > end {
            return;
        }
        if is_new_order {
            let round = self.round(moments.answered);
            self.rounds[round] += 1;
            if let Some(second) = self.window.second(moments.answered) {
                self.seconds[second] += 1;
            }
        }
        let tally = &mut self.tallies[kind as usize];
        match done.end {
            End::Committed => tally.committed += 1,
            End::RolledBack => tally.rolled_back += 1,
        }
        tally.retries += u64::from(done.retries);
        tally.service.record_time(moments.answered.saturating_duration_since(moments.sent));
    }

    /// Records a due transaction that was never executed. Its user waited until the end.
    pub(crate) fn record_missed(&mut self, kind: Kind, due: Instant) {
        if due >= self.window.begin && due < self.window.end {
            let waited = self.window.end.saturating_duration_since(due);
            self.tallies[kind as usize].intended.record_time(waited);
        }
    }

    pub(crate) fn of(&self, kind: Kind) -> &Tally {
        &self.tallies[kind as usize]
    }

    /// Returns the number of transactions of all kinds in the window.
    pub(crate) fn transactions_ended(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.committed + tally.rolled_back).sum()
    }

    /// Returns new orders per minute in each piece.
    pub(crate) fn rounds_nopm(&self) -> Vec<f64> {
        let seconds = (self.window.end - self.window.begin).as_secs_f64() / ROUNDS as f64;
        self.rounds.iter().map(|count| *count as f64 * 60.0 / seconds).collect()
    }

    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// Returns the new orders committed in each second of the window.
    pub(crate) fn new_orders_by_second(&self) -> &[u64] {
        &self.seconds
    }

    fn round(&self, moment: Instant) -> usize {
        let length = (self.window.end - self.window.begin).as_secs_f64();
        let share = (moment - self.window.begin).as_secs_f64() / length;
        let ends = (1..ROUNDS).map(|round| round as f64 / ROUNDS as f64);
        ends.filter(|end| share >= *end).count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn meter() -> (Meter, Instant) {
        let begin = Instant::now() + 100 * MS;
        (Meter::new(Window { begin, end: begin + 1_000 * MS }), begin)
    }

    fn done(end: End) -> Done {
        Done { end, retries: 0 }
    }

    #[test]
    fn a_wait_before_a_late_start_counts_from_when_it_was_due() {
        let (mut meter, begin) = meter();
        let moments =
            Moments { due: Some(begin), sent: begin + 300 * MS, answered: begin + 310 * MS };
        meter.record(Kind::Payment, done(End::Committed), moments);
        let tally = meter.of(Kind::Payment);
        assert!(tally.intended.max() >= 309_000_000, "{}", tally.intended.max());
        assert!(tally.service.max() < 11_000_000, "{}", tally.service.max());
    }

    #[test]
    fn what_lies_beside_the_window_counts_for_the_comparison_alone() {
        let (mut meter, begin) = meter();
        let early = Moments { due: None, sent: begin - 50 * MS, answered: begin + 10 * MS };
        let late = Moments { due: None, sent: begin + 990 * MS, answered: begin + 1_001 * MS };
        for moments in [early, late] {
            meter.record(Kind::NewOrder, done(End::Committed), moments);
        }
        assert_eq!((meter.of(Kind::NewOrder).committed, meter.new_orders_ever), (0, 2));
    }

    #[test]
    fn rolled_back_orders_are_no_new_orders() {
        let (mut meter, begin) = meter();
        let within = Moments { due: None, sent: begin, answered: begin + 700 * MS };
        meter.record(Kind::NewOrder, done(End::RolledBack), within);
        meter.record(Kind::NewOrder, done(End::Committed), within);
        assert_eq!(meter.new_orders_ever, 1);
        let tally = meter.of(Kind::NewOrder);
        assert_eq!((tally.committed, tally.rolled_back), (1, 1));
        assert_eq!(meter.rounds_nopm(), [0.0, 0.0, 0.0, 300.0, 0.0]);
    }

    #[test]
    fn seconds_are_those_of_the_window() {
        let begin = Instant::now() + 100 * MS;
        let window = Window { begin, end: begin + 2_500 * MS };
        assert_eq!(window.whole_seconds(), 2);
        let second = |after_ms: u32| window.second(begin + after_ms * MS);
        assert_eq!([0, 999, 1_000, 2_100].map(second), [Some(0), Some(0), Some(1), None]);
        assert_eq!(window.second(begin - MS), None);
        let mut meter = Meter::new(window);
        for after_ms in [10, 1_200, 1_300, 2_400] {
            let answered = begin + after_ms * MS;
            let moments = Moments { due: None, sent: begin, answered };
            meter.record(Kind::NewOrder, done(End::Committed), moments);
        }
        assert_eq!(meter.new_orders_by_second(), [1, 2]);
    }

    #[test]
    fn what_was_due_and_never_made_waits_until_the_end() {
        let (mut meter, begin) = meter();
        meter.record_missed(Kind::Delivery, begin + 400 * MS);
        let tally = meter.of(Kind::Delivery);
        assert_eq!(tally.intended.count(), 1);
        assert!(tally.intended.max() >= 599_000_000, "{}", tally.intended.max());
    }
}
