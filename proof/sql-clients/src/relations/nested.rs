//! Conditions above derived tables, whose columns may be constants, and conditions without columns.

use super::{COMPARISONS, Relations};

/// Joins that PostgreSQL plans with any condition.
const OPEN_JOINS: &[&str] = &["JOIN", "LEFT JOIN", "RIGHT JOIN"];

impl Relations {
    /// Draws a query on derived tables.
    pub(super) fn nested(&mut self) -> String {
        let (derived, condition) = (self.derived(), self.derived_condition("d"));
        match self.random.below(6) {
            0..=1 => {
                format!("SELECT v, k FROM ({derived}) d WHERE {condition} ORDER BY 1, 2")
            }
            2 => {
                let having = self.columnless_condition();
                format!(
                    "SELECT count(*), max(k), min(v) FROM ({derived}) d WHERE {condition} \
                     HAVING {having}"
                )
            }
            3 => {
                let (table, having) = (self.table(), self.columnless_condition());
                let groups = self.pick(&["a", "()", "GROUPING SETS ((a), ())", "a, b"]);
                format!(
                    "SELECT count(*), sum(id) FROM {table} GROUP BY {groups} HAVING {having} \
                     ORDER BY 1, 2"
                )
            }
            4 => {
                let (table, not) = (self.table(), self.pick(&["", "NOT "]));
                let sought = self.operand("o");
                format!(
                    "SELECT id, ({sought} {not}IN (SELECT d.v FROM ({derived}) d \
                     WHERE {condition})) FROM {table} o ORDER BY 1"
                )
            }
            _ => self.derived_join(&derived, &condition),
        }
    }

    fn derived_join(&mut self, derived: &str, condition: &str) -> String {
        let (table, filter) = (self.table(), self.columnless_condition());
        let on = match self.random.below(4) {
            0 => self.derived_condition("d"),
            1 => format!("x.a = d.k AND {condition}"),
            2 => format!("x.id = d.v AND {filter}"),
            _ => "x.a = d.v".to_owned(),
        };
        let above = match self.random.below(3) {
            0 => String::new(),
            1 => format!("WHERE {condition}"),
            _ => format!("WHERE {filter} OR x.b > 0"),
        };
        let join = self.pick(OPEN_JOINS);
        format!(
            "SELECT x.id, d.v, d.k FROM {table} x {join} ({derived}) d ON {on} {above} \
             ORDER BY 1, 2, 3"
        )
    }

    /// Draws a derived table with the integer columns `v` and `k`.
    fn derived(&mut self) -> String {
        let (table, filter) = (self.table(), self.plain_filter());
        let (constant, other) = (self.small(), self.table());
        match self.random.below(14) {
            0..=1 => format!("SELECT max(a) AS v, {constant} AS k FROM {table}{filter}"),
            2 => format!("SELECT count(*) AS v, {constant} AS k FROM {table}{filter}"),
            3 => format!("SELECT a AS v, count(*) AS k FROM {table}{filter} GROUP BY a"),
            4 => format!(
                "SELECT sum(b) AS v, count(*) AS k FROM {table} GROUP BY GROUPING SETS ((a), ())"
            ),
            5 => format!("SELECT a AS k, count(*) AS v FROM {table} GROUP BY ROLLUP (a)"),
            6 => format!("SELECT id AS v, {constant} AS k FROM {table}{filter}"),
            7 => {
                let limit = self.random.below(5);
                format!("SELECT id AS v, a AS k FROM {table}{filter} ORDER BY id LIMIT {limit}")
            }
            8 => format!("SELECT DISTINCT b AS v, {constant} AS k FROM {table}{filter}"),
            9 => format!(
                "SELECT id AS v, sum(a) OVER (PARTITION BY b ORDER BY id) AS k FROM {table}{filter}"
            ),
            10 => format!(
                "SELECT a AS v, {constant} AS k FROM {table} UNION ALL SELECT b, 2 FROM {other}"
            ),
            11 => format!(
                "SELECT t.v, t.k FROM (VALUES (1, 2), (NULL, {constant}), (4, NULL)) t(v, k)"
            ),
            12 => format!("SELECT (SELECT max(a) FROM {table}) AS v, {constant} AS k"),
            _ => format!(
                "SELECT z.id AS v, y.k FROM {table} z LEFT JOIN (SELECT id, {constant} AS k \
                 FROM {other}) y ON y.id = z.a"
            ),
        }
    }

    /// Draws a condition on a derived table.
    fn derived_condition(&mut self, name: &str) -> String {
        let (comparison, small) = (self.pick(COMPARISONS), self.small());
        let column = self.pick(&["v", "k", "k"]);
        match self.random.below(8) {
            0..=1 => format!("{name}.{column} {comparison} {small}"),
            2 => format!("{name}.{column} {}", self.pick(&["IS NULL", "IS NOT NULL"])),
            3 => format!("coalesce({name}.{column}, {small}) {comparison} 1"),
            4 => {
                let other = self.columnless_condition();
                format!("({name}.{column} {comparison} {small} OR {other})")
            }
            5 => {
                let (not, subquery) = (self.pick(&["", "NOT "]), self.columnless_subquery());
                format!("{name}.{column} {not}IN ({subquery})")
            }
            _ => self.columnless_condition(),
        }
    }

    /// Draws a condition without columns of the query around it.
    fn columnless_condition(&mut self) -> String {
        let (comparison, small) = (self.pick(COMPARISONS), self.small());
        let subquery = self.columnless_subquery();
        match self.random.below(7) {
            0 => format!("(SELECT {})", self.pick(&["true", "false", "NULL::boolean"])),
            1 => format!("({subquery} LIMIT 1) {comparison} {small}"),
            2 => format!("EXISTS ({subquery})"),
            3 => format!("NOT EXISTS ({subquery})"),
            4 => format!("{small} IN ({subquery})"),
            5 => format!("{small} {comparison} ALL ({subquery})"),
            _ => format!("{small} {comparison} {}", self.small()),
        }
    }

    fn columnless_subquery(&mut self) -> String {
        let (table, filter) = (self.table(), self.plain_filter());
        match self.random.below(3) {
            0 => format!("SELECT max(a) FROM {table}{filter}"),
            1 => format!("SELECT count(*) FROM {table}{filter}"),
            _ => format!("SELECT min(id) FROM {table}{filter} HAVING count(*) > 3"),
        }
    }
}
