//! Limits of queries, so that no statement of a client can exhaust the broker.

/// Maximum bytes of a statement.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Maximum operators, brackets and keywords of a statement, which can be nested, unlike list items.
pub const STATEMENT_OPERATORS_MAX: usize = 1_000;
/// Maximum nesting of brackets and prefixes in a statement: the parser recurses on the caller's
/// stack.
pub const STATEMENT_DEPTH_MAX: usize = 24;
/// Maximum nesting of an expression. A chain of AND or OR is one level.
pub const EXPRESSION_DEPTH_MAX: usize = 50;
/// Maximum items of an IN list.
pub const IN_LIST_MAX: usize = 10_000;
/// Maximum bytes of a LIKE pattern.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Maximum bytes of the result of one function or operator.
pub const MADE_TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum expressions that a query selects, groups by or orders by.
pub const COLUMNS_MAX: usize = 256;
/// Maximum steps of a JSON path.
pub const PATH_STEPS_MAX: usize = 16;
/// Maximum JSON paths of all queries on a topic.
pub const PATHS_MAX: usize = 1_024;
/// Maximum nesting of containers in a record that counts as JSON.
pub const JSON_DEPTH_MAX: usize = 512;
/// Maximum LIMIT of a live query: rows that a top-n maintains.
pub const TOP_ROWS_MAX: usize = 10_000;
