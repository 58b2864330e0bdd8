//! Tests of the pool's limits, events and tasks through the REST interface.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block_device::BlockDevice;
use serde_json::{Value, json};

use super::Fixture;
use crate::maintenance::Lookout;
use crate::pool_medium::Medium;
use crate::service::Service;
use crate::tasks::{Progress, TaskEnd};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_pool_tells_its_limits() {
    let fixture = Fixture::new();
    let pool = fixture.get("/v1/pool").await.json(200);
    let status = fixture.get("/v1/status").await.json(200);
    assert_eq!(pool["max_memory_bytes"], status["pool"]["size_bytes"]);
    assert_eq!(pool["thresholds_percent"], json!([80, 90, 95]));
    assert_eq!(pool["forecast"], json!(null));
    assert!(pool["daemon_bytes"].as_u64().expect("a number") > 0);
}

/// Goal: the status reports that a pool is filling half a minute after the start of its growth,
/// with the volume that grows, and that it is steady two minutes after the end.
#[tokio::test]
async fn the_interface_says_that_a_pool_fills_and_that_it_does_not_any_more() {
    let fixture = Fixture::new();
    fixture.ask("POST", "/v1/volumes", r#"{"name": "db", "size": "64MiB"}"#).await.json(201);
    fixture.create("idle").await;
    let volume = fixture.volume("db");
    let Service { engine, watch, filling, .. } = &*fixture.service;
    let mut now = Instant::now();
    let mut lookout = Lookout::new(Arc::clone(engine), Arc::clone(watch), Arc::clone(filling), now);
    let mut look_each_second = |seconds: std::ops::Range<u64>, act: &dyn Fn(u64)| {
        for second in seconds {
            act(second);
            now += Duration::from_secs(1);
            lookout.look(&engine.usage(), now);
        }
    };
    let fill = |second: u64| {
        for nth in 0..64 {
            let mut block = [0; 4096];
            getrandom::fill(&mut block).expect("Linux has random bytes");
            volume.write((second * 64 + nth) * 4096, &block).expect("there is room");
        }
    };
    let state = async || {
        let pool = fixture.get("/v1/pool").await.json(200);
        let metrics = fixture.get("/metrics").await.text;
        let line = metrics.lines().find_map(|it| it.strip_prefix("memlane_pool_full_in_seconds "));
        let until_full: f64 = line.and_then(|it| it.parse().ok()).expect("a number");
        (pool["fill_state"].clone(), pool["forecast"].clone(), until_full)
    };
    assert_eq!(state().await, (json!("unknown"), json!(null), f64::INFINITY));
    look_each_second(0..30, &fill);
    let (fill_state, forecast, until_full) = state().await;
    assert_eq!(fill_state, "filling");
    // 256 KiB each second, plus maps, in a pool of 64 MiB.
    let rate = forecast["bytes_per_second"].as_u64().expect("a number");
    assert!((256 << 10..300 << 10).contains(&rate), "{forecast}");
    assert!((150.0..250.0).contains(&until_full), "{until_full}");
    assert_eq!(forecast["full_in_seconds"].as_f64(), Some(until_full));
    assert_eq!(forecast["volumes"].as_array().map(Vec::len), Some(1), "{forecast}");
    assert_eq!(forecast["volumes"][0]["volume"], "db");
    look_each_second(30..150, &|_| {});
    assert_eq!(state().await, (json!("steady"), json!(null), f64::INFINITY));
    look_each_second(150..180, &fill);
    assert_eq!(state().await.0, "filling", "it fills again");
}

#[tokio::test]
async fn a_deletion_ends_the_forecast_at_once() {
    let fixture = Fixture::new();
    fixture.ask("POST", "/v1/volumes", r#"{"name": "db", "size": "64MiB"}"#).await.json(201);
    let Service { engine, watch, filling, .. } = &*fixture.service;
    let now = Instant::now();
    let mut lookout = Lookout::new(Arc::clone(engine), Arc::clone(watch), Arc::clone(filling), now);
    let mut noise = vec![0; 16 << 20];
    getrandom::fill(&mut noise).expect("Linux has random bytes");
    fixture.volume("db").write(0, &noise).expect("there is room");
    lookout.look(&engine.usage(), now + Duration::from_secs(60));
    assert_eq!(fixture.get("/v1/pool").await.json(200)["fill_state"], "filling");
    fixture.ask("DELETE", "/v1/volumes/db", "").await.nothing();
    let pool = fixture.get("/v1/pool").await.json(200);
    assert_eq!((&pool["fill_state"], &pool["forecast"]), (&json!("steady"), &json!(null)));
}

#[tokio::test]
async fn a_pool_on_a_disk_is_warned_of() {
    let warnings = async |medium| {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let fixture = Fixture::on_medium(dir, medium).expect("an empty disk");
        fixture.get("/v1/status").await.json(200)["warnings"].clone()
    };
    assert_eq!(warnings(Medium::Tmpfs).await, json!([]));
    let told = warnings(Medium::Disk).await;
    assert_eq!(told[0]["kind"], "pool_on_disk");
    assert!(told[0]["message"].as_str().is_some_and(|it| it.contains("old data")), "{told}");
}

#[tokio::test]
async fn events_are_told_from_an_id_on() {
    let fixture = Fixture::new();
    fixture.service.events.info("first", None, "one".to_owned());
    fixture.service.events.warning("second", Some("db"), "two".to_owned());
    let events = fixture.get("/v1/events").await.json(200);
    assert_eq!(events[0]["kind"], "first");
    assert_eq!((&events[1]["level"], &events[1]["volume"]), (&json!("warning"), &json!("db")));
    let later = fixture.get("/v1/events?after=1").await.json(200);
    assert_eq!(later, json!([events[1]]));
}

#[tokio::test]
async fn a_task_is_shown_and_cancelled() {
    let fixture = Fixture::new();
    fixture.get("/v1/tasks/1").await.refused("not_found", None);
    let work = |progress: &Progress| {
        progress.set(1, 4);
        while !progress.is_cancelled() {
            std::thread::yield_now();
        }
        Err(TaskEnd::Cancelled)
    };
    let kind = api::TaskKind::ImageVerify;
    fixture.service.tasks.begin(kind, "image 7", work).expect("nothing else runs");
    let task = fixture.get("/v1/tasks/1").await.json(200);
    assert_eq!((&task["kind"], &task["state"]), (&json!("image_verify"), &json!("running")));
    assert_eq!(fixture.get("/v1/status").await.json(200)["task_count"], 1);
    fixture.ask("DELETE", "/v1/tasks/1", "").await.nothing();
    assert!(fixture.service.tasks.wait_for_class(kind, PATIENCE), "it does not end");
    assert_eq!(fixture.get("/v1/tasks").await.json(200)[0]["state"], "cancelled");

    let again = fixture.ask("DELETE", "/v1/tasks/1", "").await;
    again.refused("ended", None);
    assert_eq!(again.problem().detail, "task 1 has already ended: cancelled");
}

/// Changes the pool's size, waits until the task is complete and returns it.
async fn resize(fixture: &Fixture, max_memory: &str) -> Value {
    let body = format!(r#"{{"max_memory": "{max_memory}"}}"#);
    let task = fixture.ask("PATCH", "/v1/pool", &body).await.json(202);
    let kind = api::TaskKind::PoolResize;
    assert!(fixture.service.tasks.wait_for_class(kind, PATIENCE), "it does not end");
    fixture.get(&format!("/v1/tasks/{}", task["id"])).await.json(200)
}

#[tokio::test]
async fn the_pool_grows_and_shrinks_while_it_is_in_use() {
    let fixture = Fixture::new();
    for (size, bytes) in [("96MiB", 96 << 20), ("32MiB", 32 << 20), ("64MiB", 64 << 20)] {
        let task = resize(&fixture, size).await;
        assert_eq!(task["state"], "done", "{task}");
        assert_eq!(fixture.get("/v1/pool").await.json(200)["max_memory_bytes"], bytes);
        assert_eq!(fixture.get("/v1/status").await.json(200)["pool"]["size_bytes"], bytes);
    }
    let events = fixture.get("/v1/events").await.json(200);
    assert!(events.to_string().contains("pool_resized"), "{events}");
}

#[tokio::test]
async fn a_size_that_cannot_be_is_refused_with_the_reason() {
    let fixture = Fixture::new();
    let task = resize(&fixture, "1GiB").await;
    assert_eq!((&task["state"], &task["problem"]["kind"]), (&json!("failed"), &json!("no_space")));
    for too_small in ["2MiB", "4KiB"] {
        let task = resize(&fixture, too_small).await;
        let detail = task["problem"]["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("to 2 MiB: the size is too small"), "{task}");
    }
    let none = fixture.ask("PATCH", "/v1/pool", "{}").await;
    none.refused("invalid_field", Some("max_memory"));
}

#[tokio::test]
async fn a_guaranteed_volume_is_refused_unless_its_full_size_fits() {
    let fixture = Fixture::new();
    let create = |name: &str, size: &str| {
        let body = format!(r#"{{"name": "{name}", "size": "{size}", "capacity": "guaranteed"}}"#);
        (body, "POST", "/v1/volumes")
    };
    let (body, method, path) = create("a", "32MiB");
    assert_eq!(fixture.ask(method, path, &body).await.json(201)["capacity"], "guaranteed");
    assert!(fixture.get("/v1/pool").await.json(200)["guaranteed_bytes"].as_u64() >= Some(32 << 20));
    let (body, method, path) = create("b", "64MiB");
    fixture.ask(method, path, &body).await.refused("no_space", None);
    let thin = fixture.ask("PATCH", "/v1/volumes/a", r#"{"capacity": "thin"}"#).await.json(200);
    assert_eq!(thin["capacity"], "thin");
    assert_eq!(fixture.get("/v1/pool").await.json(200)["guaranteed_bytes"], 0);
    let back = r#"{"capacity": "guaranteed"}"#;
    assert_eq!(
        fixture.ask("PATCH", "/v1/volumes/a", back).await.json(200)["capacity"],
        "guaranteed"
    );
}
