//! Generator of random queries on whole tables: subqueries, joins, set operations, groups, windows,
//! arrays of rows. Rows have a total order.

mod nested;

use random::Random;

/// Maximum nesting depth of conditions.
const DEPTH: u32 = 2;

const COMPARISONS: &[&str] = &["=", "<>", "<", "<=", ">", ">="];
const TESTS: &[&str] =
    &["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"];
const JOINS: &[&str] = &["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"];
const SORTS: &[&str] = &["", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC"];
const FRAMES: &[&str] = &[
    "",
    " ROWS 2 PRECEDING",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
    " ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
];

/// Queries that PostgreSQL rejects. `R` and `S` stand for tables.
const WRONG: &[&str] = &[
    "SELECT a, b FROM R GROUP BY a",
    "SELECT a + b, count(*) FROM R GROUP BY a",
    "SELECT a, count(*) FROM R",
    "SELECT a FROM R GROUP BY a HAVING b > 1",
    "SELECT a FROM R GROUP BY a ORDER BY b",
    "SELECT a AS x, count(*) AS n FROM R GROUP BY a HAVING n > 2",
    "SELECT a AS x FROM R ORDER BY x + 1",
    "SELECT a AS x FROM R WHERE x = 1",
    "SELECT a AS x, b AS x FROM R ORDER BY x",
    "SELECT a FROM R ORDER BY 2",
    "SELECT a FROM R ORDER BY -1",
    "SELECT a FROM R ORDER BY 'x'",
    "SELECT a FROM R ORDER BY NULL",
    "SELECT DISTINCT a FROM R ORDER BY b",
    "SELECT DISTINCT a FROM R ORDER BY a + 1",
    "SELECT DISTINCT ON (a) a, id FROM R ORDER BY id",
    "SELECT id FROM R, S",
    "SELECT R.id FROM R JOIN S ON a = 1",
    "SELECT R.id FROM R JOIN S ON R.a = S.a ORDER BY b",
    "SELECT 1 FROM R, R",
    "SELECT 1 FROM R x JOIN S x ON true",
    "SELECT a FROM (SELECT a, b AS a FROM R) x",
    "SELECT x.a FROM (SELECT a, b AS a FROM R) x",
    "WITH x AS (SELECT a, b AS a FROM R) SELECT a FROM x",
    "SELECT x FROM (VALUES (1, 2)) t(x, x)",
    "SELECT (SELECT a FROM R)",
    "SELECT (SELECT a, b FROM R)",
    "SELECT id FROM R WHERE a = (SELECT a FROM S)",
    "SELECT ARRAY(SELECT a, b FROM R)",
    "SELECT a FROM R WHERE count(*) > 1",
    "SELECT a FROM R WHERE sum(a) OVER () > 1",
    "SELECT a FROM R GROUP BY count(*)",
    "SELECT sum(count(*)) FROM R",
    "SELECT count(a, b) FROM R",
    "SELECT count() FROM R",
    "SELECT max(a > 1) FROM R",
    "SELECT first_value(a) FROM R",
    "SELECT count(DISTINCT a) OVER () FROM R",
    "SELECT nth_value(a, 0) OVER (ORDER BY id) FROM R",
    "SELECT ntile(0) OVER (ORDER BY id) FROM R",
    "SELECT id FROM R LIMIT -1",
    "SELECT id FROM R OFFSET -1",
    "SELECT id FROM R WHERE c = 1",
    "SELECT id FROM R WHERE c = a",
    "SELECT id FROM R WHERE a = 'x'",
    "SELECT id FROM R WHERE c IN (1, 2)",
    "SELECT id FROM R WHERE a IN (SELECT c FROM S)",
    "SELECT id FROM R WHERE c BETWEEN 1 AND 2",
    "SELECT R.id FROM R JOIN S ON R.a = S.c",
    "SELECT a FROM R JOIN (SELECT c AS a FROM S) x USING (a)",
    "SELECT a FROM R UNION SELECT c FROM S",
    "SELECT a, b FROM R UNION SELECT a FROM S",
    "SELECT a AS x FROM R UNION SELECT b FROM S ORDER BY x + 1",
    "SELECT coalesce(a, c) FROM R",
    "SELECT greatest(a, c) FROM R",
    "SELECT nullif(a, c) FROM R",
    "SELECT CASE WHEN a = 1 THEN a ELSE c END FROM R",
    "SELECT CASE WHEN a THEN 1 END FROM R",
    "SELECT id FROM R WHERE a",
    "SELECT id FROM R WHERE (a, b) = (1, 2, 3)",
];

/// Random queries on tables with integer columns `id`, `a` and `b` and a text column `c`. All
/// except `id` contain NULLs.
pub struct Relations {
    random: Random,
    tables: [String; 3],
}

impl Relations {
    /// The last table must be empty.
    pub fn new(seed: u64, tables: [String; 3]) -> Self {
        Self { random: Random::new(seed), tables }
    }

    /// Draws the values of a row, except `id`.
    pub fn row(&mut self) -> String {
        let (a, b) = (self.small(), self.pick(&["NULL", "0", "1", "2", "5"]));
        let c = self.pick(&["NULL", "'x'", "'y'", "'z'", "''", "'x'"]);
        format!("{a}, {b}, {c}")
    }

    /// Draws a query.
    pub fn query(&mut self) -> String {
        match self.random.below(21) {
            0..=3 => self.filtered(),
            4 => self.joined(),
            5 => self.joined_by_name(),
            6..=7 => self.united(),
            8 => self.array(),
            9 => self.grouped(),
            10 => self.looked_up(),
            11 => self.first_of_each(),
            12 => self.windowed(),
            13 => self.aggregated(),
            14 => self.beside(),
            15 => self.listed(),
            16 => self.latest(),
            17..=19 => self.nested(),
            _ => self.sorted(),
        }
    }

    /// Draws a query that PostgreSQL rejects or that fails during execution.
    pub fn wrong(&mut self) -> String {
        let query = self.pick(WRONG);
        let [full, other, _] = &self.tables;
        let words = query.split_inclusive([' ', '(', ')', ',', '.']);
        let named = words.map(|word| match word.trim_end_matches([' ', '(', ')', ',', '.']) {
            "R" => word.replacen('R', full, 1),
            "S" => word.replacen('S', other, 1),
            _ => word.to_owned(),
        });
        named.collect()
    }

    fn filtered(&mut self) -> String {
        let (table, condition) = (self.table(), self.condition("o", DEPTH));
        format!("SELECT id FROM {table} o WHERE {condition} ORDER BY 1")
    }

    fn condition(&mut self, outer: &str, depth: u32) -> String {
        if depth == 0 {
            return self.atom(outer);
        }
        let depth = depth - 1;
        match self.random.below(8) {
            0..=1 => format!("({} AND {})", self.condition(outer, depth), self.atom(outer)),
            2..=3 => format!("({} OR {})", self.condition(outer, depth), self.atom(outer)),
            4 => format!("(NOT {})", self.condition(outer, depth)),
            5 => format!("({} {})", self.condition(outer, depth), self.pick(TESTS)),
            _ => self.atom(outer),
        }
    }

    fn atom(&mut self, outer: &str) -> String {
        let (sought, not) = (self.operand(outer), self.pick(&["", "NOT "]));
        let comparison = self.pick(COMPARISONS);
        match self.random.below(12) {
            0..=2 => format!("({sought} {not}IN ({}))", self.subquery(outer)),
            3 => format!("({not}EXISTS ({}))", self.subquery(outer)),
            4..=5 => {
                let all = self.pick(&["ANY", "ALL"]);
                format!("({sought} {comparison} {all} ({}))", self.subquery(outer))
            }
            6 => format!("({sought} {comparison} ({}))", self.total(outer)),
            7 => {
                let (one, other) = (self.small(), self.operand(outer));
                format!("({sought} {not}IN ({one}, {other}))")
            }
            8 => {
                let all = self.pick(&["ANY", "ALL"]);
                let (one, other) = (self.small(), self.operand(outer));
                format!("({sought} {comparison} {all} (ARRAY[{one}, {other}]))")
            }
            9 => {
                let (one, two, three) = (self.operand(outer), self.operand(outer), self.small());
                format!("(({sought}, {one}) {comparison} ({two}, {three}))")
            }
            10 => {
                let test = self.pick(&["IS NULL", "IS NOT NULL"]);
                format!("(({sought}, {}) {test})", self.operand(outer))
            }
            _ => format!("({sought} {comparison} {})", self.small()),
        }
    }

    /// Draws a subquery with one integer column.
    fn subquery(&mut self, outer: &str) -> String {
        let (table, column) = (self.table(), self.pick(&["i.a", "i.b", "i.a + 1", "i.id"]));
        let filter = self.inner_filter(outer);
        match self.random.below(12) {
            0 => format!("SELECT DISTINCT {column} FROM {table} i {filter}"),
            1 => format!("SELECT max({column}) FROM {table} i {filter}"),
            2 => {
                let limit = self.random.below(3);
                format!("SELECT {column} FROM {table} i {filter} ORDER BY i.id LIMIT {limit}")
            }
            3 => format!("SELECT count(*) FROM {table} i {filter} GROUP BY i.b"),
            4 => {
                let (join, other) = (self.pick(JOINS), self.table());
                format!("SELECT {column} FROM {table} i {join} {other} j ON i.a = j.b {filter}")
            }
            5 => format!("SELECT {column} FROM {table} i {filter} UNION ALL SELECT 1"),
            _ => format!("SELECT {column} FROM {table} i {filter}"),
        }
    }

    fn inner_filter(&mut self, outer: &str) -> String {
        match self.random.below(6) {
            0..=1 => String::new(),
            2 => format!("WHERE i.b = {outer}.b"),
            3 => format!("WHERE i.a {} {outer}.a", self.pick(COMPARISONS)),
            4 => format!("WHERE i.a = {outer}.b AND i.b > {}", self.random.below(3)),
            _ => format!("WHERE i.{} IS NOT NULL", self.pick(&["a", "b"])),
        }
    }

    /// Draws a scalar subquery with an aggregate.
    fn total(&mut self, outer: &str) -> String {
        let (table, filter) = (self.table(), self.inner_filter(outer));
        let total = self.pick(&["max(i.a)", "min(i.b)", "count(*)", "sum(i.b)", "count(i.a) + 1"]);
        format!("SELECT {total} FROM {table} i {filter}")
    }

    fn joined(&mut self) -> String {
        let (one, two, three) = (self.table(), self.table(), self.table());
        let (join, other_join) =
            (self.pick(JOINS), self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN"]));
        let on = self.pick(&["x.a = y.a", "x.a = y.b", "x.a = y.a AND x.b = y.b", "x.id = y.id"]);
        let also = self.pick(&["", " AND x.a = 1", " AND y.b > 0", " AND x.b < y.b"]);
        let on_other = self.pick(&["z.id = y.id", "z.a = x.a AND z.b = y.b", "z.b > x.b"]);
        let filter = match self.random.below(3) {
            0 => String::new(),
            1 => format!("WHERE {}.{} IS NULL", self.pick(&["x", "y"]), self.pick(&["a", "id"])),
            _ => format!("WHERE {}", self.condition("x", 1)),
        };
        match self.random.one_in(2) {
            true => format!(
                "SELECT x.id, y.id FROM {one} x {join} {two} y ON {on}{also} {filter} ORDER BY 1, 2"
            ),
            false => format!(
                "SELECT x.id, y.id, z.id FROM {one} x {join} {two} y ON {on}{also} \
                 {other_join} {three} z ON {on_other} {filter} ORDER BY 1, 2, 3"
            ),
        }
    }

    fn joined_by_name(&mut self) -> String {
        let (one, two, join) = (self.table(), self.table(), self.pick(JOINS));
        let using = self.pick(&["id", "a", "a, b"]);
        match self.random.below(4) {
            0 => format!(
                "SELECT {using}, x.id, y.id FROM {one} x {join} {two} y USING ({using}) \
                 ORDER BY 1, 2, 3, 4"
            )
            .replace(", 4", if using == "a, b" { ", 4" } else { "" }),
            1 => format!(
                "SELECT * FROM (SELECT id, a FROM {one}) x {join} (SELECT id, b FROM {two}) y \
                 USING (id) ORDER BY 1, 2, 3"
            ),
            2 => format!(
                "SELECT * FROM (SELECT id, a FROM {one}) x NATURAL {join} \
                 (SELECT id, b FROM {two}) y ORDER BY 1, 2, 3"
            ),
            _ => format!(
                "SELECT a, count(*), max(x.id) FROM {one} x {join} {two} y USING (a) GROUP BY a \
                 ORDER BY a"
            ),
        }
    }

    fn united(&mut self) -> String {
        let columns = self.pick(&["a", "a, b", "b, a + 1", "c, a"]);
        let mut query = self.side(columns);
        for _ in 0..=self.random.below(2) {
            let operator = self.pick(&["UNION", "EXCEPT", "INTERSECT"]);
            let all = self.pick(&["", " ALL"]);
            let side = match self.random.one_in(5) {
                true => format!("({} UNION ALL {})", self.side(columns), self.side(columns)),
                false => self.side(columns),
            };
            query = format!("{query} {operator}{all} {side}");
        }
        let order = if columns == "a" { "1" } else { "1, 2" };
        match self.random.one_in(4) {
            true => format!("SELECT count(*), count(k1) FROM ({query}) q(k1)")
                .replace("q(k1)", if columns == "a" { "q(k1)" } else { "q(k1, k2)" }),
            false => format!("{query} ORDER BY {order}"),
        }
    }

    fn side(&mut self, columns: &str) -> String {
        let (table, filter) = (self.table(), self.plain_filter());
        format!("SELECT {columns} FROM {table}{filter}")
    }

    fn plain_filter(&mut self) -> String {
        match self.random.below(3) {
            0 => String::new(),
            1 => format!(" WHERE a {} {}", self.pick(COMPARISONS), self.random.below(4)),
            _ => format!(" WHERE b {}", self.pick(&["IS NULL", "IS NOT NULL"])),
        }
    }

    fn array(&mut self) -> String {
        let (table, filter, sort) = (self.table(), self.plain_filter(), self.pick(SORTS));
        let column = self.pick(&["a", "id", "c", "a + b"]);
        let limit = self.limit();
        match self.random.below(6) {
            0 => format!(
                "SELECT ARRAY(SELECT DISTINCT {column} FROM {table} ORDER BY 1{sort}{limit})"
            ),
            1 => format!("SELECT ARRAY(SELECT {column} FROM {table}{filter} ORDER BY id{sort})"),
            2 => {
                let other = self.table();
                format!(
                    "SELECT id, ARRAY(SELECT i.id FROM {table} i WHERE i.a = o.a \
                     ORDER BY i.id{sort}) FROM {other} o ORDER BY 1"
                )
            }
            3 => {
                format!("SELECT ARRAY(SELECT count(*) FROM {table}{filter} GROUP BY a ORDER BY 1)")
            }
            4 => {
                let other = self.table();
                format!(
                    "SELECT ARRAY(SELECT a FROM {table}{filter} UNION ALL SELECT b FROM {other} \
                     ORDER BY 1{sort})"
                )
            }
            _ => format!(
                "SELECT ARRAY(SELECT {column} AS k FROM {table}{filter} ORDER BY k{sort}, \
                 id{limit})"
            ),
        }
    }

    fn grouped(&mut self) -> String {
        let (table, filter) = (self.table(), self.plain_filter());
        let having = match self.random.below(3) {
            0 => String::new(),
            1 => format!("HAVING count(*) > {}", self.random.below(3)),
            _ => "HAVING max(b) IS NOT NULL".to_owned(),
        };
        match self.random.below(7) {
            0 => format!(
                "SELECT a AS x, count(*) AS n FROM {table}{filter} GROUP BY x {having} \
                 ORDER BY n DESC, x"
            ),
            1 => {
                format!("SELECT a + 1 AS a, count(*) FROM {table}{filter} GROUP BY a ORDER BY 1, 2")
            }
            2 => format!(
                "SELECT a % 2 AS b, count(*) AS n FROM {table}{filter} GROUP BY b ORDER BY 1, 2"
            ),
            3 => format!("SELECT -a AS a, id FROM {table}{filter} ORDER BY a, id"),
            4 => {
                let (rolled, all) = ("ROLLUP (a, b)", "CUBE (a, b)");
                let sets = self.pick(&[rolled, all, "GROUPING SETS ((a), (b), ())"]);
                // No filter: PostgreSQL 15 does not sort by a column that a filter makes constant,
                // even if grouping sets omit it.
                format!(
                    "SELECT a, b, count(*), sum(id) FROM {table} GROUP BY {sets} {having} \
                     ORDER BY 1, 2, 3, 4"
                )
            }
            5 => format!("SELECT count(*), max(a) FROM {table}{filter} {having}"),
            _ => format!(
                "SELECT a, sum(count(*)) OVER (ORDER BY a) FROM {table}{filter} GROUP BY a \
                 {having} ORDER BY a"
            ),
        }
    }

    /// Draws a query with a scalar subquery for each row.
    fn looked_up(&mut self) -> String {
        let (table, total) = (self.table(), self.total("o"));
        match self.random.below(4) {
            0..=1 => format!("SELECT id, ({total}) FROM {table} o ORDER BY 1"),
            2 => {
                let other = self.table();
                format!(
                    "SELECT a, (SELECT max(i.b) FROM {other} i WHERE i.a = o.a) AS m, count(*) \
                     FROM {table} o GROUP BY a ORDER BY 1"
                )
            }
            _ => {
                let (sort, other) = (self.pick(SORTS), self.table());
                format!(
                    "SELECT id, (SELECT i.id FROM {other} i WHERE i.a = o.a ORDER BY i.b{sort}, \
                     i.id LIMIT 1) FROM {table} o ORDER BY 1"
                )
            }
        }
    }

    fn first_of_each(&mut self) -> String {
        let (table, filter, sort) = (self.table(), self.plain_filter(), self.pick(SORTS));
        let (key, limit) = (self.pick(&["a", "b", "a, b", "c"]), self.limit());
        let sorted = key.replace(',', &format!("{sort},"));
        match self.random.below(3) {
            0 => {
                format!("SELECT DISTINCT {key} FROM {table}{filter} ORDER BY {sorted}{sort}{limit}")
            }
            _ => format!(
                "SELECT DISTINCT ON ({key}) {key}, id FROM {table}{filter} \
                 ORDER BY {sorted}{sort}, id{limit}"
            ),
        }
    }

    fn windowed(&mut self) -> String {
        let (table, filter, sort) = (self.table(), self.plain_filter(), self.pick(SORTS));
        let partition = self.pick(&["", "PARTITION BY b ", "PARTITION BY c "]);
        let (frame, number) = (self.pick(FRAMES), self.pick(&["a", "b", "id"]));
        match self.random.below(4) {
            0 => {
                let function =
                    self.pick(&["rank()", "dense_rank()", "cume_dist()", "percent_rank()"]);
                format!(
                    "SELECT id, {function} OVER ({partition}ORDER BY {number}{sort}) \
                     FROM {table}{filter} ORDER BY 1"
                )
            }
            1 => {
                let function = self.pick(&["lag(a)", "lead(a, 2)", "lag(b, 1, 9)", "lead(a, -1)"]);
                format!(
                    "SELECT id, {function} OVER ({partition}ORDER BY id{sort}) \
                     FROM {table}{filter} ORDER BY 1"
                )
            }
            // Range frames give all peers the same value.
            2 if !frame.contains("ROWS") => format!(
                "SELECT id, sum({number}) OVER ({partition}ORDER BY a{sort}{frame}), \
                 count(*) FILTER (WHERE b > 0) OVER ({partition}ORDER BY a{sort}{frame}) \
                 FROM {table}{filter} ORDER BY 1"
            ),
            _ => {
                let function =
                    self.pick(&["sum(a)", "count(b)", "max(c)", "first_value(a)", "last_value(b)"]);
                format!(
                    "SELECT id, {function} OVER ({partition}ORDER BY id{sort}{frame}) \
                     FROM {table}{filter} ORDER BY 1"
                )
            }
        }
    }

    fn aggregated(&mut self) -> String {
        let (table, filter, sort) = (self.table(), self.plain_filter(), self.pick(SORTS));
        let aggregates = [
            "count(*), count(a), sum(a), max(b), min(c), bool_or(a > 1), bool_and(b > 1)"
                .to_owned(),
            "count(DISTINCT a), sum(DISTINCT b), max(DISTINCT c), count(DISTINCT (a, b))"
                .to_owned(),
            "count(*) FILTER (WHERE a = 1), sum(a) FILTER (WHERE b > 9), max(a)".to_owned(),
            format!("array_agg(a ORDER BY id{sort}), string_agg(c, ',' ORDER BY id{sort})"),
            format!("array_agg(DISTINCT a), string_agg(DISTINCT c, '-' ORDER BY c{sort})"),
            format!("array_agg(id ORDER BY b{sort}, id) FILTER (WHERE a > 1)"),
        ];
        let aggregates = &aggregates[self.random.index(aggregates.len())];
        match self.random.one_in(2) {
            true => format!("SELECT {aggregates} FROM {table}{filter}"),
            false => format!("SELECT b, {aggregates} FROM {table}{filter} GROUP BY b ORDER BY b"),
        }
    }

    /// Draws a query with a LATERAL join.
    fn beside(&mut self) -> String {
        let (table, other, filter) = (self.table(), self.table(), self.inner_filter("o"));
        let join = self.pick(&["CROSS JOIN LATERAL", "LEFT JOIN LATERAL"]);
        let on = if join.starts_with("LEFT") { " ON true" } else { "" };
        let columns = self.pick(&["i.id", "i.a", "count(*) AS id", "max(i.b) AS id", "o.a AS id"]);
        let column = if columns == "i.a" { "a" } else { "id" };
        format!(
            "SELECT o.id, l.{column} FROM {table} o {join} \
             (SELECT {columns} FROM {other} i {filter}) l{on} ORDER BY 1, 2"
        )
    }

    /// Draws a query with a subquery condition among its columns.
    fn listed(&mut self) -> String {
        let (table, condition, filter) =
            (self.table(), self.condition("o", 1), self.plain_filter());
        match self.random.below(4) {
            0 => format!("SELECT count(*) FILTER (WHERE {condition}) FROM {table} o{filter}"),
            1 => format!("SELECT id, CASE WHEN {condition} THEN 1 END FROM {table} o ORDER BY 1"),
            _ => format!("SELECT id, {condition} FROM {table} o{filter} ORDER BY 1"),
        }
    }

    /// Draws a query that returns the first rows of another table for each row.
    fn latest(&mut self) -> String {
        let (table, other, filter) = (self.table(), self.table(), self.inner_filter("o"));
        let (sort, key) = (self.pick(SORTS), self.pick(&["i.a", "i.b", "i.a + o.a", "i.c"]));
        let (count, skipped) = (self.random.below(4), self.pick(&["", "", " OFFSET 1"]));
        let column = self.pick(&["i.id", "i.a", "i.b + o.b", "7"]);
        let rows = format!(
            "SELECT {column} AS v FROM {other} i {filter} ORDER BY {key}{sort}, i.id LIMIT"
        );
        match self.random.below(4) {
            0 => format!("SELECT id, ({rows} 1) FROM {table} o ORDER BY 1"),
            1 => format!("SELECT id FROM {table} o WHERE ({rows} 1) = o.a ORDER BY 1"),
            2 => format!(
                "SELECT o.id, l.v FROM {table} o LEFT JOIN LATERAL ({rows} {count}) l ON true \
                 ORDER BY 1, 2"
            ),
            _ => format!(
                "SELECT o.id, l.v FROM {table} o, LATERAL ({rows} {count}{skipped}) l ORDER BY 1, 2"
            ),
        }
    }

    fn sorted(&mut self) -> String {
        let (table, filter, limit) = (self.table(), self.plain_filter(), self.limit());
        let (key, sort) = (self.pick(&["a", "c", "b + a", "-b", "c, a"]), self.pick(SORTS));
        format!("SELECT id, a, b FROM {table}{filter} ORDER BY {key}{sort}, id{limit}")
    }

    fn limit(&mut self) -> String {
        let (count, skipped) = (self.random.below(6), self.random.below(6));
        match self.random.below(6) {
            0 => format!(" LIMIT {count}"),
            1 => format!(" LIMIT {count} OFFSET {skipped}"),
            2 => format!(" OFFSET {skipped}"),
            3 => " LIMIT NULL OFFSET NULL".to_owned(),
            _ => String::new(),
        }
    }

    fn operand(&mut self, outer: &str) -> String {
        match self.random.below(5) {
            0..=1 => format!("{outer}.a"),
            2 => format!("{outer}.b"),
            3 => format!("({outer}.a + 1)"),
            _ => self.small().to_owned(),
        }
    }

    /// Draws a small integer or a typed NULL.
    fn small(&mut self) -> &'static str {
        self.pick(&["NULL::int", "1", "2", "3", "4", "1"])
    }

    fn table(&mut self) -> String {
        let place = [0, 0, 0, 1, 1, 1, 1, 2][self.random.index(8)];
        self.tables[place].clone()
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        self.random.pick(choices)
    }
}
