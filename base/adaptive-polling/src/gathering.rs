//! Pauses before polling, so that a client's requests arrive in batches.
//!
//! If a client keeps many requests in flight and the serving thread answers each immediately, both
//! work on the same queues at the same time and slow each other down: cache lines that both write
//! move back and forth, and no work is shared between requests. Polling less often avoids that, and
//! costs nothing as long as the client has replies to process. The suitable pause cannot be
//! observed directly, so different lengths are tried, and the one with the highest throughput is
//! kept. For a client that waits for each reply every pause is a loss, which is detected within a
//! few requests.

use std::time::Duration;

/// Candidate pauses. Longer ones had no further benefit, and would increase latency noticeably.
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_micros(5),
    Duration::from_micros(10),
    Duration::from_micros(20),
];

/// Number of requests after which a pause is evaluated.
const ROUND_REQUESTS: u32 = 512;

/// Number of polls after which a pause must have produced batches.
const BATCHES_JUDGED: u32 = 4;

/// Required throughput: a longer pause must reach more than the first percentage of the shorter
/// one's, and a shorter pause at least the second percentage of the longer one's. If both are
/// equal, as with clients that send at a fixed rate, the shorter one is preferred.
const PERCENT_WANTED_OF_LONGER: u64 = 102;
const PERCENT_WANTED_OF_SHORTER: u64 = 99;

/// Number of rounds between two trials. It increases while trials fail.
const ROUNDS_BETWEEN_TRIALS_MIN: u32 = 4;
const ROUNDS_BETWEEN_TRIALS_MAX: u32 = 16;

/// Number of rounds over which the rate of the settled pause is averaged: a new round has a weight
/// of one in this many.
const ROUNDS_REMEMBERED: u64 = 4;

/// Idle time after which the counts of the current round are discarded.
const SILENCE: Duration = Duration::from_millis(1);

/// Results of one waiter about pauses.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Index of the best pause so far.
    settled: usize,
    /// Requests per second with that pause, as a decaying average of recent rounds.
    settled_rate: u64,
    /// Index of the pause on trial in this round, if any.
    tried: Option<usize>,
    last_tried: usize,
    rounds_between_trials: u32,
    rounds_until_trial: u32,
    round: Round,
    last_batch: Duration,
}

#[derive(Debug, Default)]
struct Round {
    start: Duration,
    requests: u32,
    batches: u32,
}

impl Gathering {
    pub(crate) fn new() -> Self {
        Self {
            settled: 0,
            settled_rate: 0,
            tried: None,
            last_tried: 0,
            rounds_between_trials: ROUNDS_BETWEEN_TRIALS_MIN,
            rounds_until_trial: ROUNDS_BETWEEN_TRIALS_MIN,
            round: Round::default(),
            last_batch: Duration::ZERO,
        }
    }

    #[cfg(test)]
    pub(crate) fn settled_on_the_longest() -> Self {
        Self { settled: PAUSES.len() - 1, ..Self::new() }
    }

    /// Records an answered batch. Returns the pause before the next poll.
    pub(crate) fn answered(&mut self, now: Duration, requests: u32) -> Duration {
        let was_silent = now.saturating_sub(self.last_batch) > SILENCE;
        self.last_batch = now;
        if was_silent {
            self.tried = None;
            self.begin_round(now);
            return PAUSES[self.settled];
        }
        self.round.requests += requests;
        self.round.batches += 1;
        if self.brings_no_batches() {
            self.forget_pause();
            self.begin_round(now);
        } else if self.round.requests >= ROUND_REQUESTS {
            self.end_round(now);
            self.begin_round(now);
        }
        PAUSES[self.tried.unwrap_or(self.settled)]
    }

    /// Returns whether this round's pause produces only batches of one request.
    fn brings_no_batches(&self) -> bool {
        let Round { requests, batches, .. } = self.round;
        let pauses = self.tried.unwrap_or(self.settled) > 0;
        pauses && batches >= BATCHES_JUDGED && requests < batches + batches / 2
    }

    fn forget_pause(&mut self) {
        if self.tried.take().is_none() {
            self.settled = 0;
            self.settled_rate = 0;
        }
        self.trial_failed();
    }

    fn begin_round(&mut self, now: Duration) {
        self.round = Round { start: now, ..Round::default() };
    }

    fn end_round(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.round.start).max(Duration::from_nanos(1));
        let rate = u64::from(self.round.requests) * 1_000_000_000
            / u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        if let Some(tried) = self.tried.take() {
            self.judge(tried, rate);
            return;
        }
        self.settled_rate = match self.settled_rate {
            0 => rate,
            known => (known * (ROUNDS_REMEMBERED - 1) + rate) / ROUNDS_REMEMBERED,
        };
        self.rounds_until_trial -= 1;
        if self.rounds_until_trial == 0 {
            self.rounds_until_trial = self.rounds_between_trials;
            self.tried = Some(self.next_to_try());
        }
    }

    fn judge(&mut self, tried: usize, rate: u64) {
        let percent_wanted = match tried > self.settled {
            true => PERCENT_WANTED_OF_LONGER,
            false => PERCENT_WANTED_OF_SHORTER,
        };
        if rate * 100 <= self.settled_rate * percent_wanted {
            self.trial_failed();
            return;
        }
        self.settled = tried;
        self.settled_rate = rate;
        self.rounds_between_trials = ROUNDS_BETWEEN_TRIALS_MIN;
        self.rounds_until_trial = ROUNDS_BETWEEN_TRIALS_MIN;
    }

    fn trial_failed(&mut self) {
        self.rounds_between_trials =
            (self.rounds_between_trials * 2).min(ROUNDS_BETWEEN_TRIALS_MAX);
        self.rounds_until_trial = self.rounds_between_trials;
    }

    /// Selects the next pause to try. All pauses except the settled one take turns.
    fn next_to_try(&mut self) -> usize {
        self.last_tried = (self.last_tried + 1) % PAUSES.len();
        if self.last_tried == self.settled {
            self.last_tried = (self.last_tried + 1) % PAUSES.len();
        }
        self.last_tried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Serves `batch_count` batches. `batch` returns the number of requests after a pause, and the
    /// time until they are answered, including the pause. Returns the number of pauses.
    fn serve(
        gathering: &mut Gathering,
        batch_count: u32,
        batch: impl Fn(Duration) -> (u32, Duration),
    ) -> u32 {
        let (mut now, mut pause, mut pause_count) = (SILENCE * 2, Duration::ZERO, 0);
        for _ in 0..batch_count {
            let (requests, elapsed) = batch(pause);
            now += elapsed;
            pause = gathering.answered(now, requests);
            pause_count += u32::from(!pause.is_zero());
        }
        pause_count
    }

    fn single(pause: Duration) -> (u32, Duration) {
        (1, pause + MICROSECOND * 10)
    }

    /// A client with many requests in flight. Longer pauses produce larger batches with less time
    /// per request, as long as the client has work left.
    fn many(pause: Duration) -> (u32, Duration) {
        match pause.as_micros() {
            0 => (1, MICROSECOND * 6),
            5 => (2, MICROSECOND * 11),
            10 => (4, MICROSECOND * 20),
            _ => (4, MICROSECOND * 30),
        }
    }

    fn paced(pause: Duration) -> (u32, Duration) {
        let requests = 1 + u32::try_from(pause.as_micros()).expect("short") / 3;
        (requests, MICROSECOND * 6 * requests)
    }

    #[track_caller]
    fn check_settled(batch: fn(Duration) -> (u32, Duration), expected_us: u64) {
        for settled in 0..PAUSES.len() {
            let mut gathering = Gathering { settled, ..Gathering::new() };
            serve(&mut gathering, 200_000, batch);
            assert_eq!(PAUSES[gathering.settled], Duration::from_micros(expected_us));
        }
    }

    #[test]
    fn the_pause_that_brings_most_requests_is_found_from_everywhere() {
        check_settled(many, 10);
    }

    #[test]
    fn a_client_that_waits_for_each_reply_is_not_kept_waiting() {
        check_settled(single, 0);
    }

    #[test]
    fn a_client_with_a_pace_of_its_own_is_not_kept_waiting() {
        check_settled(paced, 0);
    }

    #[test]
    fn a_client_that_waits_for_each_reply_hardly_ever_sees_a_trial() {
        let pause_count = serve(&mut Gathering::new(), 1_000_000, single);
        assert!(pause_count < 500, "{pause_count} pauses for a million requests");
    }

    #[test]
    fn a_client_that_begins_to_wait_for_each_reply_is_noticed_within_a_few() {
        let mut gathering = Gathering { settled: 2, ..Gathering::new() };
        assert!(serve(&mut gathering, 100, single) <= BATCHES_JUDGED);
    }

    #[test]
    fn silence_is_not_counted_against_a_pause() {
        let mut gathering = Gathering { settled: 2, ..Gathering::new() };
        serve(&mut gathering, 10_000, many);
        let rate = gathering.settled_rate;
        gathering.answered(Duration::from_secs(3600), 4);
        assert_eq!((gathering.settled_rate, gathering.settled), (rate, 2));
        assert_eq!(gathering.round.requests, 0);
    }
}
