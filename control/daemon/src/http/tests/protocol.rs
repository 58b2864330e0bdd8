//! Tests of rules that apply to all paths.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tower::ServiceExt;

use super::{Answer, Fixture};
use crate::http::{body, routes};

#[tokio::test]
async fn every_endpoint_of_the_document_is_served() {
    let fixture = Fixture::new();
    for endpoint in api::ENDPOINTS {
        let answer =
            fixture.ask(endpoint.method.name(), &api::path_of(endpoint.path, "x"), "").await;
        let is_unknown = answer.status == 404 && answer.text.contains("unknown_path");
        let is_served = !is_unknown && answer.status != 405;
        assert!(is_served, "{} {}: {answer:?}", endpoint.method.name(), endpoint.path);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused_as_problems() {
    let fixture = Fixture::new();
    for path in ["/", "/v1", "/v1/streams", "/v2/volumes", "/v1/volumes/a/b"] {
        fixture.get(path).await.refused("unknown_path", None);
    }
    fixture.ask("PUT", "/v1/volumes", "").await.refused("method_not_allowed", None);
    fixture.ask("PUT", "/v1/attachments/a", "").await.refused("method_not_allowed", None);
}

#[tokio::test]
async fn a_name_that_is_no_text_is_refused() {
    let fixture = Fixture::new();
    fixture.get("/v1/volumes/%FF").await.refused("invalid_field", Some("name"));
}

#[tokio::test]
async fn a_number_that_is_none_is_refused() {
    let fixture = Fixture::new();
    fixture.get("/v1/images/newest").await.refused("invalid_field", Some("number"));
    fixture.get("/v1/tasks/-1").await.refused("invalid_field", Some("id"));
}

#[tokio::test]
async fn a_parameter_that_is_not_known_is_refused() {
    let fixture = Fixture::new();
    fixture.get("/v1/events?since=1").await.refused("invalid_field", None);
    fixture.get("/v1/events?after=x").await.refused("invalid_field", None);
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused() {
    let fixture = Fixture::new();
    fixture.ask("POST", "/v1/volumes", "name=a").await.refused("invalid_request", None);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let fixture = Fixture::new();
    let body = " ".repeat(body::BODY_BYTES_MAX + 1);
    fixture.ask("POST", "/v1/volumes", &body).await.refused("body_too_large", None);
}

/// A body that never arrives.
struct NeverArrives;

impl hyper::body::Body for NeverArrives {
    type Data = axum::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_refused() {
    let fixture = Fixture::new();
    let never = Body::new(NeverArrives);
    let request = Request::builder().method("POST").uri("/v1/volumes").body(never);
    let router = routes::router(Arc::clone(&fixture.service));
    let request = request.expect("a well-formed request");
    let response = router.oneshot(request).await.expect("the router always answers");
    Answer::read(response).await.refused("timeout", None);
}

#[tokio::test]
async fn a_daemon_that_starts_says_so_and_serves_when_it_is_open() {
    let fixture = Fixture::new();
    fixture.readiness.starting("the pool is opened");
    let refused = fixture.get("/v1/status").await;
    refused.refused("starting", None);
    assert!(refused.problem().detail.contains("the pool is opened"), "{refused:?}");
    assert_eq!(refused.headers["retry-after"], "1");
    fixture.get("/readyz").await.refused("starting", None);
    let health = fixture.get("/healthz").await.json(200);
    assert_eq!(health, json!({"stage": "starting", "doing": "the pool is opened"}));
    fixture.readiness.serving(Arc::clone(&fixture.service));
    assert_eq!(fixture.get("/readyz").await.json(200)["stage"], "serving");
    fixture.get("/v1/status").await.json(200);
}

#[tokio::test]
async fn a_daemon_that_stops_refuses_and_is_alive() {
    let fixture = Fixture::new();
    fixture.readiness.stopping("the last image is saved");
    for path in ["/v1/status", "/readyz", "/metrics"] {
        let refused = fixture.get(path).await;
        refused.refused("shutting_down", None);
        assert!(refused.problem().detail.contains("the last image"), "{refused:?}");
        assert_eq!(refused.headers["retry-after"], "1");
    }
    assert_eq!(fixture.get("/healthz").await.json(200)["stage"], "stopping");
}

#[tokio::test]
async fn what_was_made_or_begun_is_where_the_answer_says() {
    let fixture = Fixture::new();
    let cases = [
        ("/v1/volumes", r#"{"name": "a", "size": "1MiB"}"#, "/v1/volumes/a"),
        ("/v1/volumes/a/clone", r#"{"name": "b"}"#, "/v1/volumes/b"),
        ("/v1/snapshots", r#"{"volumes": ["a", "b"], "snapshot": "s"}"#, "/v1/snapshots/a%40s"),
        ("/v1/attachments", r#"{"volume": "a"}"#, "/v1/attachments/a"),
        ("/v1/exports", r#"{"volume": "b", "protocol": "vhost-user"}"#, "/v1/exports/b"),
        ("/v1/images", "{}", "/v1/tasks/1"),
    ];
    for (path, body, expected) in cases {
        let made = fixture.ask("POST", path, body).await;
        assert_eq!(made.headers["location"], expected, "{made:?}");
        fixture.get(expected).await.json(200);
    }
}

#[tokio::test]
async fn strangers_are_forbidden_everything() {
    for path in ["/v1/status", "/metrics", "/nowhere"] {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        let response = routes::forbidding_router().oneshot(request).await.expect("an answer");
        Answer::read(response).await.refused("forbidden", None);
    }
}

#[tokio::test]
async fn the_status_adds_up() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let status = fixture.get("/v1/status").await.json(200);
    let pool = &status["pool"];
    let bytes = |name: &str| pool[name].as_u64().expect("a number of bytes");
    assert_eq!(bytes("size_bytes"), bytes("used_bytes") + bytes("free_bytes"));
    let parts = ["page_bytes", "map_bytes", "index_bytes", "table_bytes", "slack_bytes"];
    assert_eq!(bytes("used_bytes"), parts.map(bytes).iter().sum::<u64>());
    assert_eq!(status["volume_count"], 1);
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["recovery"], "complete");
    assert_eq!(status["exports"]["fuse"]["mount_point"], "/mnt");
    assert_eq!(status["exports"]["nbd"]["connections"], 0);
}

#[tokio::test]
async fn each_metric_has_help_type_and_a_sample() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let answer = fixture.get("/metrics").await;
    assert_eq!(answer.status, 200);
    for line in answer.text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).expect("a name");
        let is_sample = |line: &str| line.starts_with(name) && !line.starts_with('#');
        assert!(answer.text.contains(&format!("# HELP {name} ")), "{name}");
        assert!(answer.text.lines().any(is_sample), "{name}");
        let is_counter = line.ends_with(" counter");
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
    }
    for sample in [
        "memlane_volume_size_bytes{volume=\"a\"} 1048576",
        "memlane_volume_requests_total{volume=\"a\",kind=\"write\"} 0",
        "memlane_request_seconds_count{durability=\"journal\",kind=\"flush\"} 0",
        "memlane_request_seconds_bucket{durability=\"ram\",kind=\"read\",le=\"0.000001\"} 0",
    ] {
        assert!(answer.text.contains(sample), "{sample}");
    }
}

#[tokio::test]
async fn the_document_is_served_as_it_is_committed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.get("/openapi.json").await.text, api::openapi_json());
}
