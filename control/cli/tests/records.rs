//! Tests of commands on topics, records and groups with a real broker.

mod broker;

use std::io::{BufRead, BufReader, Write};
use std::process::Child;

use broker::{Broker, finished};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Sends Ctrl-C.
fn interrupt(child: &Child) {
    tell(child, Signal::INT);
}

fn tell(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(id, signal).expect("it can be told");
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_topic_lives_from_create_to_delete() {
    let broker = Broker::new();
    let created = broker.json("topic create t --partitions 2 --config retention.ms=60000", 0);
    assert_eq!(created, json!({"created": "t"}));
    let error = broker.json("topic create t", 1);
    assert_eq!(error["error"]["kind"], "already_exists", "{error}");
    let listed = json!([{"name": "t", "partitions": 2, "records": 0, "internal": false}]);
    assert_eq!(broker.json("topic list", 0), listed);
    let shown = broker.json("topic show t", 0);
    assert_eq!(shown["settings"]["retention.ms"], json!({"value": "60000", "own": true}));
    assert_eq!(shown["partitions"].as_array().map(Vec::len), Some(2));

    broker.text("topic set t retention.ms= segment.ms=5000 --partitions 3", 0);
    let shown = broker.json("topic show t", 0);
    assert_eq!(shown["settings"]["retention.ms"]["own"], false, "{shown}");
    assert_eq!(shown["settings"]["segment.ms"], json!({"value": "5000", "own": true}));
    assert_eq!(shown["partitions"].as_array().map(Vec::len), Some(3));
    let text = broker.text("topic show t", 0);
    assert!(text.contains("segment.ms") && text.contains("memlane.durability"), "{text}");

    assert_eq!(broker.json("topic rm t", 0), json!({"deleted": "t"}));
    for words in ["topic show t", "topic delete t", "produce t", "consume t"] {
        assert_eq!(broker.json(words, 3)["error"]["kind"], "not_found", "{words}");
    }
}

#[test]
fn a_setting_that_is_refused_changes_nothing() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    let before = broker.json("topic show t", 0);
    for words in [
        "topic set t segment.ms=5000 colour=red",
        "topic set t retention.ms=soon",
        "topic create u --config colour=red",
    ] {
        let error = broker.json(words, 1);
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(message.contains("INVALID_CONFIG"), "{words}: {message}");
    }
    assert_eq!(broker.json("topic show t", 0), before);
    assert_eq!(broker.json("topic list", 0).as_array().map(Vec::len), Some(1));
}

#[test]
fn records_come_back_as_they_were_sent() {
    let broker = Broker::new();
    broker.text("topic create t --partitions 3", 0);
    let mut expected = Vec::new();
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        for acks in ["1", "all"] {
            let lines = [1, 2, 3].map(|it| format!("{compression}{acks}{it}=value {it}"));
            let words =
                format!("produce t --key-separator = --compression {compression} --acks {acks}");
            broker.feed(&words, &lines.join("\n"), 0);
            expected.extend(lines);
        }
    }
    expected.sort_unstable();
    let text = broker.text("consume t --key-separator =", 0);
    assert_eq!(sorted(&text), expected);
    assert_eq!(broker.json("topic list", 0)[0]["records"], 30);
}

#[test]
fn lines_that_are_each_within_the_limit_of_a_batch_are_not_put_into_a_longer_one() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    // Two of these are more than `max.message.bytes`.
    let lines: Vec<String> =
        (0..16).map(|number| "x".repeat(500_000 + number % 2 * 100_000)).collect();
    let report = broker.feed("produce t --json --input text", &lines.join("\n"), 0);
    let report: Value = serde_json::from_str(&report).expect("one JSON value");
    assert_eq!(report["records"], 16, "{report}");
    let read = broker.text("consume t", 0);
    assert!(read.lines().eq(lines.iter().map(String::as_str)), "{} bytes", read.len());
}

#[test]
fn a_copy_by_json_has_keys_headers_and_times() {
    let broker = Broker::new();
    broker.text("topic create a", 0);
    broker.text("topic create b", 0);
    let records = [
        json!({
            "key": "k",
            "value": "v",
            "timestamp_ms": 1_700_000_000_000_u64,
            "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": null}],
        }),
        json!({"key_base64": "/w==", "value": null}),
        json!({"value": ""}),
    ]
    .map(|record| record.to_string())
    .join("\n");
    let report = broker.feed("produce a --json", &records, 0);
    let report: Value = serde_json::from_str(&report).expect("one JSON value");
    assert_eq!(report["records"], 3, "{report}");
    let copied = broker.text("consume a --json", 0);
    broker.feed("produce b --json", &copied, 0);
    let copy = broker.text("consume b --json", 0);
    assert_eq!(copy, copied.replace(r#""topic":"a""#, r#""topic":"b""#));
    let first: Value = serde_json::from_str(copy.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (&first["key"], &first["timestamp_ms"]),
        (&json!("k"), &json!(1_700_000_000_000_u64))
    );
    assert_eq!(first["headers"].as_array().map(Vec::len), Some(2), "{first}");
    assert!(copy.contains(r#""key":null,"key_base64":"/w==","value":null"#), "{copy}");
}

#[test]
fn what_stands_before_a_bad_line_is_sent() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    let error = broker.feed("produce t --json", "{\"value\":\"a\"}\nb\n", 1);
    assert!(error.contains("line 2") && error.contains("1 record before"), "{error}");
    assert_eq!(broker.text("consume t", 0), "a\n");
}

#[test]
fn reading_begins_at_a_place_and_ends_after_a_count() {
    let broker = Broker::new();
    broker.text("topic create t --partitions 2", 0);
    broker.feed("produce t --partition 1", "a\nb\nc\nd\n", 0);
    for (words, expected) in [
        ("consume t", "a\nb\nc\nd\n"),
        ("consume t --from 2", "c\nd\n"),
        ("consume t --from latest", ""),
        ("consume t --from 1h --count 1", "a\n"),
        ("consume t --from 1000000", ""),
        ("consume t --from 2099-01-01T00:00:00Z", ""),
        ("consume t --partition 0", ""),
        ("consume t --partition 1 --from 3 --committed", "d\n"),
    ] {
        assert_eq!(broker.text(words, 0), expected, "{words}");
    }
    broker.text("consume t --partition 2", 3);
    broker.text("produce t --partition 2", 0);
    broker.feed("produce t --partition 2", "x", 2);
}

#[test]
fn following_goes_on_until_ctrl_c() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    broker.feed("produce t", "before\n", 0);
    let mut follower = broker.spawn("consume t --follow");
    let mut lines = BufReader::new(follower.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "before");
    broker.feed("produce t", "after\n", 0);
    assert_eq!(next(), "after");
    interrupt(&follower);
    assert_eq!(follower.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_group_goes_on_where_it_was_and_can_be_reset() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    broker.feed("produce t", "a\nb\nc\n", 0);
    assert_eq!(broker.text("consume t --group g --count 2", 0), "a\nb\n");
    let group = broker.json("group show g", 0);
    assert_eq!((&group["lag"], &group["state"]), (&json!(1), &json!("Empty")), "{group}");
    assert_eq!(broker.text("consume t --group g", 0), "c\n");
    assert_eq!(broker.json("group list", 0)[0]["name"], "g");

    let moves = json!([{"topic": "t", "partition": 0, "from": 3, "to": 1}]);
    assert_eq!(broker.json("group reset g --to 1 --dry-run", 0), moves);
    assert_eq!(broker.text("consume t --group g", 0), "", "nothing was set");
    assert_eq!(broker.json("group reset g --to 1", 0), moves);
    assert_eq!(broker.text("consume t --group g", 0), "b\nc\n");
    assert_eq!(broker.json("group delete g", 0), json!({"deleted": "g"}));
    for words in ["group show g", "group delete g", "group reset g --to earliest"] {
        assert_eq!(broker.json(words, 3)["error"]["kind"], "not_found", "{words}");
    }
}

#[test]
fn names_of_others_do_nothing_to_a_terminal() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    broker.feed("produce t", "a\n", 0);
    let name = "\x1b[2J\u{9b}31m\x07g\u{202e}";
    assert_eq!(broker.text(&format!("consume t --group {name}"), 0), "a\n");
    let shown = r"\u{1b}[2J\u{9b}31m\u{7}g\u{202e}";
    for words in ["group list".to_owned(), format!("group show {name}")] {
        let text = broker.text(&words, 0);
        assert!(!text.contains(|it: char| it != '\n' && it.is_control()), "{text:?}");
        assert!(text.contains(shown), "{text:?}");
        let json = broker.text(&format!("{words} --json"), 0);
        assert!(json.is_ascii() && !json.contains(['\x1b', '\x07']), "{json:?}");
    }
    assert_eq!(broker.json("group list", 0)[0]["name"], name);
    // Rows of a topic with a column of this name, as text and as JSON.
    broker.feed("produce t", &format!("{name}\n"), 0);
    let rows = format!("SELECT value AS \"{name}\" FROM t WHERE \"offset\" = 1");
    let text = broker.feed("sql", &rows, 0);
    assert!(!text.contains(|it: char| it != '\n' && it.is_control()), "{text:?}");
    assert_eq!(text.matches(shown).count(), 2, "{text:?}");
    let json = broker.feed("sql --json", &rows, 0);
    assert!(json.is_ascii() && !json.contains(['\x1b', '\x07']), "{json:?}");
    let row: Value = serde_json::from_str(&json).expect("one row");
    assert_eq!(row[name], name);
    // Error messages that contain the name.
    for (words, input) in [
        (format!("group show {name}-none"), String::new()),
        (format!("topic show {name}"), String::new()),
        ("sql".to_owned(), format!("SELECT \"{name}\" FROM t")),
        ("sql".to_owned(), format!("SELECT '{name}'::bigint")),
    ] {
        let said = broker.complaint(&words, &input);
        assert!(!said.contains(|it: char| it != '\n' && it.is_control()), "{words}: {said:?}");
        assert!(!said.contains('\u{202e}') && said.contains(shown), "{words}: {said:?}");
    }
}

#[test]
fn members_of_a_group_share_its_partitions() {
    let broker = Broker::new();
    broker.text("topic create t --partitions 2", 0);
    let first = broker.spawn("consume t --group g --follow");
    wait_for_members(&broker, 1);
    let second = broker.spawn("consume t --group g --follow");
    let group = wait_for_members(&broker, 2);
    let members = group["members"].as_array().expect("members");
    for member in members {
        assert_eq!(member["partitions"]["t"].as_array().map(Vec::len), Some(1), "{group}");
    }
    let error = broker.json("group reset g --to latest", 1);
    let message = error["error"]["message"].as_str().expect("a message");
    assert!(message.contains("stop its consumers"), "{message}");

    broker.feed("produce t --partition 0", "a\nb\n", 0);
    broker.feed("produce t --partition 1", "c\n", 0);
    wait_for(&broker, |group| group["lag"] == 0 && group["offsets"][0]["latest"] == 2);
    let mut text = String::new();
    for (member, signal) in [(first, Signal::INT), (second, Signal::TERM)] {
        tell(&member, signal);
        text += &finished("consume", member.wait_with_output().expect("it ends"), 0);
    }
    assert_eq!(sorted(&text), ["a", "b", "c"]);
    assert_eq!(broker.json("group show g", 0)["state"], "Empty", "both have left");
}

#[test]
fn a_consumer_that_is_stopped_while_it_joins_leaves_its_group() {
    // The member is stopped while its group waits for others.
    let broker = Broker::with_join_delay("3000");
    broker.text("topic create t", 0);
    for signal in [Signal::TERM, Signal::INT] {
        let member = broker.spawn("consume t --group g --follow");
        wait_for(&broker, |group| group["members"].as_array().is_some_and(|it| it.len() == 1));
        tell(&member, signal);
        finished("consume", member.wait_with_output().expect("it ends"), 0);
        let group = broker.json("group show g", 0);
        assert_eq!(group["members"], json!([]), "it has left: {group}");
        wait_for(&broker, |group| group["state"] == "Empty");
        broker.text("group reset g --to latest --topic t", 0);
    }
}

/// Returns the lines of a command's complaints.
fn complaints(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let stderr = child.stderr.take().expect("it is piped");
    BufReader::new(stderr).lines().map_while(Result::ok)
}

/// Returns the first line of a command's complaints that contains `words`.
fn complaint_with(child: &mut Child, words: &str) -> String {
    complaints(child).find(|line| line.contains(words)).expect("it says so before it ends")
}

#[test]
fn commands_in_a_full_pool_say_so_and_exit_with_4() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    let mut producer = broker.spawn("produce t --compression none");
    let mut stdin = producer.stdin.take().expect("it is piped");
    // Pages of equal bytes take no memory.
    let line: String = (0..20_000).map(|number| number.to_string()).chain(["\n".into()]).collect();
    // More than the pool holds.
    let feeding = std::thread::spawn(move || {
        (0..2_000).all(|_| stdin.write_all(line.as_bytes()).is_ok());
    });
    let told: Vec<String> = complaints(&mut producer).collect();
    let reason = "cannot append to \"t\", partition 0: NOT_ENOUGH_REPLICAS: the pool is full";
    let waits = format!("memlane: waiting: {reason}");
    assert!(told.iter().any(|it| it.starts_with(&waits)), "{told:?}");
    assert!(told.last().is_some_and(|last| last.contains(reason)), "{told:?}");
    assert_eq!(producer.wait().expect("it ends").code(), Some(4), "{told:?}");
    feeding.join().expect("it only writes");
    let create = |number: u32| {
        let created = broker.spawn(&format!("topic create t{number} --json")).wait_with_output();
        created.expect("it ends")
    };
    let refused = (0..1_000).map(create).find(|created| !created.status.success());
    let error: Value =
        serde_json::from_str(&finished("topic create", refused.expect("the pool is full"), 4))
            .expect("one JSON value");
    assert_eq!(error["error"]["kind"], "no_space", "{error}");
}

#[test]
fn commands_say_that_the_broker_does_not_answer() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    broker.signal(Signal::STOP);
    for words in ["consume t", "topic list", "consume t --group g"] {
        let mut command = broker.spawn(words);
        let told = complaint_with(&mut command, "waiting: ");
        assert!(told.ends_with(" has not answered ApiVersions yet"), "{words}: {told}");
        command.kill().expect("it runs");
        command.wait().expect("it was ended");
    }
    broker.signal(Signal::CONT);
    broker.text("topic list", 0);
}

#[test]
fn a_consumer_that_waits_at_its_end_for_a_silent_broker_is_interrupted_again() {
    let broker = Broker::new();
    broker.text("topic create t", 0);
    broker.feed("produce t", "a", 0);
    let mut consumer = broker.spawn("consume t --group g --follow");
    let mut read = BufReader::new(consumer.stdout.take().expect("it is piped")).lines();
    assert_eq!(read.next().expect("a record").expect("text"), "a");
    broker.signal(Signal::STOP);
    interrupt(&consumer);
    let mut told = complaints(&mut consumer);
    assert!(told.any(|line| line.contains("waiting: ")), "it says what it waits for");
    interrupt(&consumer);
    let told: Vec<String> = told.collect();
    assert_eq!(consumer.wait().expect("it ends").code(), Some(130), "{told:?}");
}

#[test]
fn a_command_whose_complaints_nobody_reads_has_its_exit_code() {
    let broker = Broker::new();
    let mut child = broker.spawn("topic show nothing");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
}

/// Waits until a stable group has `count` members with partitions.
fn wait_for_members(broker: &Broker, count: usize) -> Value {
    wait_for(broker, |group| {
        let members = group["members"].as_array().map(Vec::as_slice).unwrap_or_default();
        let has_part = |it: &Value| it["partitions"].as_object().is_some_and(|it| !it.is_empty());
        group["state"] == "Stable" && members.len() == count && members.iter().all(has_part)
    })
}

fn wait_for(broker: &Broker, is_there: impl Fn(&Value) -> bool) -> Value {
    const TRIES_MAX: usize = 1000;
    for _ in 0..TRIES_MAX {
        let output = broker.spawn("group show g --json").wait_with_output().expect("it ends");
        if let Ok(group) = serde_json::from_slice(&output.stdout)
            && is_there(&group)
        {
            return group;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the group is not as it should be: {}", broker.text("group show g", 0));
}
