//! Definitions of objects created by SQL: typed tables, derived topics, views. They are stored by
//! name in a separate state log, like the state of groups.

mod stored;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use anyhow::Context;
use bytes::Bytes;
use sql::{Definition, NewDefinition, SqlError, SqlState};
use tokio::sync::watch;

use self::stored::Stored;
use crate::state_log::{StateLog, StatePlace, StateRecord};
use crate::storage::{Storage, VolumeClass, state_bytes_max};

const NO_PANIC: &str = "no thread panics with this lock";

/// Limits: number of definitions, of which one owner can have half, and lengths of name and
/// statement.
const COUNT_MAX: usize = 2_000;
const NAME_BYTES_MAX: usize = 249;
const STATEMENT_BYTES_MAX: usize = 64 << 10;

type ByName = BTreeMap<String, Arc<Definition>>;

/// All definitions. Changes are durable on return, and may block on a disk.
pub(crate) struct Definitions {
    /// Serializes changes.
    log: Mutex<StateLog>,
    by_name: RwLock<ByName>,
    /// Maximum bytes of names and statements, of which one owner can have half.
    bytes_max: usize,
    /// Version of the last change.
    version: watch::Sender<u64>,
}

impl Definitions {
    /// Opens or creates the log of definitions.
    pub(crate) fn open(storage: &dyn Storage, class: VolumeClass) -> anyhow::Result<Self> {
        let log = StateLog::open(storage, StatePlace::DEFINITIONS, class)
            .context("cannot open the log of definitions")?;
        let (mut by_name, mut version) = (ByName::new(), 0);
        log.load(&mut |key, value| {
            let name = std::str::from_utf8(key)
                .context("invalid record in the log of definitions: no name")?;
            match value {
                Some(value) => {
                    let definition = Stored::read(name, value)?;
                    version = version.max(definition.version);
                    by_name.insert(name.to_owned(), Arc::new(definition));
                }
                None => drop(by_name.remove(name)),
            }
            Ok(())
        })
        .context("cannot load the definitions")?;
        let version = watch::Sender::new(version);
        let bytes_max = state_bytes_max(storage)? / 4;
        Ok(Self { log: Mutex::new(log), by_name: RwLock::new(by_name), bytes_max, version })
    }

    /// Returns all definitions, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<Definition>> {
        self.by_name.read().expect(NO_PANIC).values().map(Arc::clone).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Definition>> {
        self.by_name.read().expect(NO_PANIC).get(name).map(Arc::clone)
    }

    /// Returns a receiver that is notified after each change.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Stores a definition with an unused name.
    pub(crate) fn put(&self, new: NewDefinition, owner: &str) -> Result<Arc<Definition>, SqlError> {
        check(&new)?;
        let mut log = self.lock();
        if self.get(&new.name).is_some() {
            let what = format!("relation {:?} already exists", new.name);
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, what));
        }
        let NewDefinition { name, kind, statement } = new;
        self.check_room(owner, 1, (COUNT_MAX, "definitions"), |_| 1)?;
        let bytes = name.len() + statement.len();
        let bytes_of = |it: &Definition| it.name.len() + it.statement.len();
        self.check_room(owner, bytes, (self.bytes_max, "bytes of definitions"), bytes_of)?;
        let version = self.version.borrow().saturating_add(1);
        let owner = owner.to_owned();
        let definition = Arc::new(Definition { name, kind, statement, owner, version });
        log.append(&[record_of(&definition)])?;
        let mut by_name = self.by_name.write().expect(NO_PANIC);
        by_name.insert(definition.name.clone(), Arc::clone(&definition));
        drop(by_name);
        self.changed(&mut log, version);
        tracing::info!(name = definition.name, kind = kind.name(), definition.owner, "defined");
        Ok(definition)
    }

    /// Rejects a definition that takes `more` of a limit if its owner has used up its share.
    pub(crate) fn check_room(
        &self,
        owner: &str,
        more: usize,
        (most, what): (usize, &str),
        size_of: impl Fn(&Definition) -> usize,
    ) -> Result<(), SqlError> {
        let by_name = self.by_name.read().expect(NO_PANIC);
        let (mut taken, mut own) = (0, 0);
        for definition in by_name.values() {
            let size = size_of(definition);
            taken += size;
            own += if definition.owner == owner { size } else { 0 };
        }
        if shares::leaves_enough(own, more, most.saturating_sub(taken)) {
            return Ok(());
        }
        let what = format!(
            "too many {what}: {taken} of {most} are in use, and {owner} has used up its share; \
             drop some"
        );
        Err(SqlError::new(SqlState::TOO_MANY, what))
    }

    /// Deletes a definition, unless it was replaced meanwhile. Returns whether it existed.
    pub(crate) fn remove(&self, definition: &Definition) -> Result<bool, SqlError> {
        let mut log = self.lock();
        let name = definition.name.as_str();
        if self.get(name).is_none_or(|it| it.version != definition.version) {
            return Ok(false);
        }
        let key = Bytes::copy_from_slice(name.as_bytes());
        log.append(&[StateRecord { key, value: None }])?;
        self.by_name.write().expect(NO_PANIC).remove(name);
        let version = self.version.borrow().saturating_add(1);
        self.changed(&mut log, version);
        tracing::info!(name, kind = definition.kind.name(), "definition dropped");
        Ok(true)
    }

    fn changed(&self, log: &mut StateLog, version: u64) {
        if log.is_outdated() {
            let records: Vec<StateRecord> = self.all().iter().map(|it| record_of(it)).collect();
            if let Err(error) = log.rewrite(&records) {
                let error = error.with_causes();
                tracing::warn!(error, "cannot compact the log of definitions");
            }
        }
        self.version.send_replace(version);
    }

    fn lock(&self) -> MutexGuard<'_, StateLog> {
        self.log.lock().expect(NO_PANIC)
    }
}

fn record_of(definition: &Definition) -> StateRecord {
    let key = Bytes::copy_from_slice(definition.name.as_bytes());
    StateRecord { key, value: Some(Stored::bytes_of(definition)) }
}

fn check(new: &NewDefinition) -> Result<(), SqlError> {
    let NewDefinition { name, statement, .. } = new;
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        let what = format!("invalid name {name:?}: use 1 to {NAME_BYTES_MAX} bytes");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
    }
    if statement.len() > STATEMENT_BYTES_MAX {
        let length = statement.len();
        let what = format!(
            "the statement that defines {name:?} is too long: {length} bytes; the maximum is \
             {STATEMENT_BYTES_MAX}"
        );
        return Err(SqlError::new(SqlState::TOO_LARGE, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sql::DefinitionKind;
    use tempfile::TempDir;
    use volumes::{Durability, Reduction};

    use super::*;
    use crate::storage::{Embedded, EmbeddedPool};

    const CLASS: VolumeClass =
        VolumeClass { durability: Durability::Ram, reduction: Reduction::None };

    /// Creates a pool for one test. Without a file, tests of a process would share one.
    fn storage() -> (Embedded, TempDir) {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is there");
        let file = Some(folder.path().join("pool"));
        let pool = EmbeddedPool { size_bytes: 64 << 20, file };
        (Embedded::open(&pool).expect("it opens"), folder)
    }

    fn new(name: &str, statement: &str) -> NewDefinition {
        let (name, statement) = (name.to_owned(), statement.to_owned());
        NewDefinition { name, kind: DefinitionKind::Table, statement }
    }

    #[test]
    fn whoever_defines_without_end_leaves_as_many_to_others() {
        let (storage, _folder) = storage();
        let definitions = Definitions::open(&storage, CLASS).expect("it opens");
        let define_all = |owner: &str| {
            let mut count = 0;
            loop {
                let name = format!("{}-{count}", owner.to_lowercase());
                match definitions.put(new(&name, "one"), owner) {
                    Ok(_) => count += 1,
                    Err(error) => break (count, error.state),
                }
            }
        };
        assert_eq!(define_all("User:alice"), (COUNT_MAX / 2, SqlState::TOO_MANY));
        assert_eq!(define_all("User:bob"), (COUNT_MAX / 4, SqlState::TOO_MANY));
    }

    #[test]
    fn long_definitions_take_no_more_than_their_share_of_the_pool() {
        let (storage, _folder) = storage();
        let definitions = Definitions::open(&storage, CLASS).expect("it opens");
        let long = "x".repeat(STATEMENT_BYTES_MAX);
        let error = (0..100)
            .find_map(|number| definitions.put(new(&number.to_string(), &long), "User:a").err())
            .expect("a pool of 64 MiB does not take 6 MiB of them");
        assert_eq!(error.state, SqlState::TOO_MANY);
        assert!(error.message.starts_with("too many bytes of definitions: "), "{}", error.message);
        definitions.put(new("other", &long), "User:b").expect("others have a share");
        definitions.put(new("short", "x"), "User:a").expect("there is room for a short one");
    }

    #[test]
    fn what_was_kept_is_there_again_and_what_was_dropped_is_not() {
        let (storage, _folder) = storage();
        let definitions = Definitions::open(&storage, CLASS).expect("it opens");
        let mut watched = definitions.watch();
        let first = definitions.put(new("a", "one 'ä'"), "User:alice").expect("there is room");
        let second = definitions.put(new("b", "two"), "User:bob").expect("there is room");
        assert!(second.version > first.version);
        assert!(watched.has_changed().expect("they are there"));
        watched.mark_unchanged();
        let error = definitions.put(new("a", "other"), "User:bob").expect_err("it is taken");
        assert_eq!(error.state, SqlState::DUPLICATE_TABLE);
        assert!(!watched.has_changed().expect("they are there"));
        assert!(definitions.remove(&second).expect("it is there"));
        assert!(!definitions.remove(&second).expect("it was removed"));
        let third = definitions.put(new("b", "three"), "User:bob").expect("there is room");
        assert!(!definitions.remove(&second).expect("it is another"), "of an earlier version");
        drop(definitions);

        let again = Definitions::open(&storage, CLASS).expect("it opens");
        assert_eq!(again.all(), [Arc::clone(&first), Arc::clone(&third)]);
        assert_eq!(again.get("a"), Some(first));
        let fourth = again.put(new("c", "four"), "User:bob").expect("there is room");
        assert!(fourth.version > third.version);
    }

    #[test]
    fn they_are_bounded_in_number_and_length_and_the_log_is() {
        let (storage, _folder) = storage();
        let definitions = Definitions::open(&storage, CLASS).expect("it opens");
        let long = "x".repeat(STATEMENT_BYTES_MAX);
        for (name, statement) in [("", "x"), ("n", &format!("{long}x")), (&long, "x")] {
            definitions.put(new(name, statement), "User:a").expect_err("it is too long");
        }
        // 64 KiB each time: more in total than the log's maximum size.
        for _ in 0..600 {
            let kept = definitions.put(new("n", &long), "User:a").expect("there is room");
            assert!(definitions.remove(&kept).expect("there is room"));
        }
        for number in 0..COUNT_MAX / 2 {
            definitions.put(new(&number.to_string(), "x"), "User:a").expect("there is room");
        }
        let error = definitions.put(new("one more", "x"), "User:a").expect_err("they are many");
        assert_eq!(error.state, SqlState::TOO_MANY);
        drop(definitions);
        let again = Definitions::open(&storage, CLASS).expect("it opens");
        assert_eq!(again.all().len(), COUNT_MAX / 2);
    }
}
