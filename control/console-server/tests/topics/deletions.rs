//! Deletion of topics through the console.

use anyhow::{Context, Result};
use serde_json::json;

use super::{Guarded, TOPICS, Together};
use crate::check;
use crate::fixture::{Answer, Client, Fixture};

const ORDERS: &str = "/console/v1/topics/orders";

fn delete(fixture: &Fixture, client: &Client, path: &str) -> Result<Answer> {
    fixture.ask(client, "DELETE", path, None)
}

#[test]
fn a_topic_is_deleted_by_operators_alone_and_the_log_says_what_went() -> Result<()> {
    let together = Together::start()?;
    let fixture = &together.fixture;
    let (viewer, operator) = (together.user("vic", "viewer")?, together.user("olga", "operator")?);
    together.memlane("consume orders --group readers")?;
    for (client, right) in [(&viewer, "forbidden"), (&operator, "allowed")] {
        assert_eq!(fixture.get(client, TOPICS)?.json()?["deletions"], right);
    }
    check(&delete(fixture, &Client::nobody(), ORDERS)?, 401, "unauthorized");
    check(&delete(fixture, &viewer, ORDERS)?, 403, "forbidden");
    let forged = Client { headers: operator.headers[..1].to_vec() };
    check(&delete(fixture, &forged, ORDERS)?, 403, "forged");
    check(&delete(fixture, &operator, "/console/v1/topics/no%2Fthing")?, 404, "not_found");
    assert_eq!(fixture.get(&viewer, ORDERS)?.status, 200, "nothing was deleted");
    let answer = delete(fixture, &operator, ORDERS)?;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""), "{answer:?}");
    check(&fixture.get(&viewer, ORDERS)?, 404, "not_found");
    check(&delete(fixture, &operator, ORDERS)?, 404, "not_found");
    assert_eq!(together.memlane("--json topic list")?.trim(), "[]");
    let audit = "/console/v1/audit?user=olga&method=DELETE&status=204";
    let entries = fixture.get(&together.administrator, audit)?.json()?;
    let entry = entries.as_array().and_then(|it| it.first()).context("an entry")?;
    assert_eq!(entry["path"], ORDERS, "{entry}");
    let partitions = entry["change"]["old"]["partitions"].as_array().context("a list")?;
    let ends = partitions.iter().filter_map(|it| it["end_offset"].as_i64());
    assert_eq!((partitions.len(), ends.sum::<i64>()), (2, 3), "{entry}");
    Ok(())
}

#[test]
fn topics_are_deleted_where_the_broker_lets_the_console() -> Result<()> {
    let guarded = Guarded::start("--broker-kafka BROKER")?;
    let delete = |topic: &str| {
        let path = format!("{TOPICS}/{topic}");
        delete(&guarded.fixture, &guarded.administrator, &path)
    };
    for topic in ["open", "closed"] {
        check(&delete(topic)?, 403, "forbidden");
    }
    guarded.as_admin("acl add console delete --topic open")?;
    assert_eq!(delete("open")?.status, 204);
    check(&delete("closed")?, 403, "forbidden");
    let left = guarded.as_admin("--json topic list")?;
    assert!(left.contains("closed") && !left.contains("open"), "{left}");
    Ok(())
}

#[test]
fn no_topic_is_deleted_without_the_address_of_kafkas_clients() -> Result<()> {
    let guarded = Guarded::start("")?;
    let administrator = &guarded.administrator;
    assert_eq!(guarded.fixture.get(administrator, TOPICS)?.json()?["deletions"], "not_configured");
    let answer = delete(&guarded.fixture, administrator, "/console/v1/topics/open")?;
    check(&answer, 404, "no_broker");
    assert_ne!(answer.json()?["detail"], json!(null));
    Ok(())
}
