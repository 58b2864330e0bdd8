//! Tests of commands that use a broker, without a broker.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn memlane(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memlane"))
        .args(words.split_whitespace())
        .env_remove("MEMLANE_BROKER_USER")
        .env_remove("MEMLANE_BROKER_PASSWORD")
        .stdin(Stdio::null())
        .output()
        .expect("the command line runs")
}

/// An address at which no process listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn a_broker_that_is_not_there_is_exit_code_5_and_named() {
    let address = nowhere();
    for words in [
        "topic list",
        "topic create t",
        "topic show t",
        "topic set t a=b",
        "topic delete t",
        "group list",
        "group show g",
        "group reset g --to latest",
        "group delete g",
        "produce t",
        "consume t",
        "consume t --group g",
        "user list",
        "user delete u",
        "acl list",
        "acl add u read --topic t",
        "acl remove u",
    ] {
        let output = memlane(&format!("{words} --broker {address}"));
        assert_eq!(output.status.code(), Some(5), "{words}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&address) && said.contains("refused"), "{words}: {said}");
        assert!(output.stdout.is_empty(), "{words}: {output:?}");

        let output = memlane(&format!("{words} --json --broker {address}"));
        assert_eq!(output.status.code(), Some(5), "{words}: {output:?}");
        let error: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        assert_eq!(error["error"]["kind"], "unreachable", "{words}: {error}");
    }
}

#[test]
fn what_cannot_be_asked_is_exit_code_2() {
    for words in [
        "topic list --broker localhost",
        "topic list --sasl-user u",
        "user set u",
        "topic create t --config a=1 --config a=2",
        "acl add u read",
    ] {
        let output = memlane(words);
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
    }
}

#[test]
fn passwords_are_read_from_files_only_where_these_hold_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    for contents in [None, Some(""), Some("\nsecret")] {
        if let Some(contents) = contents {
            std::fs::write(&file, contents).expect("a file");
        }
        let words = format!("topic list --sasl-user u --password-file {}", file.display());
        let output = memlane(&words);
        assert_eq!(output.status.code(), Some(1), "{contents:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot read a password") && !said.contains("secret"), "{said}");
    }
}
