//! Follower thread and its partitions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::followed::{Followed, Round};
use crate::topics::Topics;

/// Interval of checks of idle topics.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for the last checkpoints of all partitions.
const LAST_CHECKPOINTS_TIME_MAX: Duration = Duration::from_secs(3);

/// Subset of all partitions that one thread follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) number: usize,
    pub(super) count: usize,
}

impl Share {
    fn has(self, topic: Uuid, partition: u32) -> bool {
        let [.., last] = topic.into_bytes();
        let mixed = usize::from(last) + usize::try_from(partition).unwrap_or(0);
        mixed % self.count == self.number
    }
}

pub(super) struct Worker {
    topics: Arc<Topics>,
    share: Share,
    followed: HashMap<(Uuid, u32), Followed>,
    /// Notified when a partition has new records.
    notify: Arc<Notify>,
}

impl Worker {
    pub(super) fn new(topics: Arc<Topics>, share: Share) -> Self {
        Self { topics, share, followed: HashMap::new(), notify: Arc::default() }
    }

    pub(super) async fn run(mut self, mut stops: watch::Receiver<bool>) {
        let mut next_look = Instant::now();
        while !*stops.borrow() {
            let is_look = Instant::now() >= next_look;
            if is_look {
                self.find_partitions();
                next_look = Instant::now() + INTERVAL;
            }
            let round = if is_look { Round::Look } else { Round::More };
            let mut is_behind = false;
            for followed in self.followed.values_mut() {
                // First: later records notify again.
                followed.partition.watchers.add(&self.notify);
                is_behind |= followed.go_on(round);
            }
            if !is_behind {
                tokio::select! {
                    () = self.notify.notified() => {}
                    () = tokio::time::sleep_until(next_look) => {}
                    // Also returns if the sender is gone.
                    _ = stops.changed() => {}
                }
            }
        }
        let deadline = Instant::now() + LAST_CHECKPOINTS_TIME_MAX;
        for followed in self.followed.values_mut() {
            followed.end(deadline);
        }
    }

    /// Starts following partitions whose topics keep current values, and stops following others.
    fn find_partitions(&mut self) {
        let mut before = std::mem::take(&mut self.followed);
        for topic in self.topics.all() {
            if !topic.settings().keeps_values {
                continue;
            }
            for partition in topic.partitions().iter() {
                let key = (topic.id, partition.log.number());
                if self.share.has(key.0, key.1) {
                    let known = before.remove(&key);
                    let followed = known.unwrap_or_else(|| {
                        Followed::new(Arc::clone(&topic), Arc::clone(partition))
                    });
                    self.followed.insert(key, followed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use model::{Random, for_each_seed};
    use record_batch::{BatchOptions, NewRecord, encode_batch};
    use record_log::Batch;

    use super::*;
    use crate::clock;
    use crate::storage::{Embedded, EmbeddedPool};
    use crate::topics::{
        Broken, ChangeFeed, FeedItem, KeptRecord, NewTopic, OpenPartition, OpenTopic,
    };

    const WAIT_MAX: Duration = Duration::from_secs(60);

    fn publish(topic: &Arc<OpenTopic>, key: &'static str, value: Option<&'static str>) {
        let record = NewRecord {
            key: Some(key.into()),
            value: value.map(Into::into),
            timestamp_ms: clock::unix_ms(),
            ..NewRecord::default()
        };
        let mut bytes = encode_batch(&[record], &BatchOptions::default()).expect("one").to_vec();
        let (mut batch, _) = Batch::split_first(&mut bytes).expect("a good batch");
        let partition = topic.partition(0).expect("it is there");
        partition.log.append(&mut batch, clock::unix_ms()).expect("there is room");
        topic.flush().expect("it flushes");
    }

    fn get(partition: &OpenPartition, key: &str) -> Option<String> {
        let values = partition.values()?;
        let now_ms = clock::unix_ms();
        let found = values.get(key.as_bytes(), now_ms, &mut Vec::new(), |record| {
            String::from_utf8(record.value.expect("no tombstone").to_vec()).expect("text")
        });
        found.ok().flatten()
    }

    #[track_caller]
    fn wait_for(mut what: impl FnMut() -> bool) {
        let begin = std::time::Instant::now();
        while !what() {
            assert!(begin.elapsed() < WAIT_MAX, "it does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    struct Running(watch::Sender<bool>, super::super::FollowingThreads);

    impl Running {
        fn start(topics: &Arc<Topics>) -> Self {
            let (stop, stops) = watch::channel(false);
            let threads = super::super::FollowingThreads::start(topics, &stops);
            Self(stop, threads.expect("they start"))
        }

        fn stop(self) {
            self.0.send_replace(true);
            self.1.join();
        }
    }

    fn prices(topics: &Topics) -> Arc<OpenTopic> {
        let settings = BTreeMap::from([("memlane.values".to_owned(), "latest".to_owned())]);
        let (name, is_derived) = ("prices".to_owned(), false);
        let new = NewTopic {
            name,
            partition_count: 1,
            settings,
            is_derived,
            owner: shares::Owner::NOBODY,
        };
        topics.create(&new).expect("there is room")
    }

    /// A feed that was added at some time, and the values received from it.
    struct Joined {
        feed: Arc<ChangeFeed>,
        values: Option<BTreeMap<Bytes, KeptRecord>>,
        applied: i64,
    }

    impl Joined {
        fn go_on(&mut self) {
            let mut items = Vec::new();
            self.applied = self.feed.take(&mut items).expect("it is not broken");
            for item in items {
                match item {
                    FeedItem::Snapshot(snapshot) => {
                        let mut there = BTreeMap::new();
                        let mut scan = snapshot.scan_all();
                        let mut keep = |record: &record_batch::Record<'_>| {
                            let kept = KeptRecord::of(record);
                            there.insert(kept.key.clone().expect("values have keys"), kept);
                        };
                        while scan.step(i64::MIN, &mut keep).expect("it is there")
                            == values::ScanStep::More
                        {}
                        if let Some(told) = &self.values {
                            assert_eq!(*told, there, "a snapshot between changes");
                        }
                        self.values = Some(there);
                    }
                    FeedItem::Change(change) => {
                        let values = self.values.as_mut().expect("the snapshot comes first");
                        let key = Bytes::copy_from_slice(change.key().expect("values have keys"));
                        let old = match &change.new {
                            Some(new) => values.insert(key, new.clone()),
                            None => values.remove(&key),
                        };
                        assert_eq!(old, change.old, "the old value is the one that was told");
                    }
                }
            }
        }
    }

    /// Goal: a snapshot and the changes after it have no gaps or duplicates.
    #[test]
    fn who_joins_at_any_time_is_told_of_each_change_once() {
        for_each_seed("cargo test -p broker who_joins_at_any_time", 2, join_often);
    }

    fn join_often(seed: u64) {
        const JOINS: usize = 2_000;
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is made");
        let pool = EmbeddedPool { size_bytes: 64 << 20, file: Some(folder.path().join("pool")) };
        let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
        let topics = Topics::open(storage, BTreeMap::new()).expect("it opens");
        let topic = prices(&topics);
        let partition = topic.partition(0).expect("it is there");
        let running = Running::start(&topics);
        let mut random = Random::new(seed);
        let mut joined: Vec<Joined> = Vec::new();
        for _ in 0..JOINS {
            for _ in 0..random.below(4) {
                const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
                const VALUES: [Option<&str>; 4] = [None, Some("1"), Some("2"), Some("3")];
                publish(&topic, KEYS[random.index(8)], VALUES[random.index(4)]);
            }
            let feed = partition.feeds.add(Arc::default());
            partition.watchers.wake();
            joined.push(Joined { feed, values: None, applied: 0 });
            if random.below(3) == 0 {
                let at = random.index(joined.len());
                joined[at].feed.ask_for_snapshot();
                joined[at].go_on();
            }
            if joined.len() > 50 {
                let at = random.index(joined.len());
                joined.swap_remove(at);
            }
        }
        let end = partition.log.last_stable_offset();
        wait_for(|| {
            joined.iter_mut().for_each(Joined::go_on);
            joined.iter().all(|it| it.values.is_some() && it.applied >= end)
        });
        let last = joined[0].values.clone();
        assert!(joined.iter().all(|it| it.values == last), "all were told the same");
        running.stop();
        let broken = joined[0].feed.take(&mut Vec::new());
        assert_eq!(broken, Err(Broken::Unfollowed), "no thread follows any more");
    }

    #[test]
    fn values_are_there_while_the_topic_asks_for_them_and_again_after_a_restart() {
        let pool = EmbeddedPool { size_bytes: 64 << 20, file: None };
        let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
        let topics = Topics::open(storage, BTreeMap::new()).expect("it opens");
        let topic = prices(&topics);
        let partition = topic.partition(0).expect("it is there");
        let running = Running::start(&topics);
        publish(&topic, "a", Some("1"));
        publish(&topic, "b", Some("2"));
        wait_for(|| get(&partition, "b").as_deref() == Some("2"));
        publish(&topic, "a", Some("3"));
        publish(&topic, "b", None);
        wait_for(|| get(&partition, "a").as_deref() == Some("3") && get(&partition, "b").is_none());
        running.stop();
        assert!(partition.values().is_none(), "nobody follows");

        let running = Running::start(&topics);
        wait_for(|| get(&partition, "a").as_deref() == Some("3"));
        topics
            .configure("prices", false, &|own| {
                own.insert("memlane.values.ttl.ms".to_owned(), "1".to_owned());
                Ok(())
            })
            .expect("it is a good value");
        let key_count = || partition.values().map(|it| it.figures().key_count);
        wait_for(|| key_count() == Some(0));
        topics
            .configure("prices", false, &|own| {
                own.clear();
                Ok(())
            })
            .expect("it is a good value");
        wait_for(|| partition.values().is_none());
        running.stop();
    }
}
