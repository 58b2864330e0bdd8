//! Volumes through the interface.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use block_device::BlockDevice;
use serde_json::json;

use super::House;

#[tokio::test]
async fn a_volume_is_created_empty_with_the_defaults() {
    let house = House::new();
    let volume = house.create("db").await;
    let socket = house.dir.path().join("nbd.sock");
    let nbd_uri = format!("nbd+unix:///db?socket={}", socket.display());
    let mut expected = json!({
        "name": "db", "id": volume["id"], "size_bytes": 1 << 20, "sector_bytes": 512,
        "reduction": "full", "durability": "ram", "capacity": "thin",
        "written_bytes": 0, "fill_bytes": 0, "ram_bytes": volume["ram_bytes"], "ratio": null,
        "device": null, "nbd_uri": nbd_uri, "nbd_connections": 0,
        "ring_clients": 0, "users": [],
    });
    assert_eq!(volume, expected);
    expected["ram_bytes"] = house.get("/v1/volumes/db").await.json(200)["ram_bytes"].clone();
    assert_eq!(house.get("/v1/volumes/db").await.json(200), expected);
}

#[tokio::test]
async fn a_volume_is_created_as_it_is_asked_for() {
    let house = House::new();
    let body = r#"{"name": "a", "size": 8192, "sector_bytes": 4096, "reduction": "compress",
                   "durability": "ram", "capacity": "thin"}"#;
    let volume = house.ask("POST", "/v1/volumes", body).await.json(201);
    assert_eq!(volume["size_bytes"], 8192);
    assert_eq!(volume["sector_bytes"], 4096);
    assert_eq!(volume["reduction"], "compress");
}

#[tokio::test]
async fn volumes_are_listed_by_name() {
    let house = House::new();
    for name in ["b", "a", "c"] {
        house.create(name).await;
    }
    let list = house.get("/v1/volumes").await.json(200);
    let names: Vec<_> = list.as_array().expect("an array").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test]
async fn each_bad_field_of_a_new_volume_is_named() {
    let house = House::new();
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
        house.ask("POST", "/v1/volumes", body).await.refused(kind, Some(field));
    }
    assert_eq!(house.get("/v1/volumes").await.json(200), json!([]));
}

#[tokio::test]
async fn a_name_is_given_once() {
    let house = House::new();
    house.create("a").await;
    let answer = house.ask("POST", "/v1/volumes", r#"{"name": "a", "size": "1M"}"#).await;
    answer.refused("already_exists", Some("name"));
}

#[tokio::test]
async fn a_volume_that_does_not_exist_is_not_found() {
    let house = House::new();
    for (method, body) in [("GET", ""), ("PATCH", "{}"), ("DELETE", "")] {
        house.ask(method, "/v1/volumes/nobody", body).await.refused("not_found", None);
    }
}

#[tokio::test]
async fn a_volume_is_changed_in_several_ways_at_once() {
    let house = House::new();
    house.create("a").await;
    let body = r#"{"size": "2MiB", "reduction": "none", "name": "b"}"#;
    let volume = house.ask("PATCH", "/v1/volumes/a", body).await.json(200);
    assert_eq!(volume["name"], "b");
    assert_eq!(volume["size_bytes"], 2 << 20);
    assert_eq!(volume["reduction"], "none");
    house.get("/v1/volumes/a").await.refused("not_found", None);
}

#[tokio::test]
async fn each_bad_field_of_a_change_is_named() {
    let house = House::new();
    house.create("a").await;
    house.create("b").await;
    let cases = [
        (r#"{"size": 4097}"#, "invalid_field", "size"),
        (r#"{"force": true}"#, "invalid_field", "force"),
        (r#"{"name": "."}"#, "invalid_field", "name"),
        (r#"{"name": "b"}"#, "already_exists", "name"),
        (r#"{"sector_bytes": 512}"#, "unknown_field", "sector_bytes"),
    ];
    for (body, kind, field) in cases {
        house.ask("PATCH", "/v1/volumes/a", body).await.refused(kind, Some(field));
    }
}

#[tokio::test]
async fn a_shrink_that_cuts_off_data_takes_force() {
    let house = House::new();
    house.create("a").await;
    let volume = house.service.volume_for_test("a");
    volume.write((1 << 20) - 4096, &[7; 4096]).expect("there is room");
    let shrink = r#"{"size": "512KiB"}"#;
    house.ask("PATCH", "/v1/volumes/a", shrink).await.refused("data_behind_new_end", Some("size"));
    let forced = r#"{"size": "512KiB", "force": true}"#;
    let volume = house.ask("PATCH", "/v1/volumes/a", forced).await.json(200);
    assert_eq!(volume["size_bytes"], 512 << 10);
    assert_eq!(volume["written_bytes"], 0);
}

#[tokio::test]
async fn a_deleted_volume_is_gone() {
    let house = House::new();
    house.create("a").await;
    house.ask("DELETE", "/v1/volumes/a", "").await.nothing();
    house.get("/v1/volumes/a").await.refused("not_found", None);
}

/// Opens an export the short way: greeting, flags, the option that names an export and ends the
/// handshake, size and flags.
fn connect_nbd(house: &House, name: &str) -> UnixStream {
    let mut client = UnixStream::connect(house.dir.path().join("nbd.sock")).expect("a server");
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
    let house = House::new();
    house.create("a").await;
    let client = connect_nbd(&house, "a");
    assert_eq!(house.get("/v1/volumes/a").await.json(200)["nbd_connections"], 1);
    let answer = house.ask("DELETE", "/v1/volumes/a", "").await;
    answer.refused("in_use", None);
    assert!(answer.problem().detail.contains("1 NBD connection"), "{answer:?}");
    let answer = house.ask("PATCH", "/v1/volumes/a", r#"{"name": "b"}"#).await;
    answer.refused("in_use", Some("name"));
    drop(client);
    for _ in 0..10_000 {
        if house.get("/v1/volumes/a").await.json(200)["nbd_connections"] == 0 {
            house.ask("DELETE", "/v1/volumes/a", "").await.nothing();
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the server did not notice that the client left");
}

#[tokio::test]
async fn users_of_a_volume_are_named_and_unknown_ones_refused() {
    let house = House::new();
    let body = r#"{"name": "a", "size": "1MiB"}"#;
    house.ask("POST", "/v1/volumes", body).await.json(201);
    let patch = r#"{"users": ["root", "4242"]}"#;
    let changed = house.ask("PATCH", "/v1/volumes/a", patch).await.json(200);
    assert_eq!(changed["users"], serde_json::json!(["root", "4242"]));
    let patch = r#"{"users": ["no-such-user"]}"#;
    let problem = house.ask("PATCH", "/v1/volumes/a", patch).await.json(422);
    assert_eq!(problem["field"], "users");
    let shown = house.get("/v1/volumes/a").await.json(200);
    assert_eq!(shown["users"], serde_json::json!(["root", "4242"]));
}
