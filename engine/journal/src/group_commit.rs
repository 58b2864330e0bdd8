//! Self-clocking group commit.
//!
//! ```text
//! leader of group 1   ── writes ──┐
//! flush               joins 2 ····├─▶ one leads group 2, the others follow
//! flush               joins 2 ····┘
//! ```
//!
//! A flush joins the gathering group. While one group is written, the next one gathers. When the
//! write ends, one waiting thread leads the next group. There is no timer and no dedicated thread:
//! the speed of the disk determines how many flushes share a commit.
//!
//! The leader's tool for writing passes from leader to leader, so that no lock is held across disk
//! I/O. Other threads may borrow it between two commits.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Serializes commits. A leader writes with `Tool`. All members of its group receive the same
/// `Outcome`.
#[derive(Debug)]
pub(crate) struct GroupCommit<Tool, Outcome> {
    state: Mutex<State<Tool, Outcome>>,
    /// Signals borrowers and a resting leader that the tool is back or a nudge came.
    changed: Condvar,
}

/// Synchronization point where members of a group wait for its outcome or to become its leader.
#[derive(Debug)]
struct Group<Outcome> {
    outcome: OnceLock<Outcome>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<Tool, Outcome> {
    /// `None` while a leader or borrower has it.
    tool: Option<Tool>,
    /// Volumes that the gathering group flushes, and the group itself.
    volume_ids: Vec<u64>,
    gathering: Arc<Group<Outcome>>,
    has_leader: bool,
    borrower_count: usize,
    /// Incremented when a resting leader should retry.
    nudges: u64,
}

/// Prevents new commits until it is dropped. Its owner and others may borrow the tool.
#[derive(Debug)]
pub(crate) struct Turn<'groups, Tool, Outcome: Clone>(&'groups GroupCommit<Tool, Outcome>);

/// Role of a thread after joining a group.
#[derive(Debug)]
pub(crate) enum Role<Tool, Outcome> {
    /// Another thread led the group.
    Follower(Outcome),
    /// The caller leads. It flushes the volumes and then calls [`GroupCommit::end`].
    Leader(Leader<Tool, Outcome>),
}

/// The right to lead one group.
#[derive(Debug)]
pub(crate) struct Leader<Tool, Outcome> {
    pub(crate) tool: Tool,
    pub(crate) volume_ids: Vec<u64>,
    group: Arc<Group<Outcome>>,
}

impl<Tool, Outcome: Clone> GroupCommit<Tool, Outcome> {
    pub(crate) fn new(tool: Tool) -> Self {
        let state = State {
            tool: Some(tool),
            volume_ids: Vec::new(),
            gathering: Arc::new(Group::new()),
            has_leader: false,
            borrower_count: 0,
            nudges: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Joins the gathering group. Blocks until the group has ended or the caller becomes its
    /// leader.
    pub(crate) fn join(&self, volume_id: u64) -> Role<Tool, Outcome> {
        let mut state = self.lock();
        state.volume_ids.push(volume_id);
        let group = Arc::clone(&state.gathering);
        loop {
            if let Some(outcome) = group.outcome.get() {
                return Role::Follower(outcome.clone());
            }
            if !state.has_leader
                && state.borrower_count == 0
                && let Some(tool) = state.tool.take()
            {
                state.has_leader = true;
                let volume_ids = mem::take(&mut state.volume_ids);
                state.gathering = Arc::new(Group::new());
                return Role::Leader(Leader { tool, volume_ids, group });
            }
            state = wait(&group.changed, state);
        }
    }

    /// Ends a group. Its members receive the outcome, and the next group may begin.
    pub(crate) fn end(&self, leader: Leader<Tool, Outcome>, outcome: Outcome) -> Outcome {
        let Leader { tool, volume_ids, group } = leader;
        group.outcome.get_or_init(|| outcome.clone());
        let mut state = self.lock();
        state.has_leader = false;
        self.put_back(state, tool);
        // Avoids a system call if the leader is the only member.
        if volume_ids.len() > 1 {
            group.changed.notify_all();
        }
        outcome
    }

    /// Lets other threads borrow the tool for `time` or until a nudge. The caller still leads its
    /// group. Threads that join meanwhile belong to the next group.
    pub(crate) fn rest(
        &self,
        leader: Leader<Tool, Outcome>,
        time: Duration,
    ) -> Leader<Tool, Outcome> {
        let Leader { tool, volume_ids, group } = leader;
        let mut state = self.lock();
        let nudges = state.nudges;
        state.tool = Some(tool);
        self.changed.notify_all();
        let is_quiet = |state: &mut State<Tool, Outcome>| state.nudges == nudges;
        let (woken, _) =
            self.changed.wait_timeout_while(state, time, is_quiet).expect(NEVER_POISONED);
        state = woken;
        loop {
            if state.borrower_count == 0
                && let Some(tool) = state.tool.take()
            {
                return Leader { tool, volume_ids, group };
            }
            state = wait(&self.changed, state);
        }
    }

    /// Returns the number of threads in the gathering group.
    pub(crate) fn gathered_count(&self) -> usize {
        self.lock().volume_ids.len()
    }

    /// Wakes a resting leader.
    pub(crate) fn nudge(&self) {
        self.lock().nudges += 1;
        self.changed.notify_all();
    }

    /// Uses the tool between two commits, or while a leader rests. Blocks while a commit is
    /// written. The next commit starts afterwards.
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

    /// Waits until no commit is written, for at most `time_max` if there is a limit. No new commit
    /// begins before the result is dropped. Returns `None` if the commit took too long.
    pub(crate) fn turn(&self, time_max: Option<Duration>) -> Option<Turn<'_, Tool, Outcome>> {
        self.lock().borrower_count += 1;
        let turn = Turn(self);
        let is_busy = |state: &mut State<Tool, Outcome>| state.tool.is_none();
        let state = self.lock();
        let state = match time_max {
            None => self.changed.wait_while(state, is_busy).expect(NEVER_POISONED),
            Some(time) => {
                let woken = self.changed.wait_timeout_while(state, time, is_busy);
                woken.expect(NEVER_POISONED).0
            }
        };
        let is_free = state.tool.is_some();
        drop(state);
        is_free.then_some(turn)
    }

    /// Returns the tool and wakes waiting threads: first one of the next group, to keep the disk
    /// busy.
    fn put_back(&self, mut state: MutexGuard<'_, State<Tool, Outcome>>, tool: Tool) {
        state.tool = Some(tool);
        self.wake(state);
    }

    fn wake(&self, state: MutexGuard<'_, State<Tool, Outcome>>) {
        let next = (!state.volume_ids.is_empty()).then(|| Arc::clone(&state.gathering));
        let others_wait = state.borrower_count > 0 || state.has_leader;
        drop(state);
        if let Some(next) = next {
            next.changed.notify_one();
        }
        if others_wait {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<Tool, Outcome>> {
        self.state.lock().expect(NEVER_POISONED)
    }
}

impl<Tool, Outcome: Clone> Drop for Turn<'_, Tool, Outcome> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.borrower_count -= 1;
        self.0.wake(state);
    }
}

const NEVER_POISONED: &str = "no thread panics with the groups locked";

impl<Outcome> Group<Outcome> {
    fn new() -> Self {
        Self { outcome: OnceLock::new(), changed: Condvar::new() }
    }
}

fn wait<'groups, State>(
    changed: &Condvar,
    state: MutexGuard<'groups, State>,
) -> MutexGuard<'groups, State> {
    changed.wait(state).expect(NEVER_POISONED)
}

#[cfg(test)]
mod tests {
    use sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Whatever the interleaving, each thread that joined receives the outcome of a group that
    /// began later. No thread is left waiting.
    #[test]
    fn leaders_borrowers_and_resting_leaders_hand_the_tool_on() {
        const ROUNDS: u64 = 2000;
        let groups: GroupCommit<u64, u64> = GroupCommit::new(0);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (groups, done) = (&groups, &done);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        match groups.join(round) {
                            Role::Follower(_) => {}
                            Role::Leader(mut leader) => {
                                if round % 7 == thread {
                                    leader = groups.rest(leader, Duration::from_micros(1));
                                }
                                leader.tool += leader.volume_ids.len() as u64;
                                let told = leader.tool;
                                groups.end(leader, told);
                            }
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..ROUNDS {
                groups.borrow(|tool| *tool += 0);
                let turn = groups.turn(None).expect("it waits without a limit");
                let before = groups.borrow(|tool| *tool);
                assert_eq!(groups.borrow(|tool| *tool), before, "no commit begins meanwhile");
                drop(turn);
                groups.nudge();
            }
        });
        assert_eq!(done.into_inner(), 4 * ROUNDS);
        assert_eq!(groups.borrow(|tool| *tool), 4 * ROUNDS, "each flush was served once");
    }
}
