//! Group commit that clocks itself.
//!
//! ```text
//! leader of group 1   ── writes ──┐
//! flush               joins 2 ····├─▶ leads group 2, and the others that joined it follow
//! flush               joins 2 ····┘
//! ```
//!
//! A flush joins the group that gathers. While one group is written the next one gathers; when it
//! is over, one thread that waits leads them. No timer and no thread of its own: the disk's speed
//! decides how many share a commit.
//!
//! What a leader writes with is handed from leader to leader, so that no lock is held while the
//! disk is waited for. Other threads may borrow it between two commits.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Commits one after the other. A leader writes with `Tool`; `Outcome` is what all of its group are
/// told.
#[derive(Debug)]
pub(crate) struct GroupCommit<Tool, Outcome> {
    state: Mutex<State<Tool, Outcome>>,
    /// The tool is back, or a nudge came: for borrowers and for a leader that rests.
    changed: Condvar,
}

/// Where the threads of a group wait for its outcome, or for being its leader.
#[derive(Debug)]
struct Group<Outcome> {
    outcome: OnceLock<Outcome>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<Tool, Outcome> {
    /// With the leader or a borrower when it is not here.
    tool: Option<Tool>,
    /// The volumes that the group that gathers flushes, and where its outcome will be.
    volume_ids: Vec<u64>,
    gathering: Arc<Group<Outcome>>,
    has_leader: bool,
    borrower_count: usize,
    /// Grows when a leader that rests should try again.
    nudges: u64,
}

/// Role of a thread that joined.
#[derive(Debug)]
pub(crate) enum Role<Tool, Outcome> {
    /// Another thread led the group.
    Follower(Outcome),
    /// The caller leads: it flushes the volumes and then calls [`GroupCommit::end`].
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

    /// Joins the group that gathers, and waits until it is over or the caller's to lead.
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

    /// Ends a group: all that joined it are told, and the next one may begin.
    pub(crate) fn end(&self, leader: Leader<Tool, Outcome>, outcome: Outcome) -> Outcome {
        let Leader { tool, volume_ids, group } = leader;
        group.outcome.get_or_init(|| outcome.clone());
        let mut state = self.lock();
        state.has_leader = false;
        self.put_back(state, tool);
        // A call to the kernel, for nothing where the leader is the only one.
        if volume_ids.len() > 1 {
            group.changed.notify_all();
        }
        outcome
    }

    /// Lets other threads borrow the tool until `time` is over or a nudge comes. The group is still
    /// the caller's; a thread that joins meanwhile waits for the next one.
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

    /// Number of threads that have joined the group that gathers.
    pub(crate) fn gathered_count(&self) -> usize {
        self.lock().volume_ids.len()
    }

    /// Ends the rest of a leader.
    pub(crate) fn nudge(&self) {
        self.lock().nudges += 1;
        self.changed.notify_all();
    }

    /// Uses the tool between two commits, or while a leader rests. Waits for the commit that is
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

    /// Puts the tool back and wakes the threads that may want it: one of the next group first, so
    /// that the disk rests as short as possible.
    fn put_back(&self, mut state: MutexGuard<'_, State<Tool, Outcome>>, tool: Tool) {
        state.tool = Some(tool);
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

    /// Whatever comes between, each thread that joined is told the outcome of a group that began
    /// after: none is forgotten.
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
                groups.nudge();
            }
        });
        assert_eq!(done.into_inner(), 4 * ROUNDS);
        assert_eq!(groups.borrow(|tool| *tool), 4 * ROUNDS, "each flush was served once");
    }
}
