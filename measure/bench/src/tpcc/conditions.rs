//! Consistency conditions 1 to 4 of clause 3.3.2: sums and counts that hold whenever no transaction
//! is in progress.

use anyhow::Result;

use super::database::Observe;

/// A condition as a query that counts violations.
struct Condition {
    number: u32,
    what: &'static str,
    places: &'static str,
    violations: &'static str,
}

/// In SQL that all engines understand.
const CONDITIONS: [Condition; 4] = [
    Condition {
        number: 1,
        what: "w_ytd is the sum of d_ytd",
        places: "warehouses",
        violations: "SELECT
            (SELECT count(*) FROM warehouse LEFT JOIN
                (SELECT d_w_id, sum(d_ytd) AS paid FROM district GROUP BY d_w_id) AS districts
                ON d_w_id = w_id WHERE paid IS NULL OR w_ytd <> paid)
            + (SELECT count(*) FROM (SELECT d_w_id FROM district GROUP BY d_w_id) AS known
                LEFT JOIN warehouse ON w_id = d_w_id WHERE w_id IS NULL)",
    },
    Condition {
        number: 2,
        what: "d_next_o_id follows the largest o_id and no_o_id",
        places: "districts",
        violations: "SELECT count(*) FROM district LEFT JOIN
            (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders
                GROUP BY o_w_id, o_d_id) AS ordered
            ON o_w_id = d_w_id AND o_d_id = d_id LEFT JOIN
            (SELECT no_w_id, no_d_id, max(no_o_id) AS newest_open FROM new_order
                GROUP BY no_w_id, no_d_id) AS opened
            ON no_w_id = d_w_id AND no_d_id = d_id
            WHERE newest IS NULL OR d_next_o_id - 1 <> newest
                OR d_next_o_id - 1 <> coalesce(newest_open, d_next_o_id - 1)",
    },
    Condition {
        number: 3,
        what: "the numbers of new orders follow each other",
        places: "districts",
        violations: "SELECT count(*) FROM (SELECT no_w_id FROM new_order
            GROUP BY no_w_id, no_d_id
            HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) AS gaps",
    },
    Condition {
        number: 4,
        what: "the sum of o_ol_cnt is the number of order lines",
        places: "districts",
        violations: "SELECT count(*) FROM (SELECT w_id FROM
            (SELECT o_w_id AS w_id, o_d_id AS d_id, sum(o_ol_cnt) AS line_count FROM orders
                GROUP BY o_w_id, o_d_id
            UNION ALL SELECT ol_w_id, ol_d_id, -count(*) FROM order_line
                GROUP BY ol_w_id, ol_d_id) AS sides
            GROUP BY w_id, d_id HAVING sum(line_count) <> 0) AS wrong",
    },
];

/// Returns violated conditions as sentences. Empty if the database is consistent.
pub(crate) fn violated(observer: &mut dyn Observe) -> Result<Vec<String>> {
    let mut violated = Vec::new();
    for condition in &CONDITIONS {
        let count = observer.number(condition.violations)?;
        if count > 0 {
            let Condition { number, what, places, .. } = condition;
            violated.push(format!(
                "consistency condition {number} ({what}) does not hold in {count} {places}"
            ));
        }
    }
    Ok(violated)
}
