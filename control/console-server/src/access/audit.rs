//! Audit log: user, request, client address and status code of each request, one JSON object per
//! line.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::access::attempts::network_of;
use crate::access::audit_sink::AuditSink;

/// Files for authenticated requests, and for failed authentication. They are separate, so that
/// unauthenticated clients cannot displace entries of users. The second name of each pair is that
/// of older versions.
const FILES: [(&str, &str); 2] =
    [("audit.jsonl", "audit.old.jsonl"), ("attempts.jsonl", "attempts.old.jsonl")];

/// Size limit of each file, about 80,000 lines. A full file is rewritten with half of that. The
/// oldest entries of users with the most entries are dropped first, so that users cannot displace
/// each other's entries.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Limit on paths, which are truncated, and on the JSON of a change, whose values are truncated.
const PATH_CHARACTERS_MAX: usize = 512;
const CHANGE_BYTES_MAX: usize = 4 << 10;

/// Field that a truncated change gets, with its original length in bytes, and the space reserved
/// for it.
const TRUNCATED: &str = "truncated_bytes";
const TRUNCATED_BYTES: usize = 64;

/// Marks truncated text. The space includes separators.
const CUT: &str = "…";
const CUT_BYTES: usize = 16;

/// Number of refusals per user or address and status code that are logged individually in the
/// period. Further ones are merged.
const REFUSALS_SHOWN: u64 = 20;
const REFUSALS_SECONDS: u64 = 60 * 60;

/// Maximum number of merged entries. Beyond it they are written and counting restarts.
const COUNTED_MAX: usize = 4_096;

/// A request in the audit log. It contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditEntry {
    pub(crate) id: u64,
    /// Unix seconds.
    pub(crate) time: u64,
    pub(crate) user: Option<String>,
    /// Id of the token of the request.
    pub(crate) token: Option<String>,
    pub(crate) address: String,
    pub(crate) method: String,
    pub(crate) path: String,
    /// The status code of the answer.
    pub(crate) status: u16,
    /// Requested change, with the state before it if that is known. If it was shortened to 4 KiB,
    /// `truncated_bytes` has its whole length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<Value>,
    /// Number of requests that this entry stands for: identical refusals are merged.
    #[serde(default = "one")]
    pub(crate) count: u64,
}

const fn one() -> u64 {
    1
}

impl AuditEntry {
    /// Returns the user, or the network of unauthenticated clients, because they may give any name.
    fn owner(&self, by: By) -> String {
        match (by, &self.user) {
            (By::Known, Some(user)) => user.clone(),
            _ => match self.address.parse() {
                Ok(address) => network_of(address).to_string(),
                Err(_) => self.address.clone(),
            },
        }
    }
}

/// Refusals that are merged into one entry.
#[derive(Debug)]
struct Counted {
    since: u64,
    shown: u64,
    /// The latest refusal, which will stand for all.
    rest: Option<AuditEntry>,
}

#[derive(Debug)]
struct Open {
    files: Vec<Written>,
    next_id: u64,
    counted: HashMap<(By, String, u16), Counted>,
}

#[derive(Debug)]
struct Written {
    file: File,
    bytes: u64,
}

/// Authentication state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    Known,
    Unknown,
}

/// Filter of audit entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFilter {
    /// Only entries with a lower id.
    pub(crate) before: Option<u64>,
    pub(crate) user: Option<String>,
    pub(crate) method: Option<String>,
    /// Substring of the path.
    pub(crate) path: Option<String>,
    pub(crate) status: Option<u16>,
    /// Unix seconds.
    pub(crate) since: Option<u64>,
    pub(crate) until: Option<u64>,
}

impl AuditFilter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        self.before.is_none_or(|it| entry.id < it)
            && self.user.as_ref().is_none_or(|it| entry.user.as_ref() == Some(it))
            && self.method.as_ref().is_none_or(|it| entry.method.eq_ignore_ascii_case(it))
            && self.path.as_ref().is_none_or(|it| entry.path.contains(it.as_str()))
            && self.status.is_none_or(|it| entry.status == it)
            && self.since.is_none_or(|it| entry.time >= it)
            && self.until.is_none_or(|it| entry.time <= it)
    }
}

/// The audit log's files.
#[derive(Debug)]
pub(crate) struct AuditLog {
    folder: PathBuf,
    /// Second destination of all entries, outside the console's control.
    sink: Option<AuditSink>,
    open: Mutex<Open>,
}

impl AuditLog {
    pub(crate) fn open(folder: &Path, sink: Option<AuditSink>) -> io::Result<Self> {
        let mut files = Vec::new();
        let mut newest = None;
        for (name, old_name) in FILES {
            let path = folder.join(name);
            let old_path = folder.join(old_name);
            let mut entries = read(&old_path)?;
            let is_older = !entries.is_empty();
            entries.append(&mut read(&path)?);
            newest = newest.max(entries.iter().map(|it| it.id).max());
            if is_older {
                write_anew(&path, &entries)?;
                fs::remove_file(&old_path)?;
            }
            let mut file = append_to(&path)?;
            let mut bytes = file.metadata()?.len();
            if bytes > 0 {
                // Terminate a line that a crash has cut. Readers skip it.
                file.write_all(b"\n")?;
                bytes += 1;
            }
            files.push(Written { file, bytes });
        }
        let next_id = newest.map_or(1, |id| id + 1);
        let open = Open { files, next_id, counted: HashMap::new() };
        Ok(Self { folder: folder.to_owned(), sink, open: Mutex::new(open) })
    }

    /// Appends an entry and sets its id. Errors go to the program log.
    pub(crate) fn add(&self, by: By, entry: AuditEntry) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match entry.status < 400 {
            true => self.write(&mut open, by, entry),
            false => self.count(&mut open, by, entry),
        };
        if let Err(error) = written {
            tracing::error!(%error, "cannot write the audit log");
        }
    }

    /// Writes the first refusals individually and merges the rest.
    fn count(&self, open: &mut Open, by: By, entry: AuditEntry) -> io::Result<()> {
        let key = (by, entry.owner(by), entry.status);
        let now = entry.time;
        let is_over = open.counted.get(&key).is_some_and(|it| now >= it.since + REFUSALS_SECONDS);
        if is_over || (open.counted.len() >= COUNTED_MAX && !open.counted.contains_key(&key)) {
            self.tell_counted(open)?;
            open.counted.retain(|_, it| now < it.since + REFUSALS_SECONDS);
            if open.counted.len() >= COUNTED_MAX {
                open.counted.clear();
            }
        }
        let begun = || Counted { since: now, shown: 0, rest: None };
        let counted = open.counted.entry(key).or_insert_with(begun);
        if counted.shown < REFUSALS_SHOWN {
            counted.shown += 1;
            return self.write(open, by, entry);
        }
        let before = counted.rest.take().map_or(0, |it| it.count);
        counted.rest = Some(AuditEntry { count: before + 1, change: None, ..entry });
        Ok(())
    }

    /// Writes the merged entries.
    fn tell_counted(&self, open: &mut Open) -> io::Result<()> {
        let told = open.counted.iter_mut();
        let told: Vec<_> = told.filter_map(|(key, it)| Some((key.0, it.rest.take()?))).collect();
        told.into_iter().try_for_each(|(by, entry)| self.write(open, by, entry))
    }

    fn write(&self, open: &mut Open, by: By, mut entry: AuditEntry) -> io::Result<()> {
        entry.id = open.next_id;
        entry.path = entry.path.chars().take(PATH_CHARACTERS_MAX).collect();
        entry.change = entry.change.map(shortened);
        let mut line = serde_json::to_vec(&entry)?;
        if let Some(sink) = &self.sink {
            sink.add(&line);
        }
        line.push(b'\n');
        let index = usize::from(by == By::Unknown);
        let written = &mut open.files[index];
        if written.bytes >= FILE_BYTES_MAX {
            let path = self.folder.join(FILES[index].0);
            write_anew(&path, &fair_half(by, read(&path)?))?;
            let file = append_to(&path)?;
            let bytes = file.metadata()?.len();
            *written = Written { file, bytes };
        }
        written.file.write_all(&line)?;
        written.bytes += line.len() as u64;
        open.next_id += 1;
        Ok(())
    }

    /// Reopens the second destination, whose file may have been rotated.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        self.sink.as_ref().map_or(Ok(()), AuditSink::reopen)
    }

    /// Returns the newest entries that match the filter, at most `count`, newest first. Reads the
    /// files, so it must not be called on a thread that serves others.
    pub(crate) fn newest(&self, filter: &AuditFilter, count: usize) -> io::Result<Vec<AuditEntry>> {
        self.tell_counted(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))?;
        let mut entries = Vec::new();
        for (name, _) in FILES {
            entries.append(&mut read(&self.folder.join(name))?);
        }
        entries.retain(|it| filter.takes(it));
        entries.sort_by_key(|it| std::cmp::Reverse(it.id));
        entries.truncate(count);
        Ok(entries)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.tell_counted(&mut open) {
            tracing::error!(%error, "cannot write the audit log");
        }
    }
}

/// Truncates the values of a change that is too long, and adds its original length.
fn shortened(mut change: Value) -> Value {
    let length = length_of(&change);
    if length <= CHANGE_BYTES_MAX {
        return change;
    }
    cut(&mut change, CHANGE_BYTES_MAX - TRUNCATED_BYTES);
    match &mut change {
        Value::Object(fields) => _ = fields.insert(TRUNCATED.to_owned(), length.into()),
        other => *other = json!({"new": other.take(), TRUNCATED: length}),
    }
    change
}

fn length_of(value: &Value) -> usize {
    value.to_string().len()
}

/// Truncates a value to `room` bytes of JSON. Each element of a list or object may use half of the
/// remaining space, and the last one all of it, so that short elements stay intact.
fn cut(value: &mut Value, room: usize) {
    if length_of(value) <= room {
        return;
    }
    let left = room.saturating_sub(CUT_BYTES);
    match value {
        Value::String(text) => cut_text(text, left),
        Value::Array(list) => {
            let (mut left, count) = (left, list.len());
            let mut index = 0;
            list.retain_mut(|it| {
                index += 1;
                takes(it, 1, index == count, &mut left)
            });
            list.push(CUT.into());
        }
        Value::Object(fields) => {
            let (mut left, count) = (left, fields.len());
            let mut index = 0;
            fields.retain(|name, it| {
                index += 1;
                let name_length = length_of(&Value::from(name.as_str()));
                takes(it, name_length + 2, index == count, &mut left)
            });
            if fields.len() < count {
                fields.insert(CUT.to_owned(), Value::Null);
            }
        }
        // Numbers, booleans and null are not truncated.
        _ => {}
    }
}

/// Truncates an element and reserves its space. Returns `false` if there is no space for it and the
/// following ones.
fn takes(part: &mut Value, more: usize, is_last: bool, left: &mut usize) -> bool {
    let share = if is_last { *left } else { *left / 2 };
    cut(part, share.saturating_sub(more));
    let length = length_of(part) + more;
    let has_room = length <= *left;
    *left = if has_room { *left - length } else { 0 };
    has_room
}

fn cut_text(text: &mut String, room: usize) {
    let mut end = room.min(text.len());
    // Some characters take more bytes in JSON.
    while end > 0 && (!text.is_char_boundary(end) || length_of(&text[..end].into()) > room) {
        end -= 1 + usize::from(text.is_char_boundary(end)) * (end / 8);
    }
    text.truncate(end);
    text.push_str(CUT);
}

/// Returns the newest entries of each user or network, with fair shares of half a file.
fn fair_half(by: By, entries: Vec<AuditEntry>) -> Vec<AuditEntry> {
    let bytes_of = |it: &AuditEntry| serde_json::to_vec(it).map_or(0, |line| line.len() + 1);
    let mut of_each: HashMap<String, usize> = HashMap::new();
    for entry in &entries {
        *of_each.entry(entry.owner(by)).or_default() += bytes_of(entry);
    }
    let half = usize::try_from(FILE_BYTES_MAX / 2).unwrap_or(usize::MAX);
    let share = share_of(half, of_each.into_values().collect());
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut kept_bytes = 0;
    let mut kept: Vec<_> = entries
        .into_iter()
        .rev()
        .filter(|it| {
            let taken = taken.entry(it.owner(by)).or_default();
            // Each owner keeps at least one entry, but the total is limited to the newest ones.
            let is_kept = *taken < share && kept_bytes < half + half / 2;
            let bytes = bytes_of(it);
            *taken += bytes;
            kept_bytes += if is_kept { bytes } else { 0 };
            is_kept
        })
        .collect();
    kept.reverse();
    kept
}

/// Returns the max-min fair share of `room`: unused parts of small shares go to others.
fn share_of(mut room: usize, mut sums: Vec<usize>) -> usize {
    sums.sort_unstable();
    for (index, sum) in sums.iter().enumerate() {
        let share = room / (sums.len() - index);
        if *sum > share {
            return share;
        }
        room -= sum;
    }
    usize::MAX
}

fn write_anew(path: &Path, entries: &[AuditEntry]) -> io::Result<()> {
    let mut text = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut text, entry)?;
        text.push(b'\n');
    }
    state_file::replace_private_file(path, &text)
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn read(path: &Path) -> io::Result<Vec<AuditEntry>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut entries = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        entries.extend(serde_json::from_slice::<AuditEntry>(&line?));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(user: &str, path: &str) -> AuditEntry {
        AuditEntry {
            id: 0,
            time: 5,
            user: Some(user.to_owned()),
            token: None,
            address: "127.0.0.1".to_owned(),
            method: "POST".to_owned(),
            path: path.to_owned(),
            status: 201,
            change: None,
            count: 1,
        }
    }

    fn all(log: &AuditLog) -> Vec<AuditEntry> {
        log.newest(&AuditFilter::default(), usize::MAX).expect("it is read")
    }

    #[test]
    fn entries_have_rising_ids_also_after_a_crash_in_the_middle_of_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::open(folder.path(), None).expect("a new one");
        (0..3).for_each(|number| log.add(By::Known, entry("ann", &format!("/v1/{number}"))));
        drop(log);
        let mut file = append_to(&folder.path().join(FILES[0].0)).expect("it is there");
        file.write_all(b"{\"id\": 4, \"ti").expect("there is room");
        let log = AuditLog::open(folder.path(), None).expect("it is there");
        log.add(By::Unknown, entry("ann", "/v1/3"));
        let ids = |before, count| -> Vec<_> {
            let filter = AuditFilter { before, ..AuditFilter::default() };
            let found = log.newest(&filter, count).expect("it is read");
            found.into_iter().map(|it| (it.id, it.path)).collect()
        };
        assert_eq!(ids(None, 2), [(4, "/v1/3".to_owned()), (3, "/v1/2".to_owned())]);
        assert_eq!(ids(Some(2), 10), [(1, "/v1/0".to_owned())]);
    }

    #[test]
    fn a_long_change_is_shortened_and_says_how_long_it_was() {
        let offsets: serde_json::Map<_, _> =
            (0..2_000).map(|it| (it.to_string(), json!(it))).collect();
        let texts = vec!["ä".repeat(300); 100];
        let deep = (0..60).fold(json!("x".repeat(9_000)), |inside, _| json!({ "inside": inside }));
        for (old, new) in [
            (json!({ "orders": offsets }), json!({"to": "earliest"})),
            (json!(null), json!({"query": "é".repeat(CHANGE_BYTES_MAX)})),
            (json!(null), json!({"query": "\u{1}".repeat(CHANGE_BYTES_MAX)})),
            (json!({ "texts": texts }), json!({ "texts": texts })),
            (deep, json!({"name": "db"})),
            (json!({"x".repeat(9_000): 1}), json!("y".repeat(9_000))),
        ] {
            let change = json!({"old": old, "new": new});
            let length = change.to_string().len();
            let kept = shortened(change.clone());
            let kept_length = kept.to_string().len();
            assert!(kept_length <= CHANGE_BYTES_MAX, "{kept_length} of {length}");
            assert_eq!(kept["truncated_bytes"], length, "{kept}");
            for field in ["old", "new"] {
                let is_short = change[field].to_string().len() < 64;
                assert!(!is_short || kept[field] == change[field], "{kept}");
            }
            assert!(kept_length > CHANGE_BYTES_MAX / 3, "{kept}");
        }
        let short = json!({"old": null, "new": "x".repeat(4_000)});
        assert_eq!(shortened(short.clone()), short);
    }

    #[test]
    fn nobody_pushes_out_what_others_did() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::open(folder.path(), None).expect("a new one");
        let long = "x".repeat(PATH_CHARACTERS_MAX);
        let elsewhere = "192.0.2.1".to_owned();
        log.add(By::Known, entry("ann", "/v1/volumes"));
        log.add(By::Unknown, AuditEntry { address: elsewhere, ..entry("bob", "/v1/volumes") });
        for number in 0..FILE_BYTES_MAX / 512 {
            log.add(By::Known, entry("eve", &format!("/{number}/{long}")));
            // Unauthenticated clients may use a different name each time.
            log.add(By::Unknown, entry(&format!("eve{number}"), &format!("/{number}/{long}")));
        }
        let kept = all(&log);
        let oldest: Vec<_> = kept.iter().rev().take(2).map(|it| it.id).collect();
        assert_eq!(oldest, [1, 2], "those of ann, and of who tried to be bob");
        let size = |index: usize| fs::metadata(folder.path().join(FILES[index].0)).expect("a file");
        assert!(size(0).len() < FILE_BYTES_MAX && size(1).len() < FILE_BYTES_MAX);
        assert!(kept.len() > 1_000, "{}", kept.len());
    }

    #[test]
    fn of_more_addresses_than_have_room_the_newest_are_kept() {
        let entries = (0..40_000_u32).map(|number| AuditEntry {
            address: std::net::Ipv4Addr::from(number).to_string(),
            id: u64::from(number),
            ..entry("eve", &"x".repeat(PATH_CHARACTERS_MAX))
        });
        let kept = fair_half(By::Unknown, entries.collect());
        assert!(kept.len() > 10_000 && kept.len() < 30_000, "{}", kept.len());
        assert_eq!(kept.last().map(|it| it.id), Some(39_999));
    }

    #[test]
    fn refusals_beyond_some_become_counts_that_outlive_the_console() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::open(folder.path(), None).expect("a new one");
        let refuse = |user, time| {
            log.add(By::Known, AuditEntry { time, status: 403, ..entry(user, "/v1/status") });
        };
        (0..1_000).for_each(|number| refuse("eve", number));
        refuse("ann", 1_000);
        let counts = |log: &AuditLog, user| -> Vec<u64> {
            let user = Some(String::from(user));
            let filter = AuditFilter { user, ..AuditFilter::default() };
            let found = log.newest(&filter, usize::MAX).expect("it is read");
            found.into_iter().map(|it| it.count).collect()
        };
        assert_eq!(counts(&log, "ann"), [1]);
        let of_eve = counts(&log, "eve");
        assert_eq!((of_eve.len(), of_eve.iter().sum()), (21, 1_000_u64));
        refuse("eve", 1_001);
        refuse("eve", REFUSALS_SECONDS);
        drop(log);
        let log = AuditLog::open(folder.path(), None).expect("it is there");
        assert_eq!(counts(&log, "eve").iter().sum::<u64>(), 1_002);
    }

    #[test]
    fn files_of_older_consoles_are_taken_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = concat!(
            r#"{"id":7,"time":5,"user":"ann","token":null,"address":"::1","#,
            r#""method":"POST","path":"/v1/volumes","status":201}"#
        );
        fs::write(folder.path().join(FILES[0].1), line).expect("there is room");
        let log = AuditLog::open(folder.path(), None).expect("they are taken in");
        log.add(By::Known, entry("ann", "/v1/3"));
        assert_eq!(all(&log).iter().map(|it| it.id).collect::<Vec<_>>(), [8, 7]);
    }
}
