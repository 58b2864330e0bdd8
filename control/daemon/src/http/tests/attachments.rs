//! Tests of attachments through the REST interface.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use super::Fixture;
use crate::attachments::AttachmentList;
use crate::export_list::ExportList;
use crate::exports::{Catalog, DeviceFailure, OtherUser};
use crate::http::places::BLOCKING_THREAD_COUNT_MAX;
use crate::service::note_holders;

const ATTACH_A: &str = r#"{"volume": "a"}"#;

fn in_use() -> DeviceFailure {
    DeviceFailure::InUse(anyhow::anyhow!("a file system is mounted"))
}

fn host_failed() -> DeviceFailure {
    DeviceFailure::Host(anyhow::anyhow!("no loop devices"))
}

#[tokio::test]
async fn an_attached_volume_has_a_device_until_it_is_detached() {
    let fixture = Fixture::new();
    let id = fixture.create("a").await["id"].clone();
    let device = format!("/dev/pretended{id}");
    let attachment = fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    assert_eq!(attachment, json!({"volume": "a", "as": "loop", "device": device}));
    assert_eq!(fixture.get("/v1/attachments").await.json(200), json!([attachment]));
    assert_eq!(fixture.get("/v1/volumes/a").await.json(200)["device"], device.as_str());
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    assert_eq!(fixture.get("/v1/attachments").await.json(200), json!([]));
    assert_eq!(fixture.get("/v1/volumes/a").await.json(200)["device"], json!(null));
}

#[tokio::test]
async fn what_cannot_be_attached_is_refused_by_field() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let cases = [
        (r#"{"volume": "a", "as": "ublk"}"#, "not_supported", "as"),
        (r#"{"volume": "a", "as": "scsi"}"#, "invalid_field", "as"),
        (
            r#"{"volume": "a", "as": "ublk", "flush_each_write": true}"#,
            "invalid_field",
            "flush_each_write",
        ),
        (r#"{"volume": "nobody"}"#, "not_found", "volume"),
        (r#"{"volume": 7}"#, "invalid_field", "volume"),
        (r#"{"volume": "a", "at": 1}"#, "unknown_field", "at"),
    ];
    for (body, kind, field) in cases {
        fixture.ask("POST", "/v1/attachments", body).await.refused(kind, Some(field));
    }
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    let again = fixture.ask("POST", "/v1/attachments", ATTACH_A).await;
    again.refused("already_exists", Some("volume"));
}

/// Opens a volume as an NBD client. Also returns whether the client may write.
fn open_over_nbd(fixture: &Fixture, name: &str) -> (UnixStream, bool) {
    let mut stream = UnixStream::connect(fixture.dir.path().join("nbd.sock")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    let length = u32::try_from(name.len()).expect("short").to_be_bytes();
    let flags = [0, 0, 0, 3];
    let choice = [&flags[..], b"IHAVEOPT", &[0, 0, 0, 1], &length, name.as_bytes()].concat();
    stream.write_all(&choice).expect("it is sent");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("the volume is offered");
    (stream, answer[9] & READ_ONLY == 0)
}

const READ_ONLY: u8 = 2;

/// Returns whether the volume is read-only over NBD.
fn is_only_read_over_nbd(fixture: &Fixture, name: &str) -> bool {
    !open_over_nbd(fixture, name).1
}

#[tokio::test]
async fn what_is_attached_or_exported_is_only_read_by_others_unless_it_is_shared() {
    const EXPORT_A: &str = r#"{"volume": "a", "protocol": "vhost-user"}"#;
    let fixture = Fixture::new();
    fixture.create("a").await;
    assert!(!is_only_read_over_nbd(&fixture, "a"));
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    assert!(is_only_read_over_nbd(&fixture, "a"));
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    assert!(!is_only_read_over_nbd(&fixture, "a"));
    fixture.ask("POST", "/v1/exports", EXPORT_A).await.json(201);
    assert!(is_only_read_over_nbd(&fixture, "a"));
    fixture.ask("DELETE", "/v1/exports/a", "").await.nothing();
    let shared = r#"{"volume": "a", "share": true}"#;
    fixture.ask("POST", "/v1/attachments", shared).await.json(201);
    assert!(!is_only_read_over_nbd(&fixture, "a"));
}

#[tokio::test]
async fn an_nbd_client_of_before_goes_on_and_comes_back_to_read() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let (mut stream, _) = open_over_nbd(&fixture, "a");
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    let mut write = [0; 28];
    write[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
    write[7] = 1;
    write[26] = 4096_u16.to_be_bytes()[0];
    stream.write_all(&[&write[..], &[7; 4096]].concat()).expect("it is sent");
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[4..8], [0; 4], "it goes on as before");
    fixture.ask("POST", "/v1/volumes/a/disconnect", "").await.json(200);
    assert!(is_only_read_over_nbd(&fixture, "a"), "it opens the volume anew, as others do");
}

#[tokio::test]
async fn others_only_read_a_volume_from_before_its_device_is_there_until_it_is_detached() {
    let fixture = Arc::new(Fixture::new());
    fixture.create("a").await;
    let (seen, is_seen) = mpsc::channel();
    let looking = Arc::clone(&fixture);
    let look = move || seen.send(is_only_read_over_nbd(&looking, "a")).expect("it is looked at");
    *fixture.devices.making.lock().expect("no panics") = Some(Box::new(look));
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    *fixture.devices.making.lock().expect("no panics") = None;
    assert_eq!(is_seen.recv(), Ok(true), "the kernel may have mounted it by then");
    fixture.devices.fail_with(Some(host_failed));
    fixture.service.restore_attachments();
    assert_eq!(fixture.get("/v1/attachments").await.json(200)[0]["device"], json!(null));
    assert!(is_only_read_over_nbd(&fixture, "a"), "a device that failed may be there all the same");
    fixture.devices.fail_with(None);
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    assert!(!is_only_read_over_nbd(&fixture, "a"));
}

#[tokio::test]
async fn a_device_that_takes_long_holds_up_changes_of_its_own_volume_alone() {
    let fixture = Arc::new(Fixture::new());
    fixture.create("a").await;
    let (begun, mut is_begun) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let take_long = move || {
        begun.send(()).expect("it is waited for");
        may_go_on.recv_timeout(Duration::from_secs(60)).ok();
    };
    *fixture.devices.making.lock().expect("no panics") = Some(Box::new(take_long));
    let ask = |method: &'static str, path: &'static str, body: &'static str| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move { fixture.ask(method, path, body).await })
    };
    let attaching = ask("POST", "/v1/attachments", ATTACH_A);
    is_begun.recv().await.expect("it is attached");
    let deleting = ask("DELETE", "/v1/volumes/a", "");
    fixture.create("b").await;
    fixture.ask("PATCH", "/v1/volumes/b", r#"{"name": "c", "size": "2MiB"}"#).await.json(200);
    fixture.ask("DELETE", "/v1/volumes/c", "").await.nothing();
    assert!(!attaching.is_finished(), "changes of others waited for the device");
    assert!(!deleting.is_finished(), "a volume was deleted while it was being attached");
    go_on.send(()).expect("it waits");
    attaching.await.expect("no panic").json(201);
    deleting.await.expect("no panic").refused("in_use", None);
}

/// Number of changes that wait at the same time, more than the interface has threads.
const WAITING_COUNT: usize = 32;

#[test]
fn changes_that_wait_hold_up_no_status_and_too_many_are_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREAD_COUNT_MAX)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let fixture = Arc::new(Fixture::new());
        fixture.create("a").await;
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let take_long = move || {
            may_go_on.recv_timeout(Duration::from_secs(60)).ok();
        };
        *fixture.devices.making.lock().expect("no panics") = Some(Box::new(take_long));
        let attach = || {
            let fixture = Arc::clone(&fixture);
            tokio::spawn(async move { fixture.ask("POST", "/v1/attachments", ATTACH_A).await })
        };
        let mut attaching: Vec<_> = (0..WAITING_COUNT).map(|_| attach()).collect();
        // Each task runs until it waits.
        tokio::task::yield_now().await;
        fixture.get("/v1/status").await.json(200);
        fixture.get("/metrics").await;
        assert!(!attaching.iter().any(JoinHandle::is_finished), "the status waited for a change");
        // The last of these are refused at once.
        attaching.extend((0..WAITING_COUNT).map(|_| attach()));
        let last = attaching.pop().expect("there are many").await.expect("no panic");
        last.refused("busy", None);
        drop(go_on);
        let mut made_count = 0;
        for attached in attaching {
            match attached.await.expect("no panic").status {
                201 => made_count += 1,
                status => assert_eq!(status, 409),
            }
        }
        assert_eq!(made_count, 1);
    });
}

#[tokio::test]
async fn a_deleted_volume_that_was_exported_has_no_exclusive_user_any_more() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let exported = r#"{"volume": "a", "protocol": "vhost-user"}"#;
    fixture.ask("POST", "/v1/exports", exported).await.json(201);
    let volume = fixture.volume("a");
    let is_held = || fixture.service.catalog.device_beside(&volume).is_read_only();
    assert!(is_held());
    fixture.ask("DELETE", "/v1/volumes/a?force=true", "").await.nothing();
    assert!(!is_held(), "the catalog keeps what it knew of the volume");
}

#[tokio::test]
async fn an_attachment_that_fails_takes_nothing_from_others() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.devices.fail_with(Some(host_failed));
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.refused("host_failed", None);
    assert!(!is_only_read_over_nbd(&fixture, "a"));
}

#[tokio::test]
async fn a_daemon_that_starts_knows_what_is_attached_or_exported_before_it_brings_it_back() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c", "d"] {
        fixture.create(name).await;
    }
    let shared = r#"{"volume": "c", "share": true}"#;
    let exported = r#"{"volume": "b", "protocol": "vhost-user"}"#;
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fixture.ask("POST", "/v1/exports", exported).await.json(201);
    fixture.ask("POST", "/v1/attachments", shared).await.json(201);
    let attachments = AttachmentList::read(fixture.dir.path()).expect("the list");
    let exports = ExportList::read(fixture.dir.path()).expect("the list");
    let catalog = Catalog::new(Arc::clone(&fixture.service.engine));
    let unlisted = vec![(fixture.volume("d").id(), "/dev/pretended".to_owned())];
    note_holders(&catalog, &attachments, &exports, unlisted);
    let is_only_read = |name: &str| catalog.device_beside(&fixture.volume(name)).is_read_only();
    assert_eq!(["a", "b", "c", "d"].map(is_only_read), [true, true, false, true]);
}

/// Makes storing the list of attachments fail.
fn fill_disk(fixture: &Fixture) {
    std::fs::create_dir(fixture.dir.path().join("attachments.json.new")).expect("a directory");
}

#[tokio::test]
async fn a_device_that_is_there_is_known_although_the_list_cannot_be_stored() {
    let fixture = Fixture::new();
    let id = fixture.create("a").await["id"].as_u64().expect("an id");
    fixture.devices.bound.lock().expect("no panics").insert(id, "/dev/survivor".to_owned());
    fill_disk(&fixture);
    fixture.service.restore_attachments();
    let list = fixture.get("/v1/attachments").await.json(200);
    assert_eq!(list, json!([{"volume": "a", "as": "loop", "device": "/dev/survivor"}]));
    assert!(is_only_read_over_nbd(&fixture, "a"));
    fixture.ask("DELETE", "/v1/volumes/a", "").await.refused("in_use", None);
    let events = fixture.get("/v1/events").await.json(200).to_string();
    assert!(events.contains("attachment_not_stored"), "{events}");
}

#[tokio::test]
async fn a_device_that_is_gone_is_not_listed_although_the_list_cannot_be_stored() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fill_disk(&fixture);
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    assert_eq!(fixture.get("/v1/attachments").await.json(200), json!([]));
    assert!(!is_only_read_over_nbd(&fixture, "a"));
    // An attachment that cannot be stored is refused.
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.refused("host_failed", None);
    assert_eq!(fixture.get("/v1/attachments").await.json(200), json!([]));
}

#[tokio::test]
async fn a_device_that_was_taken_away_by_hand_is_not_named_and_can_be_made_again() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fixture.devices.bound.lock().expect("no panics").clear();
    assert_eq!(fixture.get("/v1/attachments").await.json(200)[0]["device"], json!(null));
    assert_eq!(fixture.get("/v1/volumes/a").await.json(200)["device"], json!(null));
    let status = fixture.get("/v1/status").await.json(200);
    assert_eq!(status["warnings"][0]["kind"], "attachment_failed");
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    assert_eq!(fixture.get("/v1/status").await.json(200)["warnings"], json!([]));
}

#[tokio::test]
async fn who_has_a_volumes_file_open_keeps_it_from_being_taken_away() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let snapshot = r#"{"volumes": ["a"], "snapshot": "s"}"#;
    fixture.ask("POST", "/v1/snapshots", snapshot).await.json(201);
    let user =
        |writes| OtherUser { words: "process 7 (dd) has it open; end that".to_owned(), writes };
    *fixture.devices.other_user.lock().expect("no panics") = Some(user(false));
    for (method, path) in [
        ("DELETE", "/v1/volumes/a"),
        ("DELETE", "/v1/snapshots/a@s"),
        ("POST", "/v1/snapshots/a@s/restore"),
    ] {
        let answer = fixture.ask(method, path, "").await;
        answer.refused("in_use", None);
        assert!(answer.problem().detail.contains("process 7 (dd)"), "{answer:?}");
    }
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    *fixture.devices.other_user.lock().expect("no panics") = Some(user(true));
    let exported = r#"{"volume": "a", "protocol": "vhost-user"}"#;
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.refused("in_use", Some("volume"));
    fixture.ask("POST", "/v1/exports", exported).await.refused("in_use", Some("volume"));
    let shared = r#"{"volume": "a", "share": true}"#;
    fixture.ask("POST", "/v1/attachments", shared).await.json(201);
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    *fixture.devices.other_user.lock().expect("no panics") = None;
    fixture.ask("DELETE", "/v1/snapshots/a@s", "").await.nothing();
    *fixture.devices.other_user.lock().expect("no panics") = Some(user(true));
    fixture.ask("DELETE", "/v1/volumes/a?force=true", "").await.nothing();
}

#[tokio::test]
async fn a_host_that_refuses_is_told_of() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.devices.fail_with(Some(host_failed));
    let answer = fixture.ask("POST", "/v1/attachments", ATTACH_A).await;
    answer.refused("host_failed", None);
    assert!(answer.problem().detail.contains("no loop devices"), "{answer:?}");
    assert_eq!(fixture.get("/v1/attachments").await.json(200), json!([]));
}

#[tokio::test]
async fn only_attached_volumes_can_be_detached() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    for name in ["a", "nobody"] {
        let path = format!("/v1/attachments/{name}");
        fixture.ask("DELETE", &path, "").await.refused("not_found", None);
    }
}

#[tokio::test]
async fn a_device_that_is_in_use_stays_attached() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fixture.devices.fail_with(Some(in_use));
    let answer = fixture.ask("DELETE", "/v1/attachments/a", "").await;
    answer.refused("in_use", None);
    assert!(answer.problem().detail.contains("a file system is mounted"), "{answer:?}");
    assert_eq!(fixture.get("/v1/status").await.json(200)["attachment_count"], 1);
}

#[tokio::test]
async fn an_attached_volume_is_not_deleted() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    let answer = fixture.ask("DELETE", "/v1/volumes/a", "").await;
    answer.refused("in_use", None);
    assert!(answer.problem().detail.contains("/dev/pretended"), "{answer:?}");
}

#[tokio::test]
async fn a_renamed_volume_keeps_its_device() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let device = fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201)["device"].clone();
    fixture.ask("PATCH", "/v1/volumes/a", r#"{"name": "b"}"#).await.json(200);
    let list = fixture.get("/v1/attachments").await.json(200);
    assert_eq!(list, json!([{"volume": "b", "as": "loop", "device": device}]));
    fixture.ask("DELETE", "/v1/attachments/b", "").await.nothing();
}

#[tokio::test]
async fn the_kernel_is_told_a_new_size() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ask("PATCH", "/v1/volumes/a", r#"{"size": "2M"}"#).await.json(200);
    assert_eq!(*fixture.devices.resized.lock().expect("no panics"), [2 << 20]);
}

#[tokio::test]
async fn attachments_are_restored_and_strays_adopted() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let stray = fixture.create("stray").await["id"].as_u64().expect("an id");
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    {
        let mut bound = fixture.devices.bound.lock().expect("no panics");
        bound.clear();
        bound.insert(stray, "/dev/survivor".to_owned());
    }
    fixture.service.restore_attachments();
    let list = fixture.get("/v1/attachments").await.json(200);
    assert_eq!(list[0]["volume"], "a");
    assert_eq!(list[1], json!({"volume": "stray", "as": "loop", "device": "/dev/survivor"}));
}

#[tokio::test]
async fn an_attachment_that_fails_at_the_start_is_warned_of_and_can_be_made_again() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fixture.devices.fail_with(Some(host_failed));
    fixture.service.restore_attachments();
    let status = fixture.get("/v1/status").await.json(200);
    assert_eq!(status["warnings"][0]["kind"], "attachment_failed");
    assert_eq!(fixture.get("/v1/attachments").await.json(200)[0]["device"], json!(null));
    fixture.devices.fail_with(None);
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    assert_eq!(fixture.get("/v1/status").await.json(200)["warnings"], json!([]));
}

#[tokio::test]
async fn the_best_driver_is_ublk_where_it_is_there() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ublk.fail_with(None);
    let attachment = fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    assert_eq!(attachment["as"], "ublk");
    let status = fixture.get("/v1/status").await.json(200);
    assert_eq!(status["exports"]["ublk"], json!({"device_count": 1}));
    fixture.ask("DELETE", "/v1/attachments/a", "").await.nothing();
    let as_loop = r#"{"volume": "a", "as": "loop"}"#;
    assert_eq!(fixture.ask("POST", "/v1/attachments", as_loop).await.json(201)["as"], "loop");
}

#[tokio::test]
async fn who_asks_for_a_missing_driver_hears_what_to_do() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    let as_ublk = r#"{"volume": "a", "as": "ublk"}"#;
    let answer = fixture.ask("POST", "/v1/attachments", as_ublk).await;
    answer.refused("not_supported", Some("as"));
    assert!(answer.problem().detail.contains("modprobe ublk_drv"), "{answer:?}");
    assert_eq!(fixture.get("/v1/status").await.json(200)["exports"]["ublk"], json!(null));
}

#[tokio::test]
async fn a_volume_comes_back_by_the_driver_that_it_had() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ublk.fail_with(None);
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fixture.ublk.bound.lock().expect("no panics").clear();
    fixture.service.restore_attachments();
    assert_eq!(fixture.get("/v1/attachments").await.json(200)[0]["as"], "ublk");
    fixture.ublk.fail_with(Some(host_failed));
    fixture.service.restore_attachments();
    let list = fixture.get("/v1/attachments").await.json(200);
    assert_eq!(list, json!([{"volume": "a", "as": "ublk", "device": null}]));
}

#[tokio::test]
async fn a_size_that_the_kernel_cannot_be_told_is_refused_before_anything_changes() {
    let fixture = Fixture::new();
    fixture.create("a").await;
    fixture.ublk.fail_with(None);
    fixture.ask("POST", "/v1/attachments", ATTACH_A).await.json(201);
    fixture.ublk.fail_with(Some(host_failed));
    let answer = fixture.ask("PATCH", "/v1/volumes/a", r#"{"size": "2M"}"#).await;
    answer.refused("host_failed", None);
    assert_eq!(fixture.get("/v1/volumes/a").await.json(200)["size_bytes"], 1 << 20);
}
