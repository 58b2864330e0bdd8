//! Syntax trees of the statements.

use sqlparser::ast::Query;

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Subscribe(Subscribe),
    Copy { subscribe: Subscribe, format: CopyFormat },
    Declare { cursor: String, subscribe: Subscribe },
    Fetch(Fetch),
    Create(CreateAs),
    Drop { kind: CreateKind, name: String, if_exists: bool },
}

/// `SUBSCRIBE`. A name is represented by the query that selects everything from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    pub query: Box<Query>,
    pub envelope: Envelope,
    pub options: SubscribeOptions,
    pub as_of: Option<AsOf>,
    /// End of the subscription: before the first change at this point.
    pub up_to: Option<Point>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Envelope {
    /// Rows with a count: 1 for an insertion, -1 for a deletion.
    #[default]
    Diff,
    /// Rows identified by these columns, each of which replaces the previous one.
    Upsert { key: Vec<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct SubscribeOptions {
    /// Start with the existing rows. Default: true.
    pub snapshot: bool,
    /// Send progress rows. Default: false.
    pub progress: bool,
    /// Add a column with partition and offset of each row. Default: false.
    pub position: bool,
    /// Minimum interval in milliseconds between two changes of one key.
    pub every_ms: Option<u64>,
    /// Speed-up factor of a replay of the log; without a limit if absent.
    pub speed: Option<f64>,
    pub backpressure: Backpressure,
    pub on_error: OnError,
}

/// Handling of a client that does not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backpressure {
    /// The subscription waits, and resumes where it stopped.
    #[default]
    Wait,
    /// Intermediate states are skipped: the client receives the last one of each key.
    Conflate,
    /// The subscription ends with an error.
    Disconnect,
}

/// Handling of a record on which the query fails, such as by a division by zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The record is excluded from the result, and counted.
    #[default]
    Skip,
    /// The subscription ends with the error.
    Fail,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AsOf {
    pub point: Point,
    pub reach: Reach,
}

/// Handling of a point before the start of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The statement is rejected.
    Exactly,
    /// The subscription starts at the start of the log.
    AtLeast,
}

/// A point in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Unix milliseconds.
    TimeMs(i64),
    /// This offset in each partition.
    Offset(i64),
    /// Next offset of each listed partition. Others start at their start offset.
    Positions(Vec<(i32, i64)>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyFormat {
    #[default]
    Text,
    Csv,
    Binary,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub cursor: String,
    pub count: FetchCount,
    /// Timeout for rows. 0 returns available rows, `None` waits for a first row.
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchCount {
    Rows(usize),
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateKind {
    Topic,
    MaterializedView,
}

/// `CREATE TOPIC name AS …` and `CREATE MATERIALIZED VIEW name AS …`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateAs {
    pub kind: CreateKind,
    pub name: String,
    pub if_not_exists: bool,
    /// Names in lower case, with values as written.
    pub options: Vec<(String, String)>,
    pub query: Box<Query>,
    /// Original text of the query, for storage: the parser's output for a tree may differ in
    /// meaning, such as for a string with quotes.
    pub query_text: String,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            snapshot: true,
            progress: false,
            position: false,
            every_ms: None,
            speed: None,
            backpressure: Backpressure::default(),
            on_error: OnError::default(),
        }
    }
}
