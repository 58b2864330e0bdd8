//! Tests of volumes through the REST interface.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::SystemTime;

use block_device::{BlockDevice, ByteRange, Zeroes};
use serde_json::json;

use super::Fixture;
use crate::exports::TIMED_ONE_IN;

#[tokio::test]
async fn a_volume_is_created_empty_with_the_defaults() {
    let fixture = Fixture::new();
    let volume = fixture.create("db").await;
    let socket = fixture.dir.path().join("nbd.sock");
    let nbd_uri = format!("nbd+unix:///db?socket={}", socket.display());
    let mut expected = json!({
        "name": "db", "id": volume["id"], "size_bytes": 1 << 20, "sector_bytes": 512,
        "reduction": "full", "durability": "ram", "capacity": "thin", "mirror": "yes",
        "written_bytes": 0, "fill_bytes": 0, "ram_bytes": volume["ram_bytes"], "ratio": null,
        "device": null, "nbd_uri": nbd_uri, "nbd_connections": 0,
        "ring_clients": 0, "users": [], "owner": null, "labels": {},
    });
    assert_eq!(volume, expected);
    expected["ram_bytes"] = fixture.get("/v1/volumes/db").await.json(200)["ram_bytes"].clone();
    assert_eq!(fixture.get("/v1/volumes/db").await.json(200), expected);
}

#[tokio::test]
async fn a_volume_is_created_as_it_is_asked_for() {
    let fixture = Fixture::new();
    let body = r#"{"name": "a", "size": 8192, "sector_bytes": 4096, "reduction": "compress",
                   "durability": "ram", "capacity": "thin", "mirror": "no"}"#;
    let volume = fixture.ask("POST", "/v1/volumes", body).await.json(201);
    assert_eq!(volume["size_bytes"], 8192);
    assert_eq!(volume["sector_bytes"], 4096);
    assert_eq!(volume["reduction"], "compress");
    assert_eq!(volume["mirror"], "no");
}

#[tokio::test]
async fn volumes_are_listed_by_name() {
    let fixture = Fixture::new();
    for name in ["b", "a", "c"] {
        fixture.create(name).await;
    }
    let list = fixture.get("/v1/volumes").await.json(200);
    let names: Vec<_> = list.as_array().expect("an array").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test]
async fn each_volume_tells_how_long_its_own_requests_took() {
    let fixture = Fixture::new();
    for name in ["busy", "quiet"] {
        fixture.create(name).await;
    }
    let volume = fixture.volume("busy");
    let device = fixture.service.catalog.device(&volume);
    let mut block = vec![0; 4096];
    for _ in 0..TIMED_ONE_IN * 4 {
        device.read(0, &mut block).expect("it can be read");
        device.write(0, &block).expect("it can be written");
    }
    for _ in 0..3 {
        device.flush().expect("it can be flushed");
    }
    let list = fixture.get("/v1/latencies").await.json(200);
    let busy = fixture.get("/v1/volumes/busy/latencies").await.json(200);
    assert_eq!(list, json!([busy]), "no request of the other was timed");
    assert_eq!((&busy["volume"], &busy["id"]), (&json!("busy"), &json!(volume.id())));
    for (kind, timed) in [("reads", 4), ("writes", 4), ("flushes", 3)] {
        let of = &busy[kind];
        assert_eq!(of["timed"], timed, "{busy}");
        let us = |name: &str| of[name].as_f64().expect("a number");
        assert!(us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"), "{busy}");
        assert!(us("mean_us") > 0.0 && us("mean_us") <= us("max_us"), "{busy}");
        let counts = of["counts"].as_array().expect("a list");
        let bounds = busy["bounds_us"].as_array().expect("a list");
        assert_eq!(counts.len(), bounds.len() + 1);
        assert_eq!(counts.iter().filter_map(|it| it.as_u64()).sum::<u64>(), timed);
    }
    let quiet = fixture.get("/v1/volumes/quiet/latencies").await.json(200);
    let nothing = json!({"timed": 0, "mean_us": null, "p50_us": null, "p99_us": null,
                         "max_us": null, "counts": []});
    assert_eq!((&quiet["reads"], &quiet["flushes"]), (&nothing, &nothing));
    fixture.get("/v1/volumes/gone/latencies").await.refused("not_found", None);
}

#[tokio::test]
async fn a_volume_of_the_same_name_has_no_latencies_of_the_one_before() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    fixture.service.catalog.device(&fixture.volume("db")).flush().expect("it can be flushed");
    assert_eq!(fixture.get("/v1/volumes/db/latencies").await.json(200)["flushes"]["timed"], 1);
    assert_eq!(fixture.ask("DELETE", "/v1/volumes/db", "").await.status, 204);
    fixture.create("db").await;
    assert_eq!(fixture.get("/v1/latencies").await.json(200), json!([]));
}

#[tokio::test]
async fn each_bad_field_of_a_new_volume_is_named() {
    let fixture = Fixture::new();
    let cases = [
        (r#"{"name": "", "size": "1M"}"#, "invalid_field", "name"),
        (r#"{"name": "-a", "size": "1M"}"#, "invalid_field", "name"),
        (r#"{"name": "a/b", "size": "1M"}"#, "invalid_field", "name"),
        (r#"{"name": "a", "size": 0}"#, "invalid_field", "size"),
        (r#"{"name": "a", "size": 4097}"#, "invalid_field", "size"),
        (r#"{"name": "a", "size": "65TiB"}"#, "invalid_field", "size"),
        (r#"{"name": "a", "size": "1MB"}"#, "invalid_field", "size"),
        (r#"{"name": "a", "size": "1M", "sector_bytes": 1}"#, "invalid_field", "sector_bytes"),
        (r#"{"name": "a", "size": "1M", "reduction": "x"}"#, "invalid_field", "reduction"),
        (r#"{"name": "a", "size": "1M", "durability": "tape"}"#, "invalid_field", "durability"),
        (r#"{"name": "a", "size": "1M", "capacity": "thick"}"#, "invalid_field", "capacity"),
        (r#"{"name": "a", "size": "1M", "sise": 1}"#, "unknown_field", "sise"),
        (r#"{"name": "a"}"#, "invalid_field", "size"),
    ];
    for (body, kind, field) in cases {
        fixture.ask("POST", "/v1/volumes", body).await.refused(kind, Some(field));
    }
    assert_eq!(fixture.get("/v1/volumes").await.json(200), json!([]));
}

#[tokio::test]
async fn a_name_is_given_once() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let answer = fixture.ask("POST", "/v1/volumes", r#"{"name": "a", "size": "1M"}"#).await;
    answer.refused("already_exists", Some("name"));
}

#[tokio::test]
async fn a_volume_that_does_not_exist_is_not_found() {
    let fixture = Fixture::new();
    for (method, body) in [("GET", ""), ("PATCH", "{}"), ("DELETE", "")] {
        fixture.ask(method, "/v1/volumes/nobody", body).await.refused("not_found", None);
    }
}

#[tokio::test]
async fn a_volume_is_changed_in_several_ways_at_once() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let body = r#"{"size": "2MiB", "reduction": "none", "name": "b"}"#;
    let volume = fixture.ask("PATCH", "/v1/volumes/a", body).await.json(200);
    assert_eq!(volume["name"], "b");
    assert_eq!(volume["size_bytes"], 2 << 20);
    assert_eq!(volume["reduction"], "none");
    fixture.get("/v1/volumes/a").await.refused("not_found", None);
}

#[tokio::test]
async fn each_bad_field_of_a_change_is_named() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.create("b").await;
    let cases = [
        (r#"{"size": 4097}"#, "invalid_field", "size"),
        (r#"{"force": true}"#, "invalid_field", "force"),
        (r#"{"name": "."}"#, "invalid_field", "name"),
        (r#"{"name": "b"}"#, "already_exists", "name"),
        (r#"{"sector_bytes": 512}"#, "unknown_field", "sector_bytes"),
    ];
    for (body, kind, field) in cases {
        fixture.ask("PATCH", "/v1/volumes/a", body).await.refused(kind, Some(field));
    }
}

#[tokio::test]
async fn a_shrink_that_cuts_off_data_takes_force() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let volume = fixture.volume("a");
    volume.write((1 << 20) - 4096, &[7; 4096]).expect("there is room");
    let shrink = r#"{"size": "512KiB"}"#;
    fixture
        .ask("PATCH", "/v1/volumes/a", shrink)
        .await
        .refused("data_behind_new_end", Some("size"));
    let forced = r#"{"size": "512KiB", "force": true}"#;
    let volume = fixture.ask("PATCH", "/v1/volumes/a", forced).await.json(200);
    assert_eq!(volume["size_bytes"], 512 << 10);
    assert_eq!(volume["written_bytes"], 0);
}

#[tokio::test]
async fn a_deleted_volume_is_gone() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ask("DELETE", "/v1/volumes/a", "").await.nothing();
    fixture.get("/v1/volumes/a").await.refused("not_found", None);
}

/// Opens an export with the short handshake: greeting, flags, the option `EXPORT_NAME`, then size
/// and flags.
fn connect_nbd(fixture: &Fixture, name: &str) -> UnixStream {
    let mut client = UnixStream::connect(fixture.dir.path().join("nbd.sock")).expect("a server");
    client.read_exact(&mut [0; 18]).expect("a greeting");
    let mut message = vec![0, 0, 0, 3];
    message.extend(b"IHAVEOPT");
    message.extend(1_u32.to_be_bytes());
    message.extend(u32::try_from(name.len()).expect("a short name").to_be_bytes());
    message.extend(name.as_bytes());
    client.write_all(&message).expect("the option is taken");
    client.read_exact(&mut [0; 10]).expect("the export is there");
    client
}

#[tokio::test]
async fn a_volume_that_an_nbd_client_has_open_is_neither_deleted_nor_renamed() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let client = connect_nbd(&fixture, "a");
    assert_eq!(fixture.get("/v1/volumes/a").await.json(200)["nbd_connections"], 1);
    let answer = fixture.ask("DELETE", "/v1/volumes/a", "").await;
    answer.refused("in_use", None);
    assert!(answer.problem().detail.contains("1 NBD connection"), "{answer:?}");
    let answer = fixture.ask("PATCH", "/v1/volumes/a", r#"{"name": "b"}"#).await;
    answer.refused("in_use", Some("name"));
    drop(client);
    for _ in 0..10_000 {
        if fixture.get("/v1/volumes/a").await.json(200)["nbd_connections"] == 0 {
            fixture.ask("DELETE", "/v1/volumes/a", "").await.nothing();
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the server did not notice that the client left");
}

#[tokio::test]
async fn users_of_a_volume_are_named_and_unknown_ones_refused() {
    let fixture = Fixture::new();
    let body = r#"{"name": "a", "size": "1MiB"}"#;
    fixture.ask("POST", "/v1/volumes", body).await.json(201);
    let patch = r#"{"users": ["root", "4242"]}"#;
    let changed = fixture.ask("PATCH", "/v1/volumes/a", patch).await.json(200);
    assert_eq!(changed["users"], serde_json::json!(["root", "4242"]));
    let patch = r#"{"users": ["no-such-user"]}"#;
    let problem = fixture.ask("PATCH", "/v1/volumes/a", patch).await.json(422);
    assert_eq!(problem["field"], "users");
    let shown = fixture.get("/v1/volumes/a").await.json(200);
    assert_eq!(shown["users"], serde_json::json!(["root", "4242"]));
}

async fn settings(fixture: &Fixture) -> serde_json::Value {
    let mut volume = fixture.get("/v1/volumes/a").await.json(200);
    for usage in ["ram_bytes", "written_bytes", "fill_bytes", "ratio"] {
        volume.as_object_mut().expect("an object").remove(usage);
    }
    volume
}

#[tokio::test]
async fn a_change_that_is_refused_in_part_changes_nothing() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.create("taken").await;
    let volume = fixture.volume("a");
    volume.write((1 << 20) - 4096, &[7; 4096]).expect("there is room");
    let before = settings(&fixture).await;
    let rest = r#""reduction": "none", "durability": "image", "users": ["0"]"#;
    let cases = [
        (r#""name": "b", "size": "512KiB""#, "data_behind_new_end", Some("size")),
        (r#""name": "b", "size": 4097"#, "invalid_field", Some("size")),
        (r#""name": "taken", "size": "2MiB""#, "already_exists", Some("name")),
        (r#""name": "b", "size": "1TiB", "capacity": "guaranteed""#, "no_space", None),
        (r#""force": true"#, "invalid_field", Some("force")),
    ];
    for (part, kind, field) in cases {
        let body = format!("{{{part}, {rest}}}");
        fixture.ask("PATCH", "/v1/volumes/a", &body).await.refused(kind, field);
        assert_eq!(settings(&fixture).await, before, "{body}");
    }
    let all = format!(r#"{{"name": "b", "size": "2MiB", "capacity": "guaranteed", {rest}}}"#);
    let changed = fixture.ask("PATCH", "/v1/volumes/a", &all).await.json(200);
    assert_eq!((&changed["name"], &changed["size_bytes"]), (&json!("b"), &json!(2 << 20)));
    assert_eq!((&changed["durability"], &changed["users"]), (&json!("image"), &json!(["0"])));
}

#[tokio::test]
async fn what_has_changed_since_it_was_read_is_left_alone() {
    let fixture = Fixture::new();
    let made = fixture.ask("POST", "/v1/volumes", r#"{"name": "a", "size": "1MiB"}"#).await;
    let first = made.headers["etag"].to_str().expect("text").to_owned();
    fixture.volume("a").write(0, &[7; 4096]).expect("there is room");
    assert_eq!(fixture.get("/v1/volumes/a").await.headers["etag"], first, "its use is no change");
    let grow = ("PATCH", "/v1/volumes/a", r#"{"size": "2MiB"}"#);
    let grown = fixture.ask_if(grow, Some(&format!("\"other\", {first}"))).await;
    grown.json(200);
    assert_ne!(grown.headers["etag"], first);
    for request in [grow, ("DELETE", "/v1/volumes/a", "")] {
        fixture.ask_if(request, Some(&first)).await.refused("precondition_failed", None);
        fixture.ask_if(request, Some("W/\"weak\"")).await.refused("precondition_failed", None);
    }
    fixture.ask_if(grow, Some("*")).await.json(200);
    let now = fixture.get("/v1/volumes/a").await.headers["etag"].to_str().expect("text").to_owned();
    fixture.ask_if(("DELETE", "/v1/volumes/a", ""), Some(&now)).await.nothing();
}

#[tokio::test]
async fn clients_are_disconnected_when_they_are_told_to_or_the_volume_goes_by_force() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let mut client = connect_nbd(&fixture, "a");
    let gone = fixture.ask("POST", "/v1/volumes/a/disconnect", "").await.json(200);
    assert_eq!(gone, json!({"nbd": 1, "ring": 0, "vhost_user": 0}));
    assert_eq!(client.read(&mut [0; 1]).expect("an orderly end"), 0);
    let mut client = connect_nbd(&fixture, "a");
    let export = r#"{"volume": "a", "protocol": "vhost-user"}"#;
    fixture.ask("POST", "/v1/exports", export).await.json(201);
    fixture.ask("DELETE", "/v1/volumes/a", "").await.refused("in_use", None);
    fixture.ask("POST", "/v1/attachments", r#"{"volume": "a", "share": true}"#).await.json(201);
    fixture.ask("DELETE", "/v1/volumes/a?force=true", "").await.refused("in_use", None);
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    fixture.ask("DELETE", "/v1/volumes/a?force=true", "").await.nothing();
    assert_eq!(client.read(&mut [0; 1]).expect("an orderly end"), 0);
    assert_eq!(fixture.get("/v1/exports").await.json(200), json!([]));
    fixture.get("/v1/volumes/a").await.refused("not_found", None);
}

#[tokio::test]
async fn a_volume_that_belongs_to_somebody_is_taken_from_them_by_force_only() {
    let fixture = Fixture::new();
    let body = r#"{"name": "topic", "size": "8MiB", "owner": "broker", "labels": {"a": "b"}}"#;
    let made = fixture.ask("POST", "/v1/volumes", body).await.json(201);
    assert_eq!((&made["owner"], &made["labels"]), (&json!("broker"), &json!({"a": "b"})));
    fixture
        .ask("POST", "/v1/snapshots", r#"{"volumes": ["topic"], "snapshot": "s"}"#)
        .await
        .json(201);
    let (path, restore) = ("/v1/volumes/topic", "/v1/snapshots/topic@s/restore");
    for patch in [r#"{"name": "mine"}"#, r#"{"size": "4MiB"}"#] {
        let answer = fixture.ask("PATCH", path, patch).await;
        answer.refused("in_use", None);
        assert!(answer.problem().detail.contains("its owner is broker"), "{}", answer.text);
    }
    fixture.ask("POST", restore, "").await.refused("in_use", None);
    fixture.ask("POST", &format!("{restore}?force=true"), "").await.json(200);
    fixture.ask("DELETE", "/v1/snapshots/topic@s", "").await.nothing();
    fixture.ask("DELETE", path, "").await.refused("in_use", None);
    let renamed = r#"{"name": "mine", "size": "4MiB", "force": true}"#;
    let renamed = fixture.ask("PATCH", path, renamed).await.json(200);
    assert_eq!((&renamed["owner"], &renamed["labels"]), (&json!("broker"), &json!({"a": "b"})));
    fixture.ask("DELETE", "/v1/volumes/mine", "").await.refused("in_use", None);
    fixture.ask("DELETE", "/v1/volumes/mine?force=true", "").await.nothing();
}

#[tokio::test]
async fn volumes_of_a_broker_are_left_out_of_the_sum_of_sizes() {
    let fixture = Fixture::new();
    let topic = r#"{"name": "topic", "size": "8MiB", "owner": "memlane-broker"}"#;
    fixture.ask("POST", "/v1/volumes", topic).await.json(201);
    fixture.ask("POST", "/v1/volumes", r#"{"name": "own", "size": "4MiB"}"#).await.json(201);
    let status = fixture.get("/v1/status").await.json(200);
    assert_eq!(status["pool"]["provisioned_bytes"], 4 << 20);
}

#[tokio::test]
async fn what_belongs_to_a_broker_that_runs_is_not_changed_in_place_also_by_force() {
    let fixture = Fixture::new();
    let body = r#"{"name": "topic", "size": "8MiB", "owner": "memlane-broker"}"#;
    fixture.ask("POST", "/v1/volumes", body).await.json(201);
    let snapshot = r#"{"volumes": ["topic"], "snapshot": "s"}"#;
    fixture.ask("POST", "/v1/snapshots", snapshot).await.json(201);
    let restore = "/v1/snapshots/topic@s/restore?force=true";
    let shrink = r#"{"size": "4MiB", "force": true}"#;
    let lock = fixture.dir.path().join("broker.lock");
    let lock = std::fs::File::create(lock).expect("there is room");
    lock.try_lock().expect("nobody has it");
    for (method, path, body) in [("POST", restore, ""), ("PATCH", "/v1/volumes/topic", shrink)] {
        let answer = fixture.ask(method, path, body).await;
        answer.refused("in_use", None);
        assert!(answer.problem().detail.contains("which is running"), "{}", answer.text);
    }
    let larger = r#"{"size": "16MiB"}"#;
    fixture.ask("PATCH", "/v1/volumes/topic", larger).await.json(200);
    // The broker's own operations, and a forced request that removes a volume from the broker.
    let renamed = r#"{"name": "mine", "force": true}"#;
    fixture.ask("PATCH", "/v1/volumes/topic", renamed).await.json(200);
    lock.unlock().expect("it is held");
    fixture.ask("POST", "/v1/snapshots/mine@s/restore?force=true", "").await.json(200);
    fixture.ask("PATCH", "/v1/volumes/mine", shrink).await.json(200);
    lock.try_lock().expect("the daemon let it go");
}

#[tokio::test]
async fn owners_and_labels_change_as_a_whole_or_not_at_all() {
    let fixture = Fixture::new();
    let before = fixture.create("db").await;
    let patch = r#"{"owner": "team", "labels": {"site": "b", "rack": "7"}}"#;
    let after = fixture.ask("PATCH", "/v1/volumes/db", patch).await.json(200);
    assert_eq!((&before["owner"], &after["owner"]), (&json!(null), &json!("team")));
    for (patch, field) in [
        (r#"{"owner": "a b"}"#, "owner"),
        (r#"{"labels": {"": "x"}}"#, "labels"),
        (r#"{"labels": {"a": "\u001b"}, "owner": ""}"#, "labels"),
        (r#"{"owner": "other", "name": "*"}"#, "name"),
    ] {
        fixture.ask("PATCH", "/v1/volumes/db", patch).await.refused("invalid_field", Some(field));
        assert_eq!(fixture.get("/v1/volumes/db").await.json(200), after, "{patch}");
    }
    let body = r#"{"name": "x", "size": 8192, "owner": "-"}"#;
    fixture.ask("POST", "/v1/volumes", body).await.refused("invalid_field", Some("owner"));
    let patch = r#"{"owner": "", "labels": {"rack": ""}}"#;
    let after = fixture.ask("PATCH", "/v1/volumes/db", patch).await.json(200);
    assert_eq!((&after["owner"], &after["labels"]), (&json!(null), &json!({"site": "b"})));
}

#[tokio::test]
async fn what_a_client_has_just_written_is_shown_at_once() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let device = fixture.service.catalog.device(&fixture.volume("a"));
    for count in 1..=8 {
        device.write((count - 1) * 4096, &[7; 4096]).expect("there is room");
        let shown = fixture.get("/v1/volumes/a").await.json(200);
        assert_eq!(shown["written_bytes"], count * 4096);
    }
    device.discard(ByteRange::new(0, 4096)).expect("it needs no memory");
    assert_eq!(fixture.get("/v1/volumes/a").await.json(200)["written_bytes"], 7 * 4096);
}

/// Modification time of the volume's file.
fn modified(fixture: &Fixture) -> SystemTime {
    let metered = fixture.service.catalog.metered(fixture.volume("a").id());
    metered.expect("it is there").modified()
}

#[tokio::test]
async fn a_volume_is_modified_by_each_change_and_by_nothing_else() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let snapshot = r#"{"volumes": ["a"], "snapshot": "s"}"#;
    fixture.ask("POST", "/v1/snapshots", snapshot).await.json(201);
    let device = fixture.service.catalog.device(&fixture.volume("a"));
    let mut before = modified(&fixture);
    let mut check = |what: &str, changes: bool| {
        let after = modified(&fixture);
        assert_eq!(after > before, changes, "{what}: {before:?}, {after:?}");
        assert!(changes || after == before, "{what}: {before:?}, {after:?}");
        before = after;
    };
    device.read(0, &mut [0; 4096]).expect("it is there");
    device.flush().expect("it is of class ram");
    check("read and flushed", false);
    device.write(0, &[7; 4096]).expect("there is room");
    check("written", true);
    device.write_zeroes(ByteRange::new(0, 512), Zeroes::KeepAllocated).expect("there is room");
    check("zeroed", true);
    device.discard(ByteRange::new(0, 4096)).expect("it needs no memory");
    check("discarded", true);
    fixture.ask("POST", "/v1/snapshots/a@s/restore", "").await.json(200);
    check("restored", true);
    fixture.ask("PATCH", "/v1/volumes/a", r#"{"size": "32MiB"}"#).await.json(200);
    check("resized", true);
    check("left alone", false);
}
