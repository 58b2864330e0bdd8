//! The statements as typed trees.

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

/// `SUBSCRIBE`; a name is the query that selects all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    pub query: Box<Query>,
    pub envelope: Envelope,
    pub options: SubscribeOptions,
    pub as_of: Option<AsOf>,
    /// Where the subscription ends: before the first change at this point.
    pub up_to: Option<Point>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Envelope {
    /// Rows with a count of how many more there are: 1 or -1.
    #[default]
    Diff,
    /// Rows by these columns, each in place of the one before.
    Upsert { key: Vec<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct SubscribeOptions {
    /// Begin with what is there. Default: true.
    pub snapshot: bool,
    /// Rows that tell how far it has come. Default: false.
    pub progress: bool,
    /// A column with partition and offset of each row. Default: false.
    pub position: bool,
    /// Milliseconds in which each key changes at most once.
    pub every_ms: Option<u64>,
    /// Factor by which the log is replayed faster than it happened; as fast as it goes if absent.
    pub speed: Option<f64>,
    pub backpressure: Backpressure,
    pub on_error: OnError,
}

/// Treatment of a client that does not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backpressure {
    /// Its subscription waits, and follows from where it stopped.
    #[default]
    Wait,
    /// It misses states in between: of each key it gets the last.
    Conflate,
    /// Its subscription ends with an error.
    Disconnect,
}

/// Treatment of a record on which the query fails, such as by a division by zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// It is no part of the result, and counted.
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

/// Treatment of a point to which the log does not reach back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It is refused.
    Exactly,
    /// It begins where the log does.
    AtLeast,
}

/// A place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Milliseconds since 1970.
    TimeMs(i64),
    /// This offset in each partition.
    Offset(i64),
    /// Partitions and the offset of each that comes next; others begin at their beginning.
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
    /// Time to wait for rows: 0 gives what is there, `None` waits for a first row.
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
    /// Names in lower case, with values as they stand.
    pub options: Vec<(String, String)>,
    pub query: Box<Query>,
    /// The query as it was written, to be kept: what the parser shows of a tree may read
    /// differently, such as a string with quotes in it.
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
