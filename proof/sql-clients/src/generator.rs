//! Generator of random queries from a seed, in the SQL that PostgreSQL and the broker share.
//!
//! Each query has one correct answer: rows have a total order. Constructs that differ by design are
//! never drawn; the test of the differences lists them.

use random::Random;

/// Maximum nesting depth of expressions.
const DEPTH: u32 = 3;

const WORDS: &[&str] = &["'ABC'", "'abc'", "'x-y'", "''", "'ä'", "'B%'", "'a_c'", "NULL"];
const PATTERNS: &[&str] =
    &["'A%'", "'%c'", "'_b%'", "'%'", "''", "'a\\_c'", "'%B\\%%'", "'%-%'", "'___'", "NULL"];
const TIMES: &[&str] = &[
    "timestamptz '2026-01-01 00:00:00+00'",
    "timestamptz '2026-01-31 12:30:15.25+00'",
    "timestamptz '2026-02-28 23:59:59.999+00'",
    "(timestamptz '2026-02-01 00:00:00+00' + interval '36 hours')",
];
const UNITS: &[&str] = &["year", "month", "week", "day", "hour", "minute"];
const PARTS: &[&str] = &["year", "month", "day", "hour", "minute", "dow", "doy", "week", "quarter"];

/// Expressions that fail for some record, or before reading any.
const FAILING: &[&str] = &[
    "12 / (partition - partition)",
    "\"offset\" % (partition - partition)",
    "(value->>'price')::numeric / (partition - partition)",
    "(value->>'symbol')::int",
    "(value->>'price')::int",
    "(value->>'symbol')::numeric",
    "(value->>'symbol')::double precision",
    "\"offset\" + 9223372036854775807",
    "partition * 2147483647::int",
    "(partition + 40000)::smallint",
    "abs(-9223372036854775807 - \"offset\")",
    "('1e300'::double precision + partition)::bigint",
    "sqrt(partition - 5)",
    "substr(key, 1, -1)",
    "date_trunc('nothing', time)",
    "nothing",
    "nothing(key)",
    "-key",
    "partition = key",
];

/// Random queries on two tables of records.
pub struct Generator {
    random: Random,
    orders: String,
    quotes: String,
    /// Prefix of column names.
    prefix: &'static str,
}

impl Generator {
    /// Generates queries on tables `orders` and `quotes`, whose values are JSON objects with the
    /// fields of [`Generator::order`] and [`Generator::quote`].
    pub fn new(seed: u64, orders: &str, quotes: &str) -> Self {
        let (orders, quotes) = (orders.to_owned(), quotes.to_owned());
        Self { random: Random::new(seed), orders, quotes, prefix: "" }
    }

    /// Draws key and value of an order as SQL. Both may be NULL.
    pub fn order(&mut self) -> (String, String) {
        if self.random.one_in(30) {
            return ("'tombstone'".to_owned(), "NULL".to_owned());
        }
        let key = match self.random.one_in(12) {
            true => "NULL".to_owned(),
            false => {
                let (name, number) = (self.pick(&["ord", "Ord", "x-"]), self.random.below(40));
                format!("'{name}{number}'")
            }
        };
        let mut fields = Vec::new();
        if !self.random.one_in(10) {
            fields.push(format!("\"symbol\": {}", self.json_text(&["ABC", "abc", "x-y", "ä", ""])));
        }
        if !self.random.one_in(10) {
            fields.push(format!("\"qty\": {}", self.pick(&["0", "1", "-7", "12", "300", "null"])));
        }
        if !self.random.one_in(10) {
            let price = self.pick(&["0.5", "12.25", "-3.75", "100.0", "100", "null", "7.125"]);
            fields.push(format!("\"price\": {price}"));
        }
        let side = self.json_text(&["buy", "sell", "B%x", "a_c"]);
        fields.push(format!("\"side\":{side},\"live\": {}", self.pick(&["true", "false", "null"])));
        let list = self.pick(&["[]", "[1, 2]", "[\"one\", {\"two\": null}]"]);
        fields.push(format!("\"more\": {{\"list\": {list}, \"note\": \"it is \\\"so\\\"\"}}"));
        (key, format!("'{{{}}}'", fields.join(", ")))
    }

    /// Draws key and value of a quote as SQL.
    pub fn quote(&mut self) -> (String, String) {
        let symbol = self.pick(&["ABC", "abc", "x-y", "none"]);
        let (qty, price) = (self.random.below(20), self.pick(&["0.5", "12.25", "99.5"]));
        (format!("'{symbol}'"), format!("'{{\"qty\": {qty}, \"price\": {price}}}'"))
    }

    /// Draws a query.
    pub fn query(&mut self) -> String {
        self.prefix = "";
        match self.random.below(12) {
            0..=2 => self.projection(),
            3..=4 => self.sorted(),
            5..=6 => self.grouped(),
            7 => self.joined(),
            8 => self.windowed(),
            9 => self.united(),
            10 => self.nested(),
            _ => self.total(),
        }
    }

    /// Draws a query that PostgreSQL rejects or that fails during execution.
    pub fn failing(&mut self) -> String {
        let (fails, orders) = (self.pick(FAILING), &self.orders);
        match self.random.below(6) {
            0 => format!("SELECT key, {fails} FROM {orders}"),
            1 => format!("SELECT count(*) FROM {orders} WHERE ({fails}) IS NOT NULL"),
            2 => format!("SELECT {fails}, count(*) FROM {orders} GROUP BY 1"),
            3 => format!("SELECT count({fails}) FROM {orders}"),
            4 => format!("SELECT DISTINCT {fails} FROM {orders}"),
            _ => format!("WITH f AS (SELECT {fails} AS c FROM {orders}) SELECT count(c) FROM f"),
        }
    }

    fn projection(&mut self) -> String {
        let count = 1 + self.random.below(4);
        let columns: Vec<_> =
            (0..count).map(|it| format!("{} AS c{it}", self.any(DEPTH))).collect();
        let (columns, orders) = (columns.join(", "), self.orders.clone());
        let (filter, limit) = (self.filter(), self.limit());
        format!("SELECT {columns} FROM {orders} {filter} ORDER BY partition, \"offset\" {limit}")
    }

    fn sorted(&mut self) -> String {
        let (key, filter, orders) = (self.any(2), self.filter(), self.orders.clone());
        let order = self.pick(&["", "ASC", "DESC", "NULLS FIRST", "DESC NULLS LAST"]);
        format!(
            "SELECT partition, \"offset\", {key} AS k FROM {orders} {filter} \
             ORDER BY k {order}, 1, 2 {}",
            self.limit()
        )
    }

    fn grouped(&mut self) -> String {
        let (group, filter, orders) = (self.any(2), self.filter(), self.orders.clone());
        let count = 1 + self.random.below(4);
        let aggregates: Vec<_> =
            (0..count).map(|it| format!("{} AS a{it}", self.aggregate())).collect();
        let having = match self.random.below(3) {
            0 => format!("HAVING count(*) > {}", self.random.below(20)),
            1 => format!("HAVING sum({}) IS NOT NULL", self.integer(1)),
            _ => String::new(),
        };
        let aggregates = aggregates.join(", ");
        let selected = format!("SELECT {group} AS g, {aggregates} FROM {orders} {filter}");
        format!("{selected} GROUP BY 1 {having} ORDER BY 1")
    }

    fn total(&mut self) -> String {
        let aggregates: Vec<_> =
            (0..=self.random.below(4)).map(|it| format!("{} AS a{it}", self.aggregate())).collect();
        format!("SELECT {} FROM {} {}", aggregates.join(", "), self.orders.clone(), self.filter())
    }

    fn joined(&mut self) -> String {
        self.prefix = "o.";
        let join = self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let on = self.pick(&[
            "o.value->>'symbol' = q.key",
            "upper(o.value->>'symbol') = q.key",
            "(o.value->>'qty')::int = (q.value->>'qty')::int",
            "o.\"offset\" = q.\"offset\" AND o.partition = q.partition",
        ]);
        let (column, filter, limit) = (self.any(1), self.filter(), self.limit());
        format!(
            "SELECT o.partition, o.\"offset\", q.partition, q.\"offset\", {column} AS c \
             FROM {} o {join} {} q ON {on} {filter} ORDER BY 1, 2, 3, 4 {limit}",
            self.orders, self.quotes
        )
    }

    fn windowed(&mut self) -> String {
        // Depth 0: nested calls, such as abs(length(key)), cannot be partitioned or ranked by.
        let (group, number) = (self.text(0), self.integer(0));
        let place = "partition, \"offset\"";
        let function = match self.random.below(7) {
            0 => "row_number()".to_owned(),
            1 => format!("lag({number}) "),
            2 => format!("lead({number}, 2)"),
            3 => format!("sum({number})"),
            4 => "count(*)".to_owned(),
            5 => format!("first_value({number})"),
            _ => format!("max({number})"),
        };
        let ranked = match self.random.one_in(2) {
            true => format!("rank() OVER (ORDER BY {number})"),
            false => format!("dense_rank() OVER (PARTITION BY partition ORDER BY {number} DESC)"),
        };
        let filter = self.filter();
        format!(
            "SELECT {place}, {function} OVER (PARTITION BY {group} ORDER BY {place}) AS w, \
             {ranked} AS r FROM {} {filter} ORDER BY {place}",
            self.orders
        )
    }

    fn united(&mut self) -> String {
        let operator = self.pick(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
        let (one, other) = match self.random.one_in(2) {
            true => (self.integer(1), self.integer(1)),
            false => (self.text(1), self.text(1)),
        };
        let (filter, other_filter) = (self.filter(), self.filter());
        let (orders, quotes) = (&self.orders, &self.quotes);
        format!(
            "SELECT {one} AS c FROM {orders} {filter} {operator} \
             SELECT {other} FROM {quotes} {other_filter} ORDER BY 1"
        )
    }

    fn nested(&mut self) -> String {
        let (orders, quotes) = (self.orders.clone(), self.quotes.clone());
        let filter = match self.random.below(4) {
            0 => format!("\"offset\" IN (SELECT {} FROM {quotes})", self.integer(1)),
            1 => format!("key NOT IN (SELECT key FROM {quotes} WHERE key IS NOT NULL)"),
            2 => format!(
                "{}EXISTS (SELECT 1 FROM {quotes} q WHERE q.key = {orders}.value->>'symbol')",
                self.pick(&["", "NOT "])
            ),
            _ => format!("{} < (SELECT max(\"offset\") FROM {quotes})", self.integer(1)),
        };
        let (column, other) = (self.any(2), self.boolean(2));
        format!(
            "WITH found AS (SELECT partition, \"offset\", {column} AS c FROM {orders} \
             WHERE {filter} AND {other}) SELECT * FROM found ORDER BY 1, 2"
        )
    }

    fn aggregate(&mut self) -> String {
        let plain = match self.random.below(11) {
            0 => "count(*)".to_owned(),
            1 => format!("count({})", self.any(2)),
            2 => format!("count(DISTINCT {})", self.text(2)),
            3 => format!("sum({})", self.integer(2)),
            4 => format!("sum({})", self.float(1)),
            5 => format!("avg({})", self.float(1)),
            6 => format!("avg({})", self.integer(1)),
            7 => format!("min({})", self.text(1)),
            8 => format!("max({})", self.integer(2)),
            9 => format!("bool_or({})", self.boolean(2)),
            _ => format!("max({})", self.time()),
        };
        let filtered = match self.random.one_in(5) {
            true => format!("{plain} FILTER (WHERE {})", self.boolean(1)),
            false => plain,
        };
        // The avg of integers is numeric in PostgreSQL.
        match filtered.starts_with("avg") {
            true => format!("({filtered})::double precision"),
            false => filtered,
        }
    }

    fn filter(&mut self) -> String {
        match self.random.one_in(6) {
            true => String::new(),
            false => format!("WHERE {}", self.boolean(DEPTH)),
        }
    }

    fn limit(&mut self) -> String {
        match self.random.below(3) {
            0 => format!("LIMIT {}", self.random.below(20)),
            1 => format!("LIMIT {} OFFSET {}", self.random.below(20), self.random.below(50)),
            _ => String::new(),
        }
    }

    fn any(&mut self, depth: u32) -> String {
        match self.random.below(8) {
            0..=1 => self.integer(depth),
            2 => self.float(depth),
            3..=4 => self.text(depth),
            5 => self.time(),
            6 => self.numeric(),
            _ => self.boolean(depth),
        }
    }

    fn boolean(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.simple_boolean();
        }
        let depth = depth - 1;
        match self.random.below(12) {
            0..=1 => format!("({} AND {})", self.boolean(depth), self.boolean(depth)),
            2..=3 => format!("({} OR {})", self.boolean(depth), self.boolean(depth)),
            4 => format!("(NOT {})", self.boolean(depth)),
            5 => {
                let test = self.pick(&["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN"]);
                format!("({} IS {test})", self.boolean(depth))
            }
            6 => self.compared(depth),
            7 => {
                let word = self.pick(&["BETWEEN", "NOT BETWEEN"]);
                let (low, high) = (self.integer(0), self.integer(depth));
                format!("({} {word} {low} AND {high})", self.integer(depth))
            }
            8 => {
                let word = self.pick(&["IN", "NOT IN"]);
                // Constants only: two IN lists of columns in one filter are merged without regard
                // to NULL.
                let list = [self.pick(WORDS), self.pick(WORDS), self.pick(WORDS)].join(", ");
                format!("({} {word} ({list}))", self.text(depth))
            }
            9 => {
                let word = self.pick(&["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"]);
                format!("({} {word} {})", self.text(depth), self.pick(PATTERNS))
            }
            10 => {
                let word = self.pick(&["IS DISTINCT FROM", "IS NOT DISTINCT FROM"]);
                format!("({} {word} {})", self.integer(depth), self.integer(depth))
            }
            _ => format!("({} {})", self.any(depth), self.pick(&["IS NULL", "IS NOT NULL"])),
        }
    }

    fn simple_boolean(&mut self) -> String {
        let prefix = self.prefix;
        match self.random.below(8) {
            0 => format!("({prefix}value->>'live')::boolean"),
            1 => format!("{prefix}partition = {}", self.random.below(4)),
            2 => format!("{prefix}\"offset\" {} {}", self.operator(), self.random.below(120)),
            3 => format!("{prefix}time {} {}", self.operator(), self.pick(TIMES)),
            4 => format!("{prefix}key {} {}", self.operator(), self.pick(WORDS)),
            5 => format!("{prefix}key IN ('ord1', 'ord2', 'x-3', 'tombstone')"),
            6 => format!("{prefix}value->>'symbol' {} {}", self.operator(), self.pick(WORDS)),
            _ => format!("{prefix}key LIKE {}", self.pick(&["'ord%'", "'Ord1_'", "'%3'"])),
        }
    }

    /// Draws a comparison of two values with comparable types.
    fn compared(&mut self, depth: u32) -> String {
        let (one, other) = match self.random.below(6) {
            0 => (self.integer(depth), self.integer(depth)),
            1 => (self.integer(depth), self.float(depth)),
            2 => (self.numeric(), self.integer(depth)),
            3 => (self.float(depth), self.integer(0)),
            4 => (self.time(), self.pick(TIMES).to_owned()),
            _ => (self.text(depth), self.text(depth)),
        };
        format!("({one} {} {other})", self.operator())
    }

    fn operator(&mut self) -> &'static str {
        self.pick(&["=", "<>", "<", "<=", ">", ">="])
    }

    fn integer(&mut self, depth: u32) -> String {
        let prefix = self.prefix;
        if depth == 0 {
            return match self.random.below(6) {
                0 => format!("{prefix}partition"),
                1 => format!("{prefix}\"offset\""),
                2 => format!("({prefix}value->>'qty')::int"),
                3 => format!("({prefix}value->>'qty')::bigint"),
                4 => format!("length({prefix}key)"),
                _ => format!("{}", self.random.below(13)),
            };
        }
        let depth = depth - 1;
        match self.random.below(10) {
            0 => self.integer(0),
            1 => {
                let operator = self.pick(&["+", "-", "*"]);
                format!("({} {operator} {})", self.integer(depth), self.integer(0))
            }
            2 => {
                let divisor = self.pick(&["2", "-3", "7"]);
                format!("({} {} {divisor})", self.integer(depth), self.pick(&["/", "%"]))
            }
            3 => format!("abs({})", self.integer(depth)),
            4 => format!("coalesce({}, {})", self.integer(depth), self.integer(depth)),
            5 => format!("nullif({}, {})", self.integer(depth), self.integer(0)),
            6 => {
                let function = self.pick(&["greatest", "least"]);
                format!("{function}({}, {})", self.integer(depth), self.integer(0))
            }
            7 => {
                let (when, then, other) =
                    (self.boolean(depth), self.integer(depth), self.integer(depth));
                format!("CASE WHEN {when} THEN {then} ELSE {other} END")
            }
            8 => format!("extract({} from {})::int", self.pick(PARTS), self.time()),
            _ => format!("strpos({}, {})", self.text(depth), self.pick(&["'b'", "'-'", "'rd'"])),
        }
    }

    /// Avoids -0, which the engine sorts below 0 and PostgreSQL treats as equal to 0.
    fn float(&mut self, depth: u32) -> String {
        format!("({} + 0::double precision)", self.signed_float(depth))
    }

    fn signed_float(&mut self, depth: u32) -> String {
        let prefix = self.prefix;
        if depth == 0 {
            return match self.random.below(3) {
                0 => format!("{}::double precision", self.integer(0)),
                _ => format!("({prefix}value->>'price')::double precision"),
            };
        }
        let depth = depth - 1;
        match self.random.below(6) {
            0 => {
                let operator = self.pick(&["+", "-", "*"]);
                format!("({} {operator} {})", self.float(depth), self.float(0))
            }
            1 => format!("({} / 4)", self.float(depth)),
            2 => format!("{}({})", self.pick(&["floor", "ceil", "abs"]), self.float(depth)),
            3 => format!("sqrt(abs({}))", self.float(depth)),
            4 => format!("coalesce({}, {})", self.float(depth), self.float(0)),
            _ => format!("(-{})", self.float(depth)),
        }
    }

    fn numeric(&mut self) -> String {
        let price = format!("({}value->>'price')::numeric", self.prefix);
        match self.random.below(4) {
            0 => price,
            1 => format!("({price} + {})", self.pick(&["0.25", "-1.5", "3"])),
            2 => format!("({price} * {})", self.integer(0)),
            _ => format!("abs({price})"),
        }
    }

    fn text(&mut self, depth: u32) -> String {
        let prefix = self.prefix;
        if depth == 0 {
            return match self.random.below(6) {
                0 => format!("{prefix}key"),
                1..=2 => format!("({prefix}value->>'symbol')"),
                3 => format!("({prefix}value->>'side')"),
                4 => match self.random.below(4) {
                    0 => format!("({prefix}value->'more'->>'note')"),
                    1 => format!("({prefix}value->'more'->'list'->>0)"),
                    2 => format!("({prefix}value#>>'{{more,list,1}}')"),
                    _ => format!("({prefix}value->'more'->'list'->1->>'two')"),
                },
                _ => format!("{}::text", self.pick(WORDS)),
            };
        }
        let depth = depth - 1;
        match self.random.below(11) {
            0 => format!("{}({})", self.pick(&["upper", "lower", "reverse"]), self.text(depth)),
            1 => {
                let (from, count) = (1 + self.random.below(4), self.random.below(4));
                format!("substr({}, {from}, {count})", self.text(depth))
            }
            2 => {
                let function = self.pick(&["left", "right", "repeat"]);
                format!("{function}({}, {})", self.text(depth), self.random.below(4))
            }
            3 => format!("({} || {})", self.text(depth), self.text(0)),
            4 => format!("coalesce({}, {})", self.text(depth), self.text(0)),
            5 => format!("replace({}, 'b', 'xx')", self.text(depth)),
            6 => format!("split_part({}, '-', {})", self.text(depth), 1 + self.random.below(2)),
            7 => format!("({})::text", self.integer(depth)),
            8 => {
                let function = self.pick(&["lpad", "rpad"]);
                format!("{function}({}, 5, '.+')", self.text(depth))
            }
            9 => format!("trim({} || '  ')", self.text(depth)),
            _ => format!("concat({}, '/', {})", self.text(depth), self.integer(0)),
        }
    }

    fn time(&mut self) -> String {
        let prefix = self.prefix;
        match self.random.below(5) {
            0..=1 => format!("{prefix}time"),
            2 => format!("date_trunc('{}', {prefix}time)", self.pick(UNITS)),
            3 => {
                let span = self.pick(&["1 hour", "90 minutes", "1 month", "3 days"]);
                format!("({prefix}time {} interval '{span}')", self.pick(&["+", "-"]))
            }
            _ => format!("({prefix}time + interval '1 day')"),
        }
    }

    fn json_text(&mut self, texts: &[&'static str]) -> String {
        match self.random.one_in(8) {
            true => "null".to_owned(),
            false => format!("\"{}\"", self.random.pick(texts)),
        }
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        self.random.pick(choices)
    }
}
