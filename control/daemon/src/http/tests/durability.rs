//! Tests of durability classes, images and data at risk through the REST interface.

use std::time::{Duration, Instant};

use block_device::BlockDevice;
use serde_json::{Value, json};

use super::Fixture;

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a task, waits until it is complete and returns it.
async fn task(fixture: &Fixture, path: &str, body: &str) -> Value {
    let begun = fixture.ask("POST", path, body).await.json(202);
    let path = format!("/v1/tasks/{}", begun["id"]);
    let start = Instant::now();
    loop {
        let task = fixture.get(&path).await.json(200);
        if task["state"] != "running" {
            return task;
        }
        assert!(start.elapsed() < PATIENCE, "{task}");
        tokio::task::yield_now().await;
    }
}

async fn create(fixture: &Fixture, name: &str, durability: &str) -> Value {
    let body = format!(r#"{{"name": "{name}", "size": "1MiB", "durability": "{durability}"}}"#);
    fixture.ask("POST", "/v1/volumes", &body).await.json(201)
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..512).flat_map(|_| next()).collect()
}

async fn at_risk(fixture: &Fixture) -> Value {
    fixture.get("/v1/status").await.json(200)["durability"]["at_risk"].clone()
}

#[tokio::test]
async fn what_is_at_risk_depends_on_the_class_and_what_was_done_for_it() {
    let fixture = Fixture::new();
    for class in ["ram", "image", "journal"] {
        assert_eq!(create(&fixture, class, class).await["durability"], class);
        fixture.volume(class).write(0, &noise(7)).expect("there is room");
    }
    let all = json!({"ram_bytes": 4096, "image_bytes": 4096, "journal_bytes": 4096});
    assert_eq!(at_risk(&fixture).await, all);
    fixture.volume("journal").flush().expect("the disk works");
    assert_eq!(at_risk(&fixture).await["journal_bytes"], 0);
    let saved = task(&fixture, "/v1/images", "{}").await;
    assert_eq!((&saved["state"], &saved["result"]["image"]), (&json!("done"), &json!(2)));
    let rest = json!({"ram_bytes": 4096, "image_bytes": 0, "journal_bytes": 0});
    assert_eq!(at_risk(&fixture).await, rest);
    fixture.volume("image").write(0, &noise(8)).expect("there is room");
    assert_eq!(at_risk(&fixture).await["image_bytes"], 4096);
}

#[tokio::test]
async fn an_image_is_listed_verified_and_deleted() {
    let fixture = Fixture::new();
    create(&fixture, "a", "image").await;
    fixture.create("b").await;
    assert_eq!(fixture.get("/v1/images").await.json(200), json!([]));
    let body = r#"{"also": ["b"], "label": "first"}"#;
    assert_eq!(task(&fixture, "/v1/images", body).await["state"], "done");
    let image = fixture.get("/v1/images").await.json(200)[0].clone();
    assert_eq!(image["label"], "first");
    let names: Vec<_> = image["volumes"].as_array().expect("a list").iter().collect();
    assert_eq!(names.len(), 2, "{image}");
    let path = format!("/v1/images/{}", image["number"]);
    assert_eq!(fixture.get(&path).await.json(200), image);
    assert_eq!(
        task(&fixture, &format!("{path}/verify"), "").await["result"]["complaints"],
        json!([])
    );
    // The journal continues from this image, so it cannot be deleted.
    fixture.ask("DELETE", &path, "").await.refused("in_use", None);
    assert_eq!(task(&fixture, "/v1/images", "{}").await["state"], "done");
    fixture.ask("DELETE", &path, "").await.nothing();
    fixture.get(&path).await.refused("not_found", None);
    fixture.ask("DELETE", &path, "").await.refused("not_found", None);
}

#[tokio::test]
async fn an_image_without_volumes_is_told_as_such_and_not_restored() {
    let fixture = Fixture::new();
    create(&fixture, "memory", "ram").await;
    let saved = task(&fixture, "/v1/images", "{}").await;
    assert_eq!((&saved["state"], &saved["result"]["volumes"]), (&json!("done"), &json!(0)));
    let restore = |saved: &Value| format!("/v1/images/{}/restore", saved["result"]["image"]);
    fixture.ask("POST", &restore(&saved), "{}").await.refused("not_found", None);
    let saved = task(&fixture, "/v1/images", r#"{"also": ["memory"]}"#).await;
    assert_eq!(saved["result"]["volumes"], 1);
    let none = r#"{"volumes": []}"#;
    fixture.ask("POST", &restore(&saved), none).await.refused("invalid_field", Some("volumes"));
}

#[tokio::test]
async fn a_volume_comes_back_from_an_image_under_another_name() {
    let fixture = Fixture::new();
    create(&fixture, "a", "image").await;
    fixture.volume("a").write(4096, &noise(3)).expect("there is room");
    let saved = task(&fixture, "/v1/images", "{}").await;
    fixture.volume("a").write(4096, &noise(4)).expect("there is room");
    let path = format!("/v1/images/{}/restore", saved["result"]["image"]);
    fixture.ask("POST", &path, "{}").await.refused("already_exists", Some("volumes"));
    let body = r#"{"volumes": ["nobody"]}"#;
    fixture.ask("POST", &path, body).await.refused("not_found", Some("volumes"));
    let restored = task(&fixture, &path, r#"{"volumes": ["a"], "name": "b"}"#).await;
    assert_eq!(restored["state"], "done", "{restored}");
    let subject = format!("a as b from image {}", saved["result"]["image"]);
    assert_eq!(restored["subject"], subject);
    let mut found = vec![0; 4096];
    fixture.volume("b").read(4096, &mut found).expect("it is there");
    assert!(found == noise(3), "other contents");
    fixture.volume("a").read(4096, &mut found).expect("it is there");
    assert!(found == noise(4), "a restore under another name changed the volume");
}

#[tokio::test]
async fn a_rehearsal_tells_the_speed_of_the_store() {
    let fixture = Fixture::new();
    assert_eq!(fixture.get("/v1/status").await.json(200)["durability"]["hold_up"], json!(null));
    assert_eq!(task(&fixture, "/v1/images/rehearse", "").await["state"], "done");
    let hold_up = fixture.get("/v1/status").await.json(200)["durability"]["hold_up"].clone();
    assert!(hold_up["bytes_per_second"].as_u64().is_some_and(|it| it > 0), "{hold_up}");
    assert_eq!(hold_up["bytes"], 0);
}

#[tokio::test]
async fn a_class_is_changed_while_the_volume_is_in_use() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let volume = fixture.volume("a");
    volume.write(0, &noise(5)).expect("there is room");
    for class in ["journal", "image", "journal", "ram"] {
        let body = format!(r#"{{"durability": "{class}"}}"#);
        let changed = fixture.ask("PATCH", "/v1/volumes/a", &body).await.json(200);
        assert_eq!(changed["durability"], class);
        volume.write(4096, &noise(6)).expect("there is room");
        volume.flush().expect("the disk works");
    }
}

#[test]
fn a_journal_that_cannot_be_made_is_a_clear_refusal() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let place = dir.path().join("journal");
    std::fs::write(&place, "in the way").expect("a file");
    let error = Fixture::in_dir(dir).err().expect("there is no place for a journal");
    assert!(format!("{error:#}").contains(&place.display().to_string()), "{error:#}");
}
