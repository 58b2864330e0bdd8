//! Tests of the command line with a real daemon: output and exit codes.

mod fixture;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use fixture::Fixture;
use serde_json::json;

#[test]
fn a_volume_lives_from_create_to_delete() {
    let fixture = Fixture::new();
    let made = fixture.json("volume create db --size 16MiB --reduction compress", 0);
    assert_eq!(made["name"], "db");
    assert_eq!(made["size_bytes"], 16 << 20);
    assert_eq!(made["reduction"], "compress");
    let mut shown = fixture.json("volume show db", 0);
    let latencies = shown.as_object_mut().and_then(|it| it.remove("latencies"));
    assert_eq!(shown, made);
    assert_eq!(latencies.expect("it is told how long requests took")["reads"]["timed"], 0);
    assert_eq!(fixture.json("volume list", 0), json!([made]));
    assert_eq!(fixture.json("volume resize db --size 32M", 0)["size_bytes"], 32 << 20);
    assert_eq!(fixture.json("volume set db reduction=none", 0)["reduction"], "none");
    assert_eq!(fixture.json("volume rename db base", 0)["name"], "base");
    assert_eq!(fixture.json("volume delete base", 0), json!({"deleted": "base"}));
    assert_eq!(fixture.json("volume list", 0), json!([]));
}

#[test]
fn a_daemon_that_does_not_answer_is_reported_while_the_command_waits() {
    let folder = tempfile::tempdir().expect("a directory");
    let socket = folder.path().join("api.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane"));
    command.arg("--socket").arg(&socket).arg("status").stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut told = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
    lines.read_line(&mut told).expect("a line");
    assert!(told.contains(&format!("{} has not answered", socket.display())), "{told}");
    drop(listener);
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
}

#[test]
fn a_setting_that_is_given_twice_is_refused() {
    let fixture = Fixture::new();
    fixture.text("volume create db --size 16MiB", 0);
    for (words, told) in [
        ("volume create a --size 4KiB --label k=1 --label k=2", "label k is given twice"),
        ("volume set db durability=ram durability=image", "setting durability is given twice"),
        ("volume set db label.k=1 label.k=2", "setting label.k is given twice"),
        ("pool set max-memory=32MiB max-memory=64MiB", "setting max-memory is given twice"),
    ] {
        assert_eq!(fixture.json(words, 2)["error"]["message"], told);
    }
    assert_eq!(fixture.json("volume list", 0).as_array().expect("a list").len(), 1);
    fixture.text("volume set db label.k=1 label.l=1 durability=image", 0);
    for name in ["", "x@y"] {
        let error = &fixture.json(&format!("snapshot create db@{name}"), 1)["error"];
        let message = error["message"].as_str().expect("a message");
        let told = format!("snapshot {name:?}: invalid name; ");
        assert!(error["field"] == "snapshot" && message.starts_with(&told), "{message}");
    }
}

#[test]
fn a_value_that_is_no_number_is_told_as_such() {
    let fixture = Fixture::new();
    for (words, told) in [
        ("task wait x", "invalid value 'x' for '<ID>': it is not a whole number"),
        ("image verify 1.5", "invalid value '1.5' for '[NUMBER]': it is not a whole number"),
        (
            "export vhost-user db --queues 99999999999999999999",
            "invalid value '99999999999999999999' for '--queues <COUNT>': it is out of range",
        ),
    ] {
        let json = fixture.json(words, 2);
        let message = json["error"]["message"].as_str().expect("a message");
        assert!(message.contains(told), "{message}");
        assert!(message.contains("try '--help'"), "{message}");
        fixture.text(words, 2);
    }
}

#[test]
fn people_get_tables() {
    let fixture = Fixture::new();
    fixture.text("volume create db --size 16MiB", 0);
    let list = fixture.text("volume list", 0);
    assert!(list.starts_with("NAME  ") && list.contains("16.0 MiB"), "{list}");
    let shown = fixture.text("volume show db", 0);
    assert!(shown.contains("16MiB") && shown.contains("\nLATENCY  "), "{shown}");
    assert!(shown.trim_end().ends_with("flushes    -    -    -      0"), "{shown}");
    let status = fixture.text("status", 0);
    let has = |name: &str, value: &str| status.contains(&format!("\n{name:19}  {value}\n"));
    assert!(has("volumes", "1") && has("attached", "0, snapshots included"), "{status}");
}

#[test]
fn lists_are_sorted_and_have_the_columns_that_are_asked_for() {
    let fixture = Fixture::new();
    for (name, size) in [("b", "32MiB"), ("a", "16MiB"), ("c", "64MiB")] {
        fixture.text(&format!("volume create {name} --size {size}"), 0);
    }
    assert_eq!(fixture.text("volume ls --sort -size -o name", 0), "NAME\nc\nb\na\n");
    assert_eq!(fixture.text("volume ls --sort name -o name", 0), "NAME\na\nb\nc\n");
    assert!(fixture.json("volume ls --sort colour", 2)["error"]["message"].is_string());
    assert!(fixture.text("status", 0).contains("112 MiB, 1.8 times the pool"));
    let list = fixture.text("volume ls", 0);
    assert!(list.ends_with("\n112 MiB together, 1.8 times the pool of 64.0 MiB\n"), "{list}");
    for name in ["b", "c"] {
        fixture.text(&format!("volume rm {name}"), 0);
    }
    assert_eq!(fixture.text("volume ls", 0).lines().count(), 2);
}

#[test]
fn what_two_layers_attempted_is_said_once() {
    let fixture = Fixture::new();
    let error = &fixture.json("image delete 7", 3)["error"];
    assert_eq!(error["message"], "cannot delete image 7: it does not exist");
}

#[test]
fn who_stops_watching_a_task_learns_that_it_goes_on() {
    const TRIES_MAX: usize = 50;
    let fixture = Fixture::new();
    let runs = |task: &serde_json::Value| task["state"] == "running";
    for _ in 0..TRIES_MAX {
        let mut watcher = fixture.spawn("image rehearse");
        // The task may complete before it is observed; then the test tries again.
        while watcher.try_wait().expect("it can be waited for").is_none() {
            let tasks = fixture.json("task list", 0);
            if tasks.as_array().is_some_and(|tasks| tasks.iter().any(runs)) {
                fixture::interrupt(&watcher);
                break;
            }
        }
        let output = watcher.wait_with_output().expect("it ends");
        if output.status.code() == Some(130) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("continues") && said.contains("memlane task cancel"), "{said}");
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    panic!("no task ran for long enough to be seen, {TRIES_MAX} times");
}

#[test]
fn what_does_not_exist_is_exit_code_3() {
    let fixture = Fixture::new();
    for words in ["volume show a", "volume delete a", "volume resize a --size 4K", "detach a"] {
        let error = fixture.json(words, 3);
        assert_eq!(error["error"]["kind"], "not_found", "{words}: {error}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let fixture = Fixture::new();
    for words in ["volume", "volume create a", "volume create a --size 1GB", "volume set a b=c"] {
        assert_eq!(fixture.json(words, 2)["error"]["kind"], "usage", "{words}");
        fixture.text(words, 2);
    }
}

#[test]
fn refusals_are_exit_code_1_and_tell_the_field_apart() {
    let fixture = Fixture::new();
    fixture.json("volume create a --size 16M", 0);
    for (words, kind, field) in [
        ("volume create a --size 16M", "already_exists", "name"),
        ("volume create b --size 4097", "invalid_field", "size"),
        ("attach a", "not_supported", "as"),
        ("attach a --as ublk", "not_supported", "as"),
    ] {
        let error = &fixture.json(words, 1)["error"];
        assert_eq!(error["kind"], kind, "{words}: {error}");
        assert_eq!(error["field"], field, "{words}: {error}");
        let message = error["message"].as_str().expect("a message");
        assert!(!message.starts_with(&format!("{field}: ")), "{words}: {message}");
    }
}

#[test]
fn the_pool_its_events_and_tasks_are_shown() {
    let fixture = Fixture::new();
    assert_eq!(fixture.json("pool show", 0)["max_memory_bytes"], 64 << 20);
    assert!(fixture.text("pool show", 0).contains("80, 90, 95 %"));
    let events = fixture.json("events", 0);
    assert_eq!((&events[0]["id"], &events[0]["kind"]), (&json!(1), &json!("daemon_started")));
    assert_eq!(fixture.json("events --after 1", 0), json!([]));
    assert!(fixture.text("events --after 3", 0).starts_with("ID  TIME"));
    assert_eq!(fixture.json("task list", 0), json!([]));
    assert_eq!(fixture.json("task cancel 1", 3)["error"]["kind"], "not_found");
    assert_eq!(fixture.json("task wait 1", 3)["error"]["kind"], "not_found");
}

#[test]
fn a_daemon_that_is_not_there_is_exit_code_5() {
    let mut fixture = Fixture::new();
    fixture.kill();
    let error = fixture.json("status", 5);
    assert_eq!(error["error"]["kind"], "unreachable");
    fixture.text("volume list", 5);
}

#[test]
fn a_killed_daemon_comes_back_with_its_volumes() {
    let mut fixture = Fixture::new();
    let made = fixture.json("volume create a --size 16M", 0);
    let epoch = fixture.json("status", 0)["run_epoch"].as_u64().expect("a number");
    fixture.kill();
    fixture.start();
    assert_eq!(fixture.json("volume show a", 0)["id"], made["id"]);
    assert_eq!(fixture.json("status", 0)["run_epoch"], epoch + 1);
}

#[test]
fn a_daemon_that_is_asked_to_stop_ends_in_order() {
    let mut fixture = Fixture::new();
    fixture.json("volume create a --size 16M", 0);
    assert_eq!(fixture.stop(), Some(0), "{}", fixture.log());
    assert!(fixture.log().contains("stopped"), "{}", fixture.log());
    assert!(!fixture.log().contains("work in flight"), "{}", fixture.log());
    fixture.start();
    assert_eq!(fixture.json("status", 0)["recovery"], "complete");
    fixture.json("volume show a", 0);
}

#[test]
fn a_second_daemon_is_refused() {
    let fixture = Fixture::new();
    let output = fixture.second_daemon();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("another memlaned"), "{message}");
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_and_leaves_it_alone() {
    let fixture = Fixture::new();
    let events = fixture.events_on_disk();
    let output = fixture.second_daemon_on_the_same_state();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("another memlaned"), "{message}");
    assert!(message.contains("another state-dir"), "{message}");
    assert_eq!(fixture.events_on_disk(), events);
    fixture.json("volume create a --size 16M", 0);
}

#[test]
fn completions_need_no_daemon() {
    let mut fixture = Fixture::new();
    fixture.kill();
    for shell in ["bash", "zsh", "fish"] {
        assert!(fixture.text(&format!("completions {shell}"), 0).contains("memlane"), "{shell}");
    }
}

#[test]
fn the_doctor_needs_no_daemon() {
    let mut fixture = Fixture::new();
    fixture.kill();
    let findings = fixture.json("doctor", 0);
    let checks = findings.as_array().expect("a list");
    assert!(
        checks.iter().any(|it| it["check"] == "kernel" && it["what"].is_string()),
        "{checks:?}"
    );
}

#[test]
fn each_program_has_its_manual_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = fixture::programs_in(folder.path());
    let written =
        std::process::Command::new(programs.join("memlane")).arg("man").arg(folder.path()).output();
    let written = written.expect("the command line runs");
    assert!(written.status.success(), "{written:?}");
    for (page, word) in [
        ("man1/memlane-volume-create.1", "durability"),
        ("man8/memlaned.8", "pool\\-size"),
        ("man8/memlaned.8", ".TH memlaned 8"),
    ] {
        let page = std::fs::read_to_string(folder.path().join(page)).expect("a page");
        assert!(page.contains(word), "{page}");
    }
    // A package with this page would conflict with earlier packages of the console.
    let commands = folder.path().join("man1");
    let of_console = commands.join("memlane-console.1");
    assert!(!of_console.exists(), "a page of a program that is not here");
    assert!(commands.join("memlane-console-token-create.1").exists(), "one of its commands");
    assert!(!commands.join("memlaned.1").exists(), "it is a daemon");
}

#[test]
fn a_socket_may_come_from_the_environment() {
    let fixture = Fixture::new();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_memlane"))
        .arg("status")
        .env("MEMLANE_SOCKET", fixture.socket())
        .output()
        .expect("the command line runs");
    assert!(output.status.success(), "{output:?}");
}
