//! Tests of vhost-user exports through the REST interface.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::fixture::Fixture;

const CREATE: &str = r#"{"volume": "db", "protocol": "vhost-user", "queues": 2}"#;

#[tokio::test]
async fn an_exported_volume_has_a_socket_until_the_export_is_deleted() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    let export = fixture.ask("POST", "/v1/exports", CREATE).await.json(201);
    let socket = export["socket"].as_str().expect("a path").to_owned();
    assert!(socket.ends_with("/vhost/db.sock"), "{socket}");
    assert!(Path::new(&socket).exists());
    assert_eq!((&export["queues"], &export["connected"]), (&2.into(), &false.into()));
    assert_eq!(fixture.get("/v1/exports/db").await.json(200), export);
    assert_eq!(fixture.get("/v1/exports").await.json(200)[0], export);
    let status = fixture.get("/v1/status").await.json(200);
    assert_eq!(status["exports"]["vhost_user"]["exports"], 1);
    fixture.ask("DELETE", "/v1/exports/db", "").await.nothing();
    assert!(!Path::new(&socket).exists());
    fixture.get("/v1/exports/db").await.refused("not_found", None);
    fixture.ask("DELETE", "/v1/exports/db", "").await.refused("not_found", None);
}

#[tokio::test]
async fn an_exported_volume_is_neither_deleted_nor_renamed() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    fixture.ask("POST", "/v1/exports", CREATE).await.json(201);
    fixture.ask("DELETE", "/v1/volumes/db", "").await.refused("in_use", None);
    let rename = r#"{"name": "other"}"#;
    fixture.ask("PATCH", "/v1/volumes/db", rename).await.refused("in_use", Some("name"));
    fixture.ask("DELETE", "/v1/exports/db", "").await.nothing();
    fixture.ask("DELETE", "/v1/volumes/db", "").await.nothing();
}

#[tokio::test]
async fn exports_that_cannot_be_are_refused() {
    let fixture = Fixture::new();
    fixture.ask("POST", "/v1/exports", CREATE).await.refused("not_found", Some("volume"));
    fixture.create("db").await;
    let many = r#"{"volume": "db", "protocol": "vhost-user", "queues": 17}"#;
    fixture.ask("POST", "/v1/exports", many).await.refused("invalid_field", Some("queues"));
    let other = r#"{"volume": "db", "protocol": "iscsi"}"#;
    fixture.ask("POST", "/v1/exports", other).await.refused("invalid_field", Some("protocol"));
    fixture.ask("POST", "/v1/exports", CREATE).await.json(201);
    fixture.ask("POST", "/v1/exports", CREATE).await.refused("already_exists", Some("volume"));
}

#[tokio::test]
async fn a_socket_has_the_owner_and_the_mode_that_were_asked_for() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    let uid = rustix::process::geteuid().as_raw();
    let create = |owner: &str, mode: &str| {
        format!(
            r#"{{"volume": "db", "protocol": "vhost-user", "owner": "{owner}", "mode": "{mode}"}}"#
        )
    };
    let nobody = create("no-such-user", "600");
    fixture.ask("POST", "/v1/exports", &nobody).await.refused("invalid_field", Some("owner"));
    let no_mode = create("0", "1777");
    fixture.ask("POST", "/v1/exports", &no_mode).await.refused("invalid_field", Some("mode"));
    let another = if uid == 0 { 4_000_001 } else { uid };
    if another == uid {
        eprintln!("skipped: only root can give a socket to another user");
    }
    for (owner, mode, bits) in [(uid, "600", 0o600), (another, "640", 0o640)] {
        let body = create(&owner.to_string(), mode);
        let export = fixture.ask("POST", "/v1/exports", &body).await.json(201);
        let socket = export["socket"].as_str().expect("a path");
        let metadata = std::fs::metadata(socket).expect("it is there");
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (owner, bits));
        fixture.ask("DELETE", "/v1/exports/db", "").await.nothing();
    }
}

#[tokio::test]
async fn a_snapshot_is_exported_too() {
    let fixture = Fixture::new();
    fixture.create("db").await;
    let snapshot = r#"{"volumes": ["db"], "snapshot": "a"}"#;
    fixture.ask("POST", "/v1/snapshots", snapshot).await.json(201);
    let create = r#"{"volume": "db@a", "protocol": "vhost-user"}"#;
    let export = fixture.ask("POST", "/v1/exports", create).await.json(201);
    assert!(export["socket"].as_str().is_some_and(|it| it.ends_with("/vhost/db@a.sock")));
    fixture.ask("DELETE", "/v1/snapshots/db@a", "").await.refused("in_use", None);
    let other = r#"{"snapshot": "b"}"#;
    fixture.ask("PATCH", "/v1/snapshots/db@a", other).await.refused("in_use", None);
    let rename = r#"{"name": "other"}"#;
    fixture.ask("PATCH", "/v1/volumes/db", rename).await.refused("in_use", Some("name"));
}

#[tokio::test]
async fn a_snapshot_with_the_longest_name_is_exported() {
    let fixture = Fixture::new();
    let (volume, own) = ("v".repeat(63), "s".repeat(63));
    fixture.create(&volume).await;
    let snapshot = format!(r#"{{"volumes": ["{volume}"], "snapshot": "{own}"}}"#);
    fixture.ask("POST", "/v1/snapshots", &snapshot).await.json(201);
    let request = format!(r#"{{"volume": "{volume}@{own}", "protocol": "vhost-user"}}"#);
    let export = fixture.ask("POST", "/v1/exports", &request).await.json(201);
    assert_eq!(export["volume"], format!("{volume}@{own}"));
    let socket = export["socket"].as_str().expect("a path");
    std::os::unix::net::UnixStream::connect(socket).expect("it is served there");
}

#[tokio::test]
async fn volumes_and_snapshots_are_exported_beside_each_other_whatever_their_names_are() {
    let fixture = Fixture::new();
    let long = "v".repeat(63);
    // Some names look like sockets of others, or differ only in the last letter.
    let names =
        ["a", "A", "0", "a.sock", "a..b", "x-", "x_", "x.", &long, &format!("{}w", "v".repeat(62))];
    let mut sockets = std::collections::BTreeSet::new();
    let mut exported = 0;
    for name in names {
        fixture.create(name).await;
        for own in ["s", "s.sock", &long] {
            let snapshot = format!(r#"{{"volumes": ["{name}"], "snapshot": "{own}"}}"#);
            fixture.ask("POST", "/v1/snapshots", &snapshot).await.json(201);
        }
        let of_snapshots = ["s", "s.sock", &long].map(|own| format!("{name}@{own}"));
        for volume in [name.to_owned()].into_iter().chain(of_snapshots) {
            let request = format!(r#"{{"volume": "{volume}", "protocol": "vhost-user"}}"#);
            let export = fixture.ask("POST", "/v1/exports", &request).await.json(201);
            assert_eq!(export["volume"], volume);
            let socket = export["socket"].as_str().expect("a path").to_owned();
            std::os::unix::net::UnixStream::connect(&socket).expect("it is served there");
            sockets.insert(socket);
            exported += 1;
        }
    }
    assert_eq!((sockets.len(), exported), (40, 40), "each has a socket of its own");
}
