//! Measurements of one case on one target: its repeats.

use results::Row;
use serde_json::{Value, json};

use crate::figure::Figure;

/// A row with its location in the page's document.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) run: usize,
    pub(crate) index: usize,
    pub(crate) row: Row,
    pub(crate) value: Value,
}

impl Entry {
    /// Returns a number of the row by its path: `latency/mean`.
    pub(crate) fn number(&self, path: &str) -> Option<f64> {
        let number = self.value.pointer(&format!("/{path}"))?.as_f64()?;
        number.is_finite().then_some(number)
    }

    pub(crate) fn figure(&self, path: &str) -> Option<Figure> {
        let value = self.number(path)?;
        Some(Figure { value, pointer: format!("/rows/{}/{path}", self.index) })
    }
}

/// The repeats of a case on a target in a run. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Group<'book> {
    pub(crate) entries: Vec<&'book Entry>,
}

impl<'book> Group<'book> {
    pub(crate) fn first(&self) -> &'book Entry {
        self.entries[0]
    }

    pub(crate) fn run(&self) -> usize {
        self.first().run
    }

    pub(crate) fn case(&self) -> &'book str {
        &self.first().row.case
    }

    pub(crate) fn target(&self) -> &'book str {
        &self.first().row.target
    }

    pub(crate) fn of_repeat(&self, repeat: u32) -> Option<&'book Entry> {
        self.entries.iter().copied().find(|entry| entry.row.repeat == repeat)
    }

    /// Returns a text parameter.
    pub(crate) fn word(&self, name: &str) -> Option<&'book str> {
        self.first().row.params.get(name)?.as_str()
    }

    /// Returns an integer parameter.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.first().row.params.get(name)?.as_u64()
    }

    /// Returns whether all these parameters have these values. Numbers and booleans are given as
    /// text.
    pub(crate) fn has(&self, params: &[(&str, &str)]) -> bool {
        params.iter().all(|(name, expected)| {
            let value = self.first().row.params.get(*name);
            value.is_some_and(|value| match value {
                Value::String(text) => text == expected,
                Value::Number(number) => number.as_u64() == expected.parse().ok(),
                Value::Bool(flag) => flag.to_string() == *expected,
                _ => false,
            })
        })
    }

    /// Returns the description of a derived figure.
    pub(crate) fn describe(&self, path: &str) -> Value {
        json!({
            "run": self.run(),
            "suite": self.first().row.suite,
            "case": self.case(),
            "target": self.target(),
            "figure": path,
        })
    }
}
