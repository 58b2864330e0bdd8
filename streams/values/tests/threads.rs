//! Concurrent readers, publisher, follower and compaction: each snapshot must equal the result of
//! the changes before its offset.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use model::Random;
use record_batch::BatchOptions;
use record_log::CompactionOptions;
use support::{BEFORE_ALL, Entry, History, Rows, append, encode, rows, text};
use values::{Change, Follower, Secret, ValuesError};

const BATCH_COUNT: usize = 4_000;
const KEY_COUNT: usize = 300;

/// Changes reported for one key: offset, and the value if there is one.
type Told = Vec<(String, i64, Option<String>)>;

fn publish(history: &History, is_over: &AtomicBool) {
    let mut random = Random::new(1);
    for _ in 0..BATCH_COUNT {
        let offset = history.partition.next_offset();
        let entries: Vec<Entry> = (offset..)
            .take(1 + random.index(8))
            .map(|offset| Entry {
                offset,
                timestamp_ms: 0,
                key: Some(format!("key {}", random.index(KEY_COUNT))),
                value: (!random.one_in(6)).then(|| format!("value {offset}")),
            })
            .collect();
        append(&history.partition, &encode(&entries, &BatchOptions::default()));
        history.topic.flush().expect("it flushes");
    }
    is_over.store(true, Ordering::Release);
}

fn compact(history: &History, is_over: &AtomicBool) {
    let options = CompactionOptions {
        now_ms: 0,
        delete_retention_ms: 0,
        min_compaction_lag_ms: 0,
        max_compaction_lag_ms: i64::MAX,
        min_dirty_ratio: 0.0,
        map_bytes_max: 1 << 20,
        hash_secret: [9; 16],
    };
    while !is_over.load(Ordering::Acquire) {
        history.partition.compact(&options).expect("it compacts");
        history.topic.flush().expect("it flushes");
    }
}

fn follow(mut follower: Follower, history: &History, is_over: &AtomicBool) -> Told {
    let mut told = Told::new();
    loop {
        let was_over = is_over.load(Ordering::Acquire);
        let mut tell = |change: Change<'_>, _: &record_log::PinnedLog| match change {
            Change::Published { record, .. } => {
                told.push((text(record.key), record.offset, Some(text(record.value))));
            }
            Change::Deleted { record, .. } => told.push((text(record.key), record.offset, None)),
            other => panic!("{other:?}: nothing expires, and the log keeps its start"),
        };
        follower.follow(1 << 14, Some(&mut tell)).expect("it follows");
        let end = history.partition.last_stable_offset();
        if was_over && follower.values().applied() == end {
            return told;
        }
    }
}

fn state(told: &Told, before: i64) -> Rows {
    let mut state = BTreeMap::new();
    for (key, offset, value) in told.iter().filter(|it| it.1 < before) {
        match value {
            Some(value) => state.insert(key.clone(), (*offset, value.clone())),
            None => state.remove(key),
        };
    }
    state
}

#[test]
fn snapshots_of_other_threads_are_what_the_changes_before_them_come_to() {
    let history = History::new();
    let secret = Secret([1; 16]);
    let (follower, _) = Follower::open(Arc::clone(&history.partition), secret).expect("it opens");
    let values = Arc::clone(follower.values());
    let is_over = AtomicBool::new(false);
    let (told, snapshots) = thread::scope(|scope| {
        scope.spawn(|| publish(&history, &is_over));
        scope.spawn(|| compact(&history, &is_over));
        let following = scope.spawn(|| follow(follower, &history, &is_over));
        let (mut random, mut snapshots) = (Random::new(2), Vec::new());
        while !is_over.load(Ordering::Acquire) {
            let snapshot = values.snapshot().expect("they are there");
            let rows = rows(&snapshot, BEFORE_ALL).expect("all of it is pinned");
            snapshots.push((snapshot.applied(), rows));
            let key = format!("key {}", random.index(KEY_COUNT));
            let found = values.get(key.as_bytes(), 0, &mut Vec::new(), |it| text(it.key));
            match found {
                Ok(found) => assert!(found.is_none_or(|found| found == key)),
                Err(error) => assert!(matches!(error, ValuesError::Overtaken { .. }), "{error}"),
            }
        }
        (following.join().expect("it does not panic"), snapshots)
    });
    assert!(history.partition.compaction_generation() > 0, "segments were replaced");
    eprintln!("{} snapshots", snapshots.len());
    for (applied, found) in snapshots {
        assert_eq!(found, state(&told, applied), "at {applied}");
    }
    let last = values.snapshot().expect("they are there");
    assert_eq!(rows(&last, BEFORE_ALL).expect("it reads"), state(&told, last.applied()));
}
