//! Generator of random queries with integer literals everywhere. Their types decide which division
//! is used, where an overflow occurs and which column types clients see.

use random::Random;

/// Maximum nesting depth of expressions.
const DEPTH: u32 = 3;

const SMALL: &[&str] = &["0", "1", "2", "3", "7", "8", "10", "-1", "-2", "-5"];
const LARGE: &[&str] = &[
    "32767",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483647",
    "-2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775807",
    "1.5",
];
const BRANCHES: &[&str] = &["NULL", "3", "-7", "2.25", "1.5", "9223372036854775807"];
const COLUMNS: &[&str] = &["id", "a", "b"];
const ARITHMETIC: &[&str] = &["+", "-", "*", "/", "%", "+", "-"];
const BITS: &[&str] = &["&", "|", "#", "<<", ">>"];
const COMPARISONS: &[&str] = &["=", "<>", "<", "<=", ">", ">="];
const TYPES: &[&str] = &["int", "bigint", "smallint", "numeric", "int", "bigint"];
const AGGREGATES: &[&str] = &["sum", "min", "max", "avg", "count", "bit_and", "bit_or", "sum"];

/// Random queries on a table with columns `id` and `a` (integer) and `b` (bigint).
pub struct Integers {
    random: Random,
    table: String,
}

impl Integers {
    pub fn new(seed: u64, table: String) -> Self {
        Self { random: Random::new(seed), table }
    }

    /// Draws the values of a row, except `id`.
    pub fn row(&mut self) -> String {
        let a = self.pick(&["NULL", "0", "1", "-3", "8", "2147483647", "-2147483648"]);
        let b = self.pick(&["NULL", "0", "2", "-7", "2147483648", "9223372036854775807"]);
        format!("{a}, {b}")
    }

    /// Draws a query.
    pub fn query(&mut self) -> String {
        let table = self.table.clone();
        match self.random.below(16) {
            0..=2 => format!("SELECT {}", self.constant(DEPTH)),
            3..=4 => format!("SELECT id, {} FROM {table} ORDER BY id", self.expr(DEPTH)),
            5 => {
                let (agg, value) = (self.pick(AGGREGATES), self.expr(2));
                let by = self.pick(SMALL);
                format!("SELECT {agg}({value}), {agg}({value}) / {by} FROM {table}")
            }
            6 => format!(
                "SELECT x, x / {}, {} / x / 7 FROM (SELECT {} UNION ALL SELECT {}) u(x) ORDER BY 1",
                self.pick(SMALL),
                self.number(),
                self.pick(BRANCHES),
                self.branch()
            ),
            7 => format!(
                "SELECT x, x / {}, sum(x) OVER () / 2 FROM (VALUES ({}), ({})) v(x) ORDER BY 1",
                self.pick(SMALL),
                self.branch(),
                self.branch()
            ),
            8 => format!(
                "SELECT g, g / 2, g * {} FROM generate_series({}, {}) s(g)",
                self.number(),
                self.pick(SMALL),
                self.pick(&["3", "10", "12"])
            ),
            9 => {
                let (one, other) = (self.constant(1), self.constant(1));
                format!("SELECT ARRAY[{one}, {other}], (ARRAY[{one}, {other}])[1] / 2")
            }
            10 => format!(
                "SELECT sum(x), sum(x) / 2 FROM (SELECT unnest(ARRAY[{}, {}])) u(x)",
                self.constant(1),
                self.constant(1)
            ),
            11 => format!(
                "SELECT id, sum({}) OVER (ORDER BY id ROWS 1 PRECEDING) / 2, \
                 lag(a, 1, {}) OVER (ORDER BY id), row_number() OVER (ORDER BY id), \
                 ntile(2) OVER (ORDER BY id), rank() OVER (ORDER BY id) / 2 \
                 FROM {table} ORDER BY 1",
                self.pick(COLUMNS),
                self.pick(SMALL)
            ),
            12 => format!(
                "SELECT id FROM {table} WHERE {} ORDER BY 1 LIMIT {} OFFSET {}",
                self.condition(),
                self.pick(&["1", "3", "10"]),
                self.pick(&["0", "1", "2"])
            ),
            13 => format!(
                "SELECT {}, count(*), count(*) / 2 FROM {table} GROUP BY 1 ORDER BY 1",
                self.expr(1)
            ),
            14 => format!(
                "SELECT ('[4, 5, 6]'::jsonb->{})::int / 2 + {}, substr('abcdef', {})",
                self.pick(&["0", "1", "2", "7"]),
                self.number(),
                self.pick(SMALL)
            ),
            _ => format!(
                "SELECT x.id, y.k FROM {table} x JOIN (VALUES ({}), ({})) y(k) ON x.a = y.k \
                 ORDER BY 1, 2",
                self.number(),
                self.number()
            ),
        }
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        self.random.pick(choices)
    }

    fn number(&mut self) -> &'static str {
        match self.random.below(5) {
            0 => self.pick(LARGE),
            _ => self.pick(SMALL),
        }
    }

    fn expr(&mut self, depth: u32) -> String {
        let leaf = |this: &mut Self| match this.random.below(2) {
            0 => this.pick(COLUMNS).to_owned(),
            _ => this.number().to_owned(),
        };
        self.drawn(depth, leaf)
    }

    fn constant(&mut self, depth: u32) -> String {
        self.drawn(depth, |this| this.number().to_owned())
    }

    /// Draws a constant without a subquery, whose digits after the point are not known beside other
    /// branches (see the guide's differences).
    fn branch(&mut self) -> String {
        loop {
            let drawn = self.constant(1);
            if !drawn.contains("SELECT") {
                return drawn;
            }
        }
    }

    fn drawn(&mut self, depth: u32, leaf: fn(&mut Self) -> String) -> String {
        if depth == 0 || self.random.below(5) == 0 {
            return leaf(self);
        }
        let one = self.drawn(depth - 1, leaf);
        let other = self.drawn(depth - 1, leaf);
        match self.random.below(13) {
            0..=3 => format!("({one}) {} ({other})", self.pick(ARITHMETIC)),
            4 => format!("({one}) {} ({other})", self.pick(BITS)),
            5 => format!("CASE WHEN {one} > {other} THEN {one} ELSE {other} END"),
            6 => {
                let (one, other) = (self.pick(BRANCHES), self.number());
                format!("(SELECT max(x) FROM (SELECT {one} UNION ALL SELECT {other}) u(x))")
            }
            // PostgreSQL evaluates unneeded constants too, and fails if one of them does.
            7 => format!("coalesce({one}, {})", leaf(self)),
            8 => format!("{}({one}, {other})", self.pick(&["greatest", "least", "nullif", "mod"])),
            9 => format!("({one})::{}", self.pick(TYPES)),
            10 => format!("-({one})"),
            11 => format!("abs({one})"),
            _ => format!("({one}) / {}", self.number()),
        }
    }

    fn condition(&mut self) -> String {
        let (column, number) = (self.pick(COLUMNS), self.number());
        match self.random.below(4) {
            0 => format!("{column} IN ({number}, {}, {})", self.number(), self.number()),
            1 => format!("{column} BETWEEN {number} AND {}", self.number()),
            2 => format!("{} {} {}", self.expr(1), self.pick(COMPARISONS), self.expr(1)),
            _ => format!("{column} {} {number}", self.pick(COMPARISONS)),
        }
    }
}
