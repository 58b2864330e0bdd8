//! Limits of a query, so that no text of a client takes the broker with it.

/// Bytes of one statement.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Operators, brackets and keywords of one statement: what can nest, unlike the items of a list.
pub const STATEMENT_OPERATORS_MAX: usize = 1_000;
/// Levels of brackets and prefixes in a statement: the parser recurses, on the caller's stack.
pub const STATEMENT_DEPTH_MAX: usize = 24;
/// Levels of one expression. Chains of AND and OR count once.
pub const EXPRESSION_DEPTH_MAX: usize = 50;
/// Items of an IN list.
pub const IN_LIST_MAX: usize = 10_000;
/// Bytes of a LIKE pattern.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Bytes that one function or operator may make out of a record.
pub const MADE_TEXT_BYTES_MAX: usize = 1 << 20;
/// Expressions that a query selects, groups by or orders by.
pub const COLUMNS_MAX: usize = 256;
/// Steps of one JSON path.
pub const PATH_STEPS_MAX: usize = 16;
/// JSON paths that the queries of one topic want together.
pub const PATHS_MAX: usize = 1_024;
/// Containers inside each other in a record that counts as JSON.
pub const JSON_DEPTH_MAX: usize = 512;
/// LIMIT of a live query: rows that a top-n keeps.
pub const TOP_ROWS_MAX: usize = 10_000;
