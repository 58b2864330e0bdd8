//! Generator of random queries with numerics of several scales in one column: behind joins, groups,
//! windows, set operations and subqueries, in arrays, JSON and texts. The rows have a total order.

use random::Random;

/// Maximum nesting depth of expressions.
const DEPTH: u32 = 2;

/// Literals that are not zero. No two of them are equal, and differences of them rarely are: which
/// of equal values is shown depends on the order of rows.
const VALUES: &[&str] = &[
    "1.37",
    "2.9",
    "4",
    "8.125",
    "0.61",
    "13.00",
    "100.5",
    "0.0300",
    "7.7000",
    "250",
    "-5.50",
    "31.4159",
    "12345678901.5",
    "-70000",
    "0.00021",
    "99.990",
];

const DIVISORS: &[&str] = &["3", "7", "1.2", "0.007", "40.0", "600000", "2.50"];
const AGGREGATES: &[&str] = &["sum", "min", "max", "avg"];
const WINDOWS: &[&str] = &["sum", "min", "max", "avg", "lag", "lead", "first_value", "last_value"];
const FRAMES: &[&str] =
    &["", " ROWS 1 PRECEDING", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"];
const JOINS: &[&str] = &["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"];

/// Draws queries from a seed.
pub struct Numerics {
    random: Random,
}

impl Numerics {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    pub fn query(&mut self) -> String {
        let (rows, one, other) = (self.rows("t"), self.expr(DEPTH), self.expr(DEPTH));
        match self.random.below(16) {
            kind @ 8.. => self.query_of_texts(kind, &rows, (&one, &other)),
            0 => format!("SELECT g, {one}, {other} FROM {rows} ORDER BY g"),
            1 => {
                let (join, second) = (self.pick(JOINS), self.rows("u"));
                format!(
                    "SELECT t.g, u.g, t.x, t.y, u.x, u.y, t.x + u.x, t.y * u.y \
                     FROM {rows} {join} {second} ON t.g = u.g ORDER BY t.g, u.g"
                )
            }
            2 => {
                let (first, second) = (self.pick(AGGREGATES), self.pick(AGGREGATES));
                format!(
                    "SELECT g % 2, {first}({one}), {second}({other}), {first}({one}) / 7 \
                     FROM {rows} GROUP BY 1 ORDER BY 1"
                )
            }
            3 => format!("SELECT x, count(*), max(y), x / 3 FROM {rows} GROUP BY x ORDER BY x"),
            4 => format!("SELECT DISTINCT x, x / 7 FROM {rows} ORDER BY x"),
            5 => format!(
                "SELECT x, x / 3 FROM (SELECT 1 AS o, g, x FROM {rows} \
                 UNION ALL SELECT 2, g, {one} FROM {rows} \
                 UNION ALL SELECT 3, 0, {}) u ORDER BY o, g",
                self.pick(VALUES)
            ),
            6 => {
                let (name, frame) = (self.pick(WINDOWS), self.pick(FRAMES));
                format!(
                    "SELECT g, {name}({one}) OVER (ORDER BY g{frame}), \
                     x / sum({other}) OVER (PARTITION BY g % 2) FROM {rows} ORDER BY g"
                )
            }
            _ => {
                let (name, second) = (self.pick(AGGREGATES), self.rows("u"));
                format!(
                    "SELECT g, (SELECT {name}(u.x) FROM {second} WHERE u.g <= t.g), \
                     x / (SELECT {name}(y / 7) FROM {rows}) FROM {rows} ORDER BY g"
                )
            }
        }
    }

    /// Draws a query with arrays, JSON and texts, or with quotients of quotients.
    fn query_of_texts(&mut self, kind: u64, rows: &str, (one, other): (&str, &str)) -> String {
        match kind {
            8 => format!(
                "SELECT array_agg({one} ORDER BY g), (array_agg(x ORDER BY g))[2], \
                 string_agg(({other})::text, ',' ORDER BY g) FROM {rows}"
            ),
            9 => format!(
                "SELECT json_agg({one} ORDER BY g), jsonb_agg(x ORDER BY g), \
                 json_object_agg(g, y ORDER BY g) FROM {rows}"
            ),
            10 => format!(
                "SELECT json_build_object('a', {one}, 'b', x), to_json(y), row_to_json(t), \
                 format('%s', {other}) FROM (SELECT * FROM {rows}) t ORDER BY g"
            ),
            11 => format!(
                "SELECT q, q / {}, q * 2, q || '' FROM (SELECT g, {one} AS q FROM {rows}) s \
                 ORDER BY g",
                self.pick(DIVISORS)
            ),
            12 => format!(
                "SELECT sum(e), sum(e) / {}, max(e) FROM (SELECT unnest(ARRAY[{}, {}])) s(e)",
                self.pick(DIVISORS),
                self.constant_quotient(),
                self.constant_quotient()
            ),
            13 => format!(
                "WITH c AS (SELECT g % 2 AS k, sum({one}) AS s, avg(y) AS m FROM {rows} \
                 GROUP BY 1) SELECT t.g, c.s, c.m, c.m / 3, t.x FROM {rows} \
                 JOIN c ON c.k = t.g % 2 ORDER BY 1"
            ),
            14 => format!(
                "SELECT DISTINCT ON (g % 2) g % 2, {one}, x FROM {rows} ORDER BY g % 2, g DESC"
            ),
            _ => format!(
                "SELECT coalesce(b.x, {}), a.y FROM {rows} JOIN LATERAL (SELECT t.g, {one} AS x) b \
                 ON true JOIN {} ON a.g = t.g ORDER BY t.g",
                self.pick(VALUES),
                self.rows("a")
            ),
        }
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        self.random.pick(choices)
    }

    /// Draws a table with distinct values in each column.
    fn rows(&mut self, name: &str) -> String {
        let (first, second) = (self.random.below(4), self.random.below(4));
        let count = 2 + self.random.below(4);
        let value = |at: u64| VALUES[usize::try_from(at).expect("few") % VALUES.len()];
        let rows: Vec<_> = (0..count)
            .map(|row| {
                let (x, y) = (value(first + row * 3), value(second + row * 5));
                let y = if self.random.below(8) == 0 { "NULL" } else { y };
                format!("({row}, {x}, {y})")
            })
            .collect();
        format!("(VALUES {}, (9, 1.25, 2)) {name}(g, x, y)", rows.join(", "))
    }

    fn constant_quotient(&mut self) -> String {
        format!("{} / {}", self.pick(VALUES), self.pick(DIVISORS))
    }

    fn expr(&mut self, depth: u32) -> String {
        if depth == 0 || self.random.below(5) == 0 {
            return self.pick(&["x", "y", "x", "t.y"]).to_owned();
        }
        let (one, other) = (self.expr(depth - 1), self.expr(depth - 1));
        match self.random.below(11) {
            0 => format!("({one} + {other})"),
            1 => format!("({one} - {})", self.pick(VALUES)),
            2 => format!("({one} * {})", self.pick(VALUES)),
            3..=4 => format!("({one} / {})", self.pick(DIVISORS)),
            5 => format!("CASE WHEN g > 1 THEN {one} ELSE {other} END"),
            6 => format!("coalesce({one}, {})", self.pick(VALUES)),
            7 => format!("(- ({one} * 3))"),
            8 => format!("abs({one})"),
            9 => format!("greatest({one}, {})", self.pick(VALUES)),
            _ => format!("round({one}, 2)"),
        }
    }
}
