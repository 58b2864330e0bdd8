//! Cumulative statistics of each statement by user and normalized text, as in PostgreSQL's
//! `pg_stat_statements`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::Principal;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::engine::StatementTotals;
use crate::statements::Words;

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum number of tracked statements. Beyond it, the least-called one is evicted.
const STATEMENT_COUNT_MAX: usize = 1_000;

/// Maximum length of a statement's text in lists.
const TEXT_BYTES_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Statistics {
    by_statement: Mutex<HashMap<Key, Arc<Figures>>>,
}

/// Authenticated principal, principal it acts for, and hash of the normalized text.
type Key = (Principal, Option<Principal>, u64);

/// Statistics of one statement of one user.
#[derive(Debug)]
pub(super) struct Figures {
    /// Normalized text, possibly truncated.
    text: String,
    calls: AtomicU64,
    rows: AtomicU64,
    total_ns: AtomicU64,
    least_ns: AtomicU64,
    most_ns: AtomicU64,
}

impl Figures {
    fn new(text: String) -> Self {
        let zero = AtomicU64::default;
        let least_ns = AtomicU64::new(u64::MAX);
        Self { text, calls: zero(), rows: zero(), total_ns: zero(), least_ns, most_ns: zero() }
    }

    /// Adds the time and rows of a call, or of its continuation.
    pub(super) fn count(&self, is_first: bool, taken: Duration, rows: u64) {
        let ns = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.calls.fetch_add(u64::from(is_first), Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.least_ns.fetch_min(ns, Ordering::Relaxed);
        self.most_ns.fetch_max(ns, Ordering::Relaxed);
    }
}

impl Statistics {
    /// Returns the statistics of a statement. If there is room, they are tracked at least as long
    /// as a caller holds them.
    pub(super) fn of(
        &self,
        principal: &Principal,
        on_behalf_of: Option<&Principal>,
        words: &Words,
    ) -> Arc<Figures> {
        let text = without_constants(words);
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let key = (principal.clone(), on_behalf_of.cloned(), hasher.finish());
        let mut kept = self.by_statement.lock().expect(NO_PANIC);
        if let Some(figures) = kept.get(&key) {
            return Arc::clone(figures);
        }
        let figures = Arc::new(Figures::new(kept_text(&text)));
        if kept.len() >= STATEMENT_COUNT_MAX {
            forget_one(&mut kept);
        }
        if kept.len() < STATEMENT_COUNT_MAX {
            kept.insert(key, Arc::clone(&figures));
        }
        figures
    }

    /// Returns the totals of statements that completed at least once.
    pub(super) fn list(&self) -> Vec<StatementTotals> {
        let kept = self.by_statement.lock().expect(NO_PANIC);
        let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let totals = kept.iter().map(|((principal, on_behalf_of, id), it)| StatementTotals {
            principal: principal.clone(),
            on_behalf_of: on_behalf_of.clone(),
            // A signed 64-bit integer, as in PostgreSQL.
            id: id.cast_signed(),
            text: it.text.clone(),
            calls: read(&it.calls),
            rows: read(&it.rows),
            total: Duration::from_nanos(read(&it.total_ns)),
            least: Duration::from_nanos(read(&it.least_ns)),
            most: Duration::from_nanos(read(&it.most_ns)),
        });
        totals.filter(|it| it.calls > 0).collect()
    }
}

/// Truncates a statement's text for lists.
pub(super) fn kept_text(text: &str) -> String {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|it| text.is_char_boundary(*it));
    text[..end.unwrap_or(0)].to_owned()
}

/// Evicts the least-called statement that no connection has prepared.
fn forget_one(kept: &mut HashMap<Key, Arc<Figures>>) {
    let idle = kept.iter().filter(|(_, it)| Arc::strong_count(it) == 1);
    let least = idle.min_by_key(|(_, it)| it.calls.load(Ordering::Relaxed));
    if let Some(key) = least.map(|(key, _)| key.clone()) {
        kept.remove(&key);
    }
}

/// Normalizes a text: replaces numbers and strings by parameters, and separates words by one space.
fn without_constants(words: &Words) -> String {
    let mut parameter_count = words.parameter_count().unwrap_or_default();
    let mut text = String::new();
    let mut has_space = false;
    for word in &words.0 {
        if matches!(word.token, Token::Whitespace(_)) {
            has_space = !text.is_empty();
            continue;
        }
        if std::mem::take(&mut has_space) {
            text.push(' ');
        }
        match &word.token {
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::HexStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::UnicodeStringLiteral(_) => {
                parameter_count += 1;
                text += &format!("${parameter_count}");
            }
            Token::Word(word) if word.quote_style.is_none() => text += &word.value,
            other => text += &other.to_string(),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::split;

    fn words(text: &str) -> Words {
        split(text).expect("a good text").remove(0)
    }

    fn user(name: &str) -> Principal {
        Principal::user(name).expect("a good name")
    }

    #[test]
    fn statements_that_differ_in_constants_alone_are_one() {
        let (statistics, alice) = (Statistics::default(), user("alice"));
        let alike = [
            "SELECT a FROM t  WHERE b = 'secret'  AND c > 5",
            "SELECT a FROM t WHERE b = '' AND c > 1e9",
        ];
        for text in alike {
            statistics.of(&alice, None, &words(text)).count(true, Duration::from_millis(2), 3);
        }
        let other = statistics.of(&user("bob"), None, &words("SELECT $1, 2"));
        other.count(true, Duration::from_millis(1), 1);
        let mut list = statistics.list();
        list.sort_by_key(|it| it.calls);
        let texts: Vec<_> = list.iter().map(|it| (&*it.text, it.calls, it.rows)).collect();
        let expected = [("SELECT $1, $2", 1, 1), ("SELECT a FROM t WHERE b = $1 AND c > $2", 2, 6)];
        assert_eq!(texts, expected);
        assert_eq!(list[1].total, Duration::from_millis(4));
    }

    #[test]
    fn as_many_as_fit_are_kept_those_that_are_prepared_first() {
        let (statistics, alice) = (Statistics::default(), user("alice"));
        let held = statistics.of(&alice, None, &words("SELECT held"));
        for index in 0..STATEMENT_COUNT_MAX + 10 {
            let figures = statistics.of(&alice, None, &words(&format!("SELECT column_{index}")));
            figures.count(true, Duration::ZERO, 0);
        }
        held.count(true, Duration::ZERO, 0);
        let list = statistics.list();
        assert_eq!(list.len(), STATEMENT_COUNT_MAX);
        assert!(list.iter().any(|it| it.text == "SELECT held"));
    }
}
