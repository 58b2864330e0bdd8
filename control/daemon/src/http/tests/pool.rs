//! The pool's limits, events and tasks through the interface.

use std::time::Duration;

use serde_json::json;

use super::House;
use crate::tasks::{Progress, TaskEnd};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_pool_tells_its_limits() {
    let house = House::new();
    let pool = house.get("/v1/pool").await.json(200);
    let status = house.get("/v1/status").await.json(200);
    assert_eq!(pool["size_bytes"], status["pool"]["size_bytes"]);
    assert_eq!(pool["thresholds_percent"], json!([80, 90, 95]));
    assert_eq!(pool["forecast"], json!(null));
    assert!(pool["daemon_bytes"].as_u64().expect("a number") > 0);
}

#[tokio::test]
async fn events_are_told_from_an_id_on() {
    let house = House::new();
    house.service.events.info("first", None, "one".to_owned());
    house.service.events.warning("second", Some("db"), "two".to_owned());
    let events = house.get("/v1/events").await.json(200);
    assert_eq!(events[0]["kind"], "first");
    assert_eq!((&events[1]["level"], &events[1]["volume"]), (&json!("warning"), &json!("db")));
    let later = house.get("/v1/events?after=1").await.json(200);
    assert_eq!(later, json!([events[1]]));
}

#[tokio::test]
async fn a_task_is_shown_and_cancelled() {
    let house = House::new();
    house.get("/v1/tasks/1").await.refused("not_found", None);
    let work = |progress: &Progress| {
        progress.set(1, 4);
        while !progress.is_cancelled() {
            std::thread::yield_now();
        }
        Err(TaskEnd::Cancelled)
    };
    let kind = api::TaskKind::ImageVerify;
    house.service.tasks.begin(kind, "image 7", work).expect("nothing else runs");
    let task = house.get("/v1/tasks/1").await.json(200);
    assert_eq!((&task["kind"], &task["state"]), (&json!("image_verify"), &json!("running")));
    assert_eq!(house.get("/v1/status").await.json(200)["task_count"], 1);
    house.ask("DELETE", "/v1/tasks/1", "").await.nothing();
    assert!(house.service.tasks.wait_for_class(kind, PATIENCE), "it does not end");
    assert_eq!(house.get("/v1/tasks").await.json(200)[0]["state"], "cancelled");
}
