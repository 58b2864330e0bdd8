//! Tests of snapshots, clones and images, and of their durability, through the command line with a
//! real daemon.

#[expect(dead_code, reason = "each file of tests uses a part of it")]
mod fixture;

use fixture::Fixture;
use serde_json::json;

#[test]
fn a_snapshot_lives_from_create_to_delete() {
    let fixture = Fixture::new();
    fixture.json("volume create db --size 16MiB", 0);
    fixture.json("volume create wal --size 16MiB", 0);
    let made = fixture.json("snapshot create db wal first", 0);
    assert_eq!((&made[0]["name"], &made[1]["name"]), (&json!("db@first"), &json!("wal@first")));
    assert_eq!(fixture.json("snapshot list db", 0), json!([made[0]]));
    assert_eq!(fixture.json("snapshot list", 0), made);
    assert!(fixture.text("snapshot list", 0).contains("db@first"));
    let diff = fixture.json("snapshot diff db@first", 0);
    assert_eq!((&diff["changed"], &diff["to"]), (&json!([]), &json!("db")));
    assert!(fixture.text("snapshot diff db@first wal", 0).contains("0 B differ"));
    assert_eq!(fixture.json("snapshot restore db first", 0)["name"], "db");
    assert_eq!(fixture.json("snapshot delete wal@first", 0), json!({"deleted": "wal@first"}));
    assert_eq!(fixture.json("volume delete db", 1)["error"]["kind"], "in_use");
    fixture.json("snapshot delete db@first", 0);
    fixture.json("volume delete db", 0);
}

#[test]
fn a_clone_is_a_volume_of_its_own() {
    let fixture = Fixture::new();
    fixture.json("volume create db --size 16MiB", 0);
    fixture.json("snapshot create db s", 0);
    assert_eq!(fixture.json("clone db@s old", 0)["name"], "old");
    assert_eq!(fixture.json("clone db new", 0)["size_bytes"], 16 << 20);
    assert_eq!(fixture.json("volume list", 0).as_array().map(Vec::len), Some(3));
}

#[test]
fn copies_of_what_does_not_exist_are_exit_code_3() {
    let fixture = Fixture::new();
    for words in [
        "snapshot create nobody s",
        "snapshot list nobody",
        "snapshot delete nobody@s",
        "snapshot restore nobody s",
        "snapshot diff nobody@s",
        "clone nobody copy",
        "image delete 7",
        "image verify",
        "image restore --image 7",
    ] {
        assert_eq!(fixture.json(words, 3)["error"]["kind"], "not_found", "{words}");
    }
}

#[test]
fn an_image_is_saved_verified_restored_and_deleted() {
    let fixture = Fixture::new();
    fixture.json("volume create db --size 16MiB --durability image", 0);
    let saved = fixture.json("image save --label keep", 0);
    assert_eq!(saved["state"], "done");
    let number = saved["result"]["image"].as_u64().expect("a number");
    assert!(fixture.text("image list", 0).contains("keep"));
    assert_eq!(fixture.json("image list", 0)[0]["volumes"][0]["name"], "db");
    assert!(fixture.text("image verify", 0).contains(&format!("image {number}")));
    assert_eq!(fixture.json("image restore", 1)["error"]["kind"], "already_exists");
    assert_eq!(fixture.json("image restore db --as again", 0)["state"], "done");
    assert_eq!(fixture.json("volume show again", 0)["durability"], "image");
    assert!(fixture.text("image rehearse", 0).contains("/s"));
    let task = fixture.json("image verify --background", 0)["id"].as_u64().expect("an id");
    assert_eq!(fixture.json(&format!("task wait {task}"), 0)["state"], "done");
    fixture.json(&format!("image delete {number}"), 0);
}

#[test]
fn an_image_without_volumes_is_told_as_such_and_not_restored() {
    let fixture = Fixture::new();
    fixture.json("volume create memory --size 16MiB", 0);
    let told = fixture.text("image save", 0);
    assert!(told.contains("contains no volumes") && told.contains("class ram"), "{told}");
    assert_eq!(fixture.json("image restore", 3)["error"]["kind"], "not_found");
    let told = fixture.text("image save memory", 0);
    assert!(!told.contains("no volumes"), "{told}");
}

#[test]
fn a_command_waits_for_the_task_that_hinders_it() {
    let fixture = Fixture::new();
    fixture.json("volume create db --size 16MiB --durability image", 0);
    let rehearsal = fixture.json("image rehearse --background", 0)["id"].clone();
    assert_eq!(fixture.json("image save", 0)["state"], "done");
    let tasks = fixture.json("task list", 0);
    let mut tasks = tasks.as_array().expect("a list").iter();
    let earlier = tasks.find(|it| it["id"] == rehearsal).expect("a rehearsal");
    assert_eq!(earlier["state"], "done");
}

#[test]
fn an_image_that_the_journal_goes_on_from_is_in_use() {
    let fixture = Fixture::new();
    fixture.json("volume create db --size 16MiB --durability journal", 0);
    let save = || fixture.json("image save", 0)["result"]["image"].as_u64().expect("a number");
    let number = save();
    let error = &fixture.json(&format!("image delete {number}"), 1)["error"];
    assert_eq!(error["kind"], "in_use", "{error}");
    assert!(error["message"].as_str().is_some_and(|it| it.contains("save another image first")));
    save();
    fixture.json(&format!("image delete {number}"), 0);
}

#[test]
fn status_tells_what_a_loss_of_power_would_take() {
    let fixture = Fixture::new();
    fixture.json("volume create db --size 16MiB --durability journal", 0);
    fixture.json("volume set db durability=image", 0);
    fixture.json("volume set db durability=journal", 0);
    let status = fixture.text("status", 0);
    assert!(status.contains("of class journal") && status.contains("journal "), "{status}");
    let durability = fixture.json("status", 0)["durability"].clone();
    assert_eq!(durability["journal"]["state"], "ok");
    assert_eq!(durability["at_risk"]["journal_bytes"], 0);
}

#[test]
fn the_pool_is_given_more_memory_and_less() {
    let fixture = Fixture::new();
    assert_eq!(fixture.json("pool set max-memory=96MiB", 0)["state"], "done");
    assert_eq!(fixture.json("pool show", 0)["max_memory_bytes"], 96 << 20);
    assert!(fixture.text("pool set max-memory=64MiB", 0).contains("pool resized to 64.0 MiB"));
    assert!(fixture.text("events", 0).contains("pool_resized"));
    assert_eq!(fixture.json("pool set max-memory=4096TiB", 4)["error"]["kind"], "no_space");
}
