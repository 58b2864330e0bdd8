//! A partition whose current values are maintained.

use std::sync::Arc;
use std::time::Duration;

use record_log::PinnedLog;
use tokio::time::Instant;
use values::{Change, CheckpointStep, Follower, OnChange, Opening, Secret, SweepStep, ValuesError};

use crate::topics::{FeedWriter, OpenPartition, OpenTopic, random_id};

/// Maximum bytes of a read, and reads of a partition per round, so that others need not wait long.
const READ_BYTES: usize = 1 << 20;
const READS_MAX: usize = 8;

/// Maximum steps of a sweep of expired values, of 1 MiB each.
const SWEEP_STEPS_MAX: usize = 16;

/// Delays before retries after errors.
const FOLLOW_AGAIN: Duration = Duration::from_secs(5);
const CHECKPOINT_AGAIN: Duration = Duration::from_secs(60);

/// Reason of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// A partition has new records.
    More,
    /// A second has passed.
    Look,
}

pub(super) struct Followed {
    topic: Arc<OpenTopic>,
    pub(super) partition: Arc<OpenPartition>,
    follower: Option<Follower>,
    /// Time of the next attempt to open.
    open_at: Instant,
    checkpoint_at: Instant,
    is_sweeping: bool,
}

impl Followed {
    pub(super) fn new(topic: Arc<OpenTopic>, partition: Arc<OpenPartition>) -> Self {
        let now = Instant::now();
        Self {
            topic,
            partition,
            follower: None,
            open_at: now,
            checkpoint_at: now,
            is_sweeping: false,
        }
    }

    /// Applies new records, up to a limit. Returns whether more can be done immediately.
    pub(super) fn go_on(&mut self, round: Round) -> bool {
        if self.follower.is_none() {
            if Instant::now() < self.open_at {
                return false;
            }
            self.follower = self.open();
        }
        let Some(mut follower) = self.follower.take() else { return false };
        match self.follow(&mut follower, round) {
            Ok(is_behind) => {
                let is_writing = self.write_checkpoint(&mut follower);
                self.follower = Some(follower);
                is_behind || is_writing
            }
            Err(error) => {
                self.tell("cannot read the log; retrying", &error);
                self.partition.set_values(None);
                self.partition.feeds.break_all();
                self.open_at = Instant::now() + FOLLOW_AGAIN;
                false
            }
        }
    }

    /// Writes a checkpoint before the broker ends, if time permits.
    pub(super) fn end(&mut self, deadline: Instant) {
        let Some(follower) = &mut self.follower else { return };
        if follower.is_checkpoint_current() {
            return;
        }
        let partition_count = self.topic.log.partition_count();
        let mut written = follower.begin_checkpoint(partition_count).map(|_| CheckpointStep::More);
        while matches!(written, Ok(CheckpointStep::More))
            && follower.is_writing_checkpoint()
            && Instant::now() < deadline
        {
            written = follower.step_checkpoint();
        }
        if let Err(error) = written {
            self.tell("cannot write a checkpoint at shutdown", &error);
        }
    }

    fn open(&mut self) -> Option<Follower> {
        let log = Arc::clone(&self.partition.log);
        match Follower::open(log, Secret(random_id())) {
            Ok((follower, opening)) => {
                let (topic, partition) = (&self.topic.name, self.partition.log.number());
                match opening {
                    Opening::Refused { why } => {
                        tracing::warn!(%topic, partition, why, "ignoring an invalid checkpoint");
                    }
                    _ => tracing::debug!(%topic, partition, ?opening, "following current values"),
                }
                self.partition.set_values(Some(Arc::clone(follower.values())));
                Some(follower)
            }
            Err(error) => {
                self.tell("cannot start reading the log; retrying", &error);
                self.open_at = Instant::now() + FOLLOW_AGAIN;
                None
            }
        }
    }

    fn follow(&mut self, follower: &mut Follower, round: Round) -> Result<bool, ValuesError> {
        if round == Round::Look {
            follower.values().set_ttl(self.topic.settings().values_ttl_ms);
        }
        let feeds = self.partition.feeds.held(follower.values());
        let mut writer = FeedWriter::new(&feeds);
        let mut on_change = |change: Change<'_>, log: &PinnedLog| writer.tell(&change, log);
        let mut on_change: Option<OnChange<'_>> =
            if feeds.is_empty() { None } else { Some(&mut on_change) };
        let is_there = self.partition.log.last_stable_offset() == follower.values().applied();
        let mut is_behind = !is_there;
        if !is_there || round == Round::Look {
            for _ in 0..READS_MAX {
                is_behind = follower.follow(READ_BYTES, reborrow(&mut on_change))?.is_behind;
                if !is_behind {
                    break;
                }
            }
        }
        if round == Round::Look || self.is_sweeping {
            self.is_sweeping = false;
            let now_ms = crate::clock::unix_ms();
            for _ in 0..SWEEP_STEPS_MAX {
                let step = follower.sweep(now_ms, reborrow(&mut on_change))?;
                self.is_sweeping = step == SweepStep::More;
                if !self.is_sweeping {
                    break;
                }
            }
        }
        writer.end(follower.values().applied())?;
        Ok(is_behind || self.is_sweeping)
    }

    /// Starts a checkpoint if due, or writes a part of it. Returns whether more must be written.
    fn write_checkpoint(&mut self, follower: &mut Follower) -> bool {
        let written = if follower.is_writing_checkpoint() {
            follower.step_checkpoint().map(|step| step == CheckpointStep::More)
        } else if Instant::now() >= self.checkpoint_at && follower.is_checkpoint_due() {
            follower.begin_checkpoint(self.topic.log.partition_count())
        } else {
            return false;
        };
        match written {
            Ok(true) => true,
            Ok(false) => {
                if follower.is_checkpoint_due() {
                    // It does not fit.
                    self.checkpoint_at = Instant::now() + CHECKPOINT_AGAIN;
                }
                false
            }
            Err(error) => {
                self.tell("cannot write a checkpoint; retrying", &error);
                self.checkpoint_at = Instant::now() + CHECKPOINT_AGAIN;
                false
            }
        }
    }

    fn tell(&self, what: &str, error: &ValuesError) {
        if self.topic.is_deleted() {
            return;
        }
        let (topic, partition) = (&self.topic.name, self.partition.log.number());
        let error: &dyn std::error::Error = error;
        tracing::warn!(%topic, partition, error, "current values: {what}");
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.partition.set_values(None);
        self.partition.feeds.break_all();
    }
}

fn reborrow<'a>(on_change: &'a mut Option<OnChange<'_>>) -> Option<OnChange<'a>> {
    match on_change {
        Some(told) => Some(&mut **told),
        None => None,
    }
}
