//! Tests of snapshots and clones through the REST interface.

use block_device::BlockDevice;
use serde_json::{Value, json};

use super::Fixture;

const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

fn write(fixture: &Fixture, name: &str, block: u64, byte: u8) {
    let volume = fixture.volume(name);
    volume.write(block * BLOCK, &[byte; 4096]).expect("there is room");
}

fn byte_of(fixture: &Fixture, name: &str, block: u64) -> u8 {
    let mut found = [0; 4096];
    fixture.volume(name).read(block * BLOCK, &mut found).expect("it is there");
    found[7]
}

async fn take(fixture: &Fixture, volumes: &str, snapshot: &str) -> Value {
    let body = format!(r#"{{"volumes": {volumes}, "snapshot": "{snapshot}"}}"#);
    fixture.ask("POST", "/v1/snapshots", &body).await.json(201)
}

#[tokio::test]
async fn a_snapshot_stays_as_it_was_until_it_is_deleted() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    write(&fixture, "db", 1, 7);
    let made = take(&fixture, r#"["db"]"#, "first").await[0].clone();
    assert_eq!((&made["name"], &made["volume"]), (&json!("db@first"), &json!("db")));
    assert_eq!(made["written_bytes"], 4096);
    write(&fixture, "db", 1, 8);
    assert_eq!((byte_of(&fixture, "db", 1), byte_of(&fixture, "db@first", 1)), (8, 7));
    assert_eq!(fixture.get("/v1/snapshots").await.json(200), json!([made]));
    assert_eq!(fixture.get("/v1/snapshots?volume=db").await.json(200), json!([made]));
    assert_eq!(fixture.get("/v1/snapshots/db@first").await.json(200), made);
    assert_eq!(fixture.get("/v1/status").await.json(200)["snapshot_count"], 1);
    assert_eq!(fixture.get("/v1/volumes").await.json(200).as_array().map(Vec::len), Some(1));
    fixture.ask("DELETE", "/v1/volumes/db", "").await.refused("in_use", None);
    fixture.ask("DELETE", "/v1/snapshots/db@first", "").await.nothing();
    fixture.get("/v1/snapshots/db@first").await.refused("not_found", None);
    fixture.ask("DELETE", "/v1/volumes/db", "").await.nothing();
}

#[tokio::test]
async fn several_volumes_are_kept_together_or_not_at_all() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.create("b").await;
    let names = |list: Value| -> Vec<String> {
        let list = list.as_array().expect("a list").clone();
        list.iter().map(|it| it["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(take(&fixture, r#"["a", "b"]"#, "s").await), ["a@s", "b@s"]);
    let body = r#"{"volumes": ["a", "nobody"], "snapshot": "t"}"#;
    fixture.ask("POST", "/v1/snapshots", body).await.refused("not_found", None);
    assert_eq!(names(fixture.get("/v1/snapshots").await.json(200)), ["a@s", "b@s"]);
}

#[tokio::test]
async fn what_is_no_snapshot_is_refused() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    take(&fixture, r#"["db"]"#, "s").await;
    let cases = [
        (r#"{"volumes": ["db"], "snapshot": "s"}"#, "already_exists", Some("name")),
        (r#"{"volumes": ["db"], "snapshot": "-"}"#, "invalid_field", Some("snapshot")),
        (r#"{"volumes": [], "snapshot": "t"}"#, "invalid_field", Some("volumes")),
        (r#"{"volumes": ["db@s"], "snapshot": "t"}"#, "not_supported", None),
    ];
    for (body, kind, field) in cases {
        fixture.ask("POST", "/v1/snapshots", body).await.refused(kind, field);
    }
    for name in ["db", "db@t", "nobody@s"] {
        fixture.get(&format!("/v1/snapshots/{name}")).await.refused("not_found", None);
    }
    let smaller = r#"{"size": "512KiB"}"#;
    fixture.ask("PATCH", "/v1/volumes/db@s", smaller).await.refused("not_supported", None);
}

#[tokio::test]
async fn a_volume_goes_back_to_a_snapshot_unless_it_is_in_use() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    write(&fixture, "db", 0, 1);
    take(&fixture, r#"["db"]"#, "s").await;
    write(&fixture, "db", 0, 2);
    fixture.ask("POST", "/v1/attachments", r#"{"volume": "db"}"#).await.json(201);
    fixture.ask("POST", "/v1/snapshots/db@s/restore", "").await.refused("in_use", None);
    fixture.ask("DELETE", "/v1/attachments/db", "").await.nothing();
    assert_eq!(fixture.ask("POST", "/v1/snapshots/db@s/restore", "").await.json(200)["name"], "db");
    assert_eq!(byte_of(&fixture, "db", 0), 1);
}

#[tokio::test]
async fn a_clone_begins_as_its_source_and_goes_its_own_way() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    write(&fixture, "db", 3, 3);
    take(&fixture, r#"["db"]"#, "s").await;
    write(&fixture, "db", 3, 4);
    for (source, name, byte) in [("db", "of-volume", 4), ("db@s", "of-snapshot", 3)] {
        let path = format!("/v1/volumes/{source}/clone");
        let body = format!(r#"{{"name": "{name}"}}"#);
        let clone = fixture.ask("POST", &path, &body).await.json(201);
        assert_eq!((&clone["name"], &clone["size_bytes"]), (&json!(name), &json!(1 << 20)));
        assert_eq!(byte_of(&fixture, name, 3), byte);
        write(&fixture, name, 3, 9);
        fixture.ask("POST", &path, &body).await.refused("already_exists", Some("name"));
    }
    assert_eq!((byte_of(&fixture, "db", 3), byte_of(&fixture, "db@s", 3)), (4, 3));
    let body = r#"{"name": "x"}"#;
    fixture.ask("POST", "/v1/volumes/nobody/clone", body).await.refused("not_found", None);
}

#[tokio::test]
async fn a_diff_names_the_ranges_that_changed() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    write(&fixture, "db", 0, 1);
    take(&fixture, r#"["db"]"#, "s").await;
    write(&fixture, "db", 2, 5);
    write(&fixture, "db", 3, 6);
    let diff = fixture.get("/v1/snapshots/db@s/diff").await.json(200);
    let changed = json!([{"offset": 8192, "length": 8192}]);
    assert_eq!((&diff["changed"], &diff["to"]), (&changed, &json!("db")));
    assert_eq!(diff["next_offset"], json!(null));
    take(&fixture, r#"["db"]"#, "t").await;
    write(&fixture, "db", 0, 7);
    let diff = fixture.get("/v1/snapshots/db@s/diff?to=db@t&offset=12288").await.json(200);
    assert_eq!(diff["changed"], json!([{"offset": 12288, "length": 4096}]));
    fixture.get("/v1/snapshots/db@s/diff?to=nobody").await.refused("not_found", Some("to"));
}

#[tokio::test]
async fn a_snapshot_can_be_attached_and_is_not_deleted_then() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    take(&fixture, r#"["db"]"#, "s").await;
    fixture.ask("POST", "/v1/attachments", r#"{"volume": "db@s"}"#).await.json(201);
    assert!(fixture.get("/v1/snapshots/db@s").await.json(200)["device"].is_string());
    fixture.ask("DELETE", "/v1/snapshots/db@s", "").await.refused("in_use", None);
    fixture.ask("DELETE", "/v1/attachments/db@s", "").await.nothing();
    fixture.ask("DELETE", "/v1/snapshots/db@s", "").await.nothing();
}

#[tokio::test]
async fn a_snapshot_is_renamed_and_keeps_what_it_has() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    write(&fixture, "db", 1, 7);
    let made = take(&fixture, r#"["db"]"#, "first").await[0].clone();
    take(&fixture, r#"["db"]"#, "other").await;
    let rename = |name: &'static str, body: &'static str| {
        let path = format!("/v1/snapshots/{name}");
        let fixture = &fixture;
        async move { fixture.ask("PATCH", &path, body).await }
    };
    let renamed = rename("db@first", r#"{"snapshot": "kept"}"#).await.json(200);
    assert_eq!((&renamed["name"], &renamed["id"]), (&json!("db@kept"), &made["id"]));
    assert_eq!(byte_of(&fixture, "db@kept", 1), 7);
    fixture.get("/v1/snapshots/db@first").await.refused("not_found", None);
    let cases = [
        ("db@kept", r#"{"snapshot": "other"}"#, "already_exists", Some("snapshot")),
        ("db@kept", r#"{"snapshot": "-"}"#, "invalid_field", Some("snapshot")),
        ("db@first", r#"{"snapshot": "x"}"#, "not_found", None),
        ("db", r#"{"snapshot": "x"}"#, "not_found", None),
    ];
    for (name, body, kind, field) in cases {
        rename(name, body).await.refused(kind, field);
    }
    fixture.ask("DELETE", "/v1/snapshots/db@kept", "").await.nothing();
}
