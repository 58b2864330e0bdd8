//! Time to leave a client alone, so that its requests come in batches.
//!
//! A client that keeps many requests in flight and a thread that answers each at once work on the
//! same queues at the same time, request by request, and slow each other down: the lines of memory
//! that both write wander to and fro, and nothing is ever done for two requests at once. Looking
//! less often ends that, and costs nothing as long as the client has replies to work on meanwhile.
//! For how long that is cannot be seen from here, so pauses of different lengths are tried, and the
//! one stays that brings the most requests in a given time. A client that waits for each reply
//! loses by every pause; that shows within a few requests.

use std::time::Duration;

/// The pauses to choose from. A longer one brought nothing more, and would be felt.
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_micros(5),
    Duration::from_micros(10),
    Duration::from_micros(20),
];

/// Requests after which a pause is judged.
const ROUND_REQUESTS: u32 = 512;

/// Looks after which a pause has to have brought batches.
const BATCHES_JUDGED: u32 = 4;

/// A longer pause must bring more than this share of the requests that the shorter one brought,
/// and the shorter one at least this share of what the longer did: the shorter is better if both
/// are alike, as with clients that send their requests at a pace of their own.
const PERCENT_WANTED_OF_LONGER: u64 = 102;
const PERCENT_WANTED_OF_SHORTER: u64 = 99;

/// Rounds from one trial to the next: more and more, while trials fail.
const ROUNDS_BETWEEN_TRIALS_MIN: u32 = 4;
const ROUNDS_BETWEEN_TRIALS_MAX: u32 = 16;

/// The share of one round in the rate of the settled pause is one in this many.
const ROUNDS_REMEMBERED: u64 = 4;

/// After so long without a request, what was counted of a round says nothing.
const SILENCE: Duration = Duration::from_millis(1);

/// Findings of one waiter about pauses.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Index of the pause that has proved best so far.
    settled: usize,
    /// Requests in a second with it: a decaying average of recent rounds.
    settled_rate: u64,
    /// Index of the pause that is tried in this round, if one is.
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

    /// A batch of so many requests was answered. Returns how long to pause before looking for more.
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

    /// Whether this round pauses although there is only one request to gather each time.
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

    /// All pauses but the settled one take turns.
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

    /// Serves `batch_count` batches: `batch` says how many requests there are after a pause, and
    /// how long it takes with the pause until they are answered. Returns how many pauses there
    /// were.
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

    /// Every pause lets requests come together, each in less time the more they are, as long as
    /// the client has something left to do.
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
