//! Offsets of groups: display and resets.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use system::{Background, product, wait_for};

use super::{Guarded, TIME_LIMIT, Together};
use crate::check;
use crate::fixture::{Answer, Client};

const GROUP: &str = "/console/v1/groups/readers";
const RESET: &str = "/console/v1/groups/readers/offsets";

/// Expected offset after a reset, as a function of the partition's end.
type OfEnd = fn(i64) -> i64;

/// Returns the committed offsets of group `readers` in topic `orders`, by partition.
fn offsets(together: &Together) -> Result<Vec<i64>> {
    let group = together.fixture.get(&together.administrator, GROUP)?.json()?;
    let partitions = group["topics"][0]["partitions"].as_array().context(group.to_string())?;
    let offset = |it: &Value| it["committed_offset"].as_i64().context("an offset");
    partitions.iter().map(offset).collect()
}

fn changes(answer: &Answer) -> Result<Vec<(i64, i64)>> {
    ensure!(answer.status == 200, "{answer:?}");
    let told = answer.json()?;
    let told = told.as_array().context("a list")?;
    let number = |it: &Value| it.as_i64().context("a number");
    told.iter().map(|it| Ok((number(&it["from"])?, number(&it["to"])?))).collect()
}

#[test]
fn a_group_is_told_with_its_lag_in_each_partition() -> Result<()> {
    let together = Together::start()?;
    together.memlane("consume orders --group readers")?;
    together.sql("INSERT INTO orders (key, value, partition) VALUES ('z', '1', 1)")?;
    let viewer = together.user("vic", "viewer")?;
    check(&together.fixture.get(&Client::nobody(), GROUP)?, 401, "unauthorized");
    check(&together.fixture.get(&viewer, "/console/v1/groups/no%2Fgroup")?, 404, "not_found");
    let group = together.fixture.get(&viewer, GROUP)?.json()?;
    assert_eq!(group["topics"][0]["topic"], "orders", "{group}");
    let partitions = group["topics"][0]["partitions"].as_array().context("a list")?;
    let lags: Vec<_> = partitions.iter().map(|it| it["lag"].as_i64()).collect();
    assert_eq!(lags, [Some(0), Some(1)], "{group}");
    let end = partitions[1]["end_offset"].as_i64().context("an offset")?;
    assert_eq!(partitions[1]["committed_offset"], end - 1, "{group}");
    assert_eq!(partitions[1]["start_offset"], 0, "{group}");
    assert_eq!(group["resets"], "forbidden", "who looks resets nothing: {group}");
    let as_administrator = together.fixture.get(&together.administrator, GROUP)?.json()?;
    assert_eq!(as_administrator["resets"], "allowed");
    Ok(())
}

#[test]
fn offsets_are_reset_to_each_kind_of_place_and_by_operators_alone() -> Result<()> {
    let together = Together::start()?;
    let fixture = &together.fixture;
    let (viewer, operator) = (together.user("vic", "viewer")?, together.user("olga", "operator")?);
    together.memlane("consume orders --group readers")?;
    let ends = offsets(&together)?;
    assert_eq!(ends.iter().sum::<i64>(), 3);
    let earliest = json!({"to": "earliest"});
    check(&fixture.post(&Client::nobody(), RESET, &earliest)?, 401, "unauthorized");
    check(&fixture.post(&viewer, RESET, &earliest)?, 403, "forbidden");
    let forged = Client { headers: operator.headers[..1].to_vec() };
    check(&fixture.post(&forged, RESET, &earliest)?, 403, "forged");
    assert_eq!(offsets(&together)?, ends, "nothing was reset");
    for (body, field) in [
        (json!({"to": "offset"}), "offset"),
        (json!({"to": "offset", "offset": -1}), "offset"),
        (json!({"to": "time"}), "time_ms"),
        (json!({"to": "time", "time_ms": 1, "offset": 1}), "to"),
        (json!({"to": "latest", "offset": 1}), "to"),
    ] {
        let answer = fixture.post(&operator, RESET, &body)?;
        check(&answer, 422, "invalid_field");
        assert_eq!(answer.json()?["field"], field, "{answer:?}");
    }
    check(&fixture.post(&operator, RESET, &json!({"to": "newest"}))?, 400, "invalid_request");
    let nowhere = "/console/v1/groups/nobody/offsets";
    check(&fixture.post(&operator, nowhere, &earliest)?, 404, "not_found");
    let other = json!({"to": "earliest", "topics": ["nothing"]});
    check(&fixture.post(&operator, RESET, &other)?, 404, "not_found");

    let expected: Vec<_> = ends.iter().map(|&end| (end, 0)).collect();
    assert_eq!(changes(&fixture.post(&operator, RESET, &earliest)?)?, expected);
    let cases: [(Value, OfEnd); 4] = [
        (json!({"to": "latest", "topics": ["orders"]}), |end| end),
        (json!({"to": "offset", "offset": 1}), |end| end.min(1)),
        (json!({"to": "time", "time_ms": 4_102_444_800_000_i64}), |end| end),
        (json!({"to": "time", "time_ms": 0}), |_| 0),
    ];
    for (body, of_end) in cases {
        changes(&fixture.post(&operator, RESET, &body)?)?;
        let expected: Vec<_> = ends.iter().map(|&end| of_end(end)).collect();
        assert_eq!(offsets(&together)?, expected, "{body}");
    }
    let audit = fixture
        .get(&together.administrator, "/console/v1/audit?user=olga&path=offsets&status=200")?;
    let entries = audit.json()?;
    let first = entries.as_array().and_then(|it| it.last()).context("an entry")?;
    let old = json!({"orders": {"0": ends[0], "1": ends[1]}});
    assert_eq!(first["change"]["old"], old, "the log keeps where the group was: {first}");
    Ok(())
}

#[test]
fn offsets_of_a_group_with_members_are_left_alone() -> Result<()> {
    let together = Together::start()?;
    let follow = "consume orders --group readers --follow";
    let tool = together.tool().args(follow.split_whitespace()).output_to(tempfile::tempfile()?)?;
    let mut member = Background::start(tool)?;
    let members = || together.fixture.get(&together.administrator, GROUP)?.json();
    let has_come = || Ok(members()?["member_count"] == 1 && offsets(&together).is_ok());
    wait_for("a member that has committed", TIME_LIMIT, has_come)?;
    let reset =
        || together.fixture.post(&together.administrator, RESET, &json!({"to": "earliest"}));
    let refused = reset()?;
    check(&refused, 409, "conflict");
    let detail = refused.json()?["detail"].to_string();
    for part in ["while the group is inactive", "stop its consumers", "UNKNOWN_MEMBER_ID"] {
        ensure!(detail.contains(part), "{detail}");
    }
    member.end(Signal::INT, TIME_LIMIT)?;
    wait_for("its end", TIME_LIMIT, || Ok(members()?["member_count"] == 0))?;
    assert!(!changes(&reset()?)?.is_empty());
    Ok(())
}

#[test]
fn offsets_are_reset_where_the_broker_lets_the_console() -> Result<()> {
    let guarded = Guarded::start("--broker-kafka BROKER")?;
    for topic in ["open", "closed"] {
        guarded.as_admin(&format!("group reset readers --to earliest --topic {topic}"))?;
    }
    let reset = |topic: &str| {
        let body = json!({"to": "latest", "topics": [topic]});
        guarded.fixture.post(&guarded.administrator, RESET, &body)
    };
    check(&reset("open")?, 403, "forbidden");
    guarded.as_admin("acl add console read --group readers")?;
    check(&reset("open")?, 403, "forbidden");
    guarded.as_admin("acl add console read --topic open")?;
    assert_eq!(changes(&reset("open")?)?, [(0, 0)]);
    check(&reset("closed")?, 403, "forbidden");
    Ok(())
}

#[test]
fn nobody_gets_the_consoles_rights_to_reset_offsets() -> Result<()> {
    let words = "--broker 127.0.0.1:1 --broker-kafka 127.0.0.1:2 --broker-users --broker-user a \
                 --broker-password-file /dev/null";
    let folder = tempfile::tempdir()?;
    let console = product("memlane-console").args(words.split_whitespace());
    let ended = console.arg("--state-dir").arg(folder.path().join("state")).run()?;
    ensure!(ended.exit_code == Some(1), "{ended:?}");
    ensure!(ended.stderr.contains("cannot be used with --broker-users"), "{ended:?}");
    Ok(())
}
