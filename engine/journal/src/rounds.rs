//! Group commit that clocks itself.
//!
//! ```text
//! leader of round 1   ── writes ──┐
//! flusher             joins 2 ····├─▶ leads round 2, which serves all that joined it
//! flusher             joins 2 ····┘
//! ```
//!
//! Whoever flushes joins the round that has not begun. While one round is written the next one
//! gathers; when it is over, one of those that wait leads them. No timer and no thread of its own:
//! the disk's speed decides how many share a round.
//!
//! What a leader works with is handed from leader to leader, so that no lock is held while the
//! disk is waited for. Others may borrow it between two rounds.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The rounds of commits. `Tool` is what a leader needs, `Wish` what a flusher wants done,
/// `Outcome` what all of a round are told.
#[derive(Debug)]
pub(crate) struct Rounds<Tool, Wish, Outcome> {
    state: Mutex<State<Tool, Wish, Outcome>>,
    /// The tool is back, or a nudge came: for borrowers and for a leader that rests.
    changed: Condvar,
}

/// Where those who joined a round wait for its outcome, or for being its leader.
#[derive(Debug)]
struct Round<Outcome> {
    outcome: OnceLock<Outcome>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<Tool, Wish, Outcome> {
    /// With the leader or a borrower when it is not here.
    tool: Option<Tool>,
    /// Wishes of the round that has not begun, and where its outcome will be.
    wishes: Vec<Wish>,
    gathering: Arc<Round<Outcome>>,
    has_leader: bool,
    borrower_count: usize,
    /// Grows when a leader that rests should try again.
    nudges: u64,
}

/// What becomes of somebody who joined.
#[derive(Debug)]
pub(crate) enum Turn<Tool, Wish, Outcome> {
    /// Another led the round.
    Done(Outcome),
    /// The caller leads: it does what is wished and then calls [`Rounds::end`].
    Lead(Lead<Tool, Wish, Outcome>),
}

/// The right to lead one round.
#[derive(Debug)]
pub(crate) struct Lead<Tool, Wish, Outcome> {
    pub(crate) tool: Tool,
    pub(crate) wishes: Vec<Wish>,
    round: Arc<Round<Outcome>>,
}

impl<Tool, Wish, Outcome: Clone> Rounds<Tool, Wish, Outcome> {
    pub(crate) fn new(tool: Tool) -> Self {
        let state = State {
            tool: Some(tool),
            wishes: Vec::new(),
            gathering: Arc::new(Round::new()),
            has_leader: false,
            borrower_count: 0,
            nudges: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Joins the round that has not begun, and waits until it is over or the caller's to lead.
    pub(crate) fn join(&self, wish: Wish) -> Turn<Tool, Wish, Outcome> {
        let mut state = self.lock();
        state.wishes.push(wish);
        let round = Arc::clone(&state.gathering);
        loop {
            if let Some(outcome) = round.outcome.get() {
                return Turn::Done(outcome.clone());
            }
            if !state.has_leader
                && state.borrower_count == 0
                && let Some(tool) = state.tool.take()
            {
                state.has_leader = true;
                let wishes = mem::take(&mut state.wishes);
                state.gathering = Arc::new(Round::new());
                return Turn::Lead(Lead { tool, wishes, round });
            }
            state = wait(&round.changed, state);
        }
    }

    /// Ends a round: all that joined it are told, and the next one may begin.
    pub(crate) fn end(&self, lead: Lead<Tool, Wish, Outcome>, outcome: Outcome) -> Outcome {
        let Lead { tool, wishes, round } = lead;
        round.outcome.get_or_init(|| outcome.clone());
        let mut state = self.lock();
        state.has_leader = false;
        self.put_back(state, tool);
        // A call to the kernel, for nothing where the leader is the only one.
        if wishes.len() > 1 {
            round.changed.notify_all();
        }
        outcome
    }

    /// Lets others borrow the tool until `time` is over or somebody nudges. The round is still the
    /// caller's; who joins meanwhile waits for the next one.
    pub(crate) fn rest(
        &self,
        lead: Lead<Tool, Wish, Outcome>,
        time: Duration,
    ) -> Lead<Tool, Wish, Outcome> {
        let Lead { tool, wishes, round } = lead;
        let mut state = self.lock();
        let nudges = state.nudges;
        state.tool = Some(tool);
        self.changed.notify_all();
        let is_quiet = |state: &mut State<Tool, Wish, Outcome>| state.nudges == nudges;
        let (woken, _) = self
            .changed
            .wait_timeout_while(state, time, is_quiet)
            .expect("nobody panics with the rounds locked");
        state = woken;
        loop {
            if state.borrower_count == 0
                && let Some(tool) = state.tool.take()
            {
                return Lead { tool, wishes, round };
            }
            state = wait(&self.changed, state);
        }
    }

    /// How many have joined the round that has not begun.
    pub(crate) fn gathered_count(&self) -> usize {
        self.lock().wishes.len()
    }

    /// Ends the rest of a leader.
    pub(crate) fn nudge(&self) {
        self.lock().nudges += 1;
        self.changed.notify_all();
    }

    /// Uses the tool between two rounds, or while a leader rests. Waits for the round that is
    /// being written; the next one begins afterwards.
    pub(crate) fn borrow<Answer>(&self, work: impl FnOnce(&mut Tool) -> Answer) -> Answer {
        let mut state = self.lock();
        state.borrower_count += 1;
        let mut tool = loop {
            if let Some(tool) = state.tool.take() {
                break tool;
            }
            state = wait(&self.changed, state);
        };
        drop(state);
        let answer = work(&mut tool);
        let mut state = self.lock();
        state.borrower_count -= 1;
        self.put_back(state, tool);
        answer
    }

    /// Puts the tool back and wakes who may want it: one of the next round first, so that the disk
    /// rests as short as possible.
    fn put_back(&self, mut state: Guard<'_, Tool, Wish, Outcome>, tool: Tool) {
        state.tool = Some(tool);
        let next = (!state.wishes.is_empty()).then(|| Arc::clone(&state.gathering));
        let others_wait = state.borrower_count > 0 || state.has_leader;
        drop(state);
        if let Some(next) = next {
            next.changed.notify_one();
        }
        if others_wait {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> Guard<'_, Tool, Wish, Outcome> {
        self.state.lock().expect("nobody panics with the rounds locked")
    }
}

type Guard<'rounds, Tool, Wish, Outcome> = MutexGuard<'rounds, State<Tool, Wish, Outcome>>;

impl<Outcome> Round<Outcome> {
    fn new() -> Self {
        Self { outcome: OnceLock::new(), changed: Condvar::new() }
    }
}

fn wait<'rounds, State>(
    changed: &Condvar,
    state: MutexGuard<'rounds, State>,
) -> MutexGuard<'rounds, State> {
    changed.wait(state).expect("nobody panics with the rounds locked")
}

#[cfg(test)]
mod tests {
    use sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Whatever comes between, everybody who joined is told the outcome of a round that began
    /// after: none is forgotten.
    #[test]
    fn leaders_borrowers_and_resting_leaders_hand_the_tool_on() {
        const ROUNDS: u64 = 2000;
        let rounds: Rounds<u64, u64, u64> = Rounds::new(0);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (rounds, done) = (&rounds, &done);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        match rounds.join(round) {
                            Turn::Done(_) => {}
                            Turn::Lead(mut lead) => {
                                if round % 7 == thread {
                                    lead = rounds.rest(lead, Duration::from_micros(1));
                                }
                                lead.tool += lead.wishes.len() as u64;
                                let told = lead.tool;
                                rounds.end(lead, told);
                            }
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..ROUNDS {
                rounds.borrow(|tool| *tool += 0);
                rounds.nudge();
            }
        });
        assert_eq!(done.into_inner(), 4 * ROUNDS);
        assert_eq!(rounds.borrow(|tool| *tool), 4 * ROUNDS, "each wish was served once");
    }
}
