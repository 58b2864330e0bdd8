//! Snapshots of the daemon every second, shared by all browsers, and none without browsers.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use serde_json::Value;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::time::MissedTickBehavior;

use crate::backend::Backend;

const INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for a snapshot.
const LOOK_TIME_MAX: Duration = Duration::from_secs(5);

/// Snapshot of the daemon as server-sent events, formatted once for all browsers.
#[derive(Debug)]
pub(crate) struct Seen {
    everything: Bytes,
    state: &'static str,
    /// Names of volumes and their JSON, or `None` if the daemon is down.
    volumes: Option<Vec<(String, String)>>,
}

impl Seen {
    fn of_daemon(pool: &Value, volumes: &[Value], tasks: &Value) -> Self {
        let name_of = |it: &Value| it["name"].as_str().unwrap_or_default().to_owned();
        let volumes = volumes.iter().map(|it| (name_of(it), it.to_string())).collect();
        let mut seen = Self { everything: Bytes::new(), state: "up", volumes: Some(volumes) };
        let mut text = seen.text_of(|_| true);
        add_event(&mut text, "pool", &pool.to_string());
        add_event(&mut text, "tasks", &tasks.to_string());
        seen.everything = text.into();
        seen
    }

    fn nothing() -> Self {
        let mut seen = Self { everything: Bytes::new(), state: "down", volumes: None };
        seen.everything = seen.text_of(|_| true).into();
        seen
    }

    /// Events for unrestricted users.
    pub(crate) fn everything(&self) -> Bytes {
        self.everything.clone()
    }

    /// Events for users restricted to projects: only their volumes.
    pub(crate) fn volumes(&self, may_see: impl Fn(&str) -> bool) -> Bytes {
        self.text_of(may_see).into()
    }

    fn text_of(&self, may_see: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        add_event(&mut text, "daemon", &format!("{{\"state\":\"{}\"}}", self.state));
        if let Some(volumes) = &self.volumes {
            let seen = volumes.iter().filter(|(name, _)| may_see(name));
            let seen: Vec<_> = seen.map(|(_, text)| text.as_str()).collect();
            add_event(&mut text, "volumes", &format!("[{}]", seen.join(",")));
        }
        text
    }
}

/// Appends a server-sent event (`text/event-stream`). The JSON has no line breaks.
fn add_event(text: &mut String, name: &str, data: &str) {
    write!(text, "event: {name}\ndata: {data}\n\n").expect("a string takes all");
}

/// Takes snapshots while there are watchers.
#[derive(Debug)]
pub(crate) struct Watch(Sender<Arc<Seen>>);

/// A watcher of snapshots.
#[derive(Debug)]
pub(crate) struct Watcher(Receiver<Arc<Seen>>);

impl Watch {
    pub(crate) fn begin(daemon: Arc<Backend>) -> Self {
        let (told, _) = watch::channel(Arc::new(Seen::nothing()));
        tokio::spawn(look(daemon, told.clone()));
        Self(told)
    }

    pub(crate) fn join(&self) -> Watcher {
        Watcher(self.0.subscribe())
    }
}

impl Watcher {
    /// Returns the next snapshot, or `None` at shutdown.
    pub(crate) async fn next(&mut self) -> Option<Arc<Seen>> {
        self.0.changed().await.ok()?;
        Some(Arc::clone(&self.0.borrow_and_update()))
    }
}

async fn look(daemon: Arc<Backend>, told: Sender<Arc<Seen>>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if told.receiver_count() == 0 {
            continue;
        }
        // A daemon that does not respond counts as down.
        let seen = tokio::time::timeout(LOOK_TIME_MAX, see(&daemon)).await.ok().flatten();
        told.send_replace(Arc::new(seen.unwrap_or_else(Seen::nothing)));
    }
}

/// Takes a snapshot. Returns `None` if a request failed.
async fn see(daemon: &Backend) -> Option<Seen> {
    let pool: Value = daemon.get(api::POOL_PATH).await.ok()?;
    let volumes: Vec<Value> = daemon.get(api::VOLUMES_PATH).await.ok()?;
    let tasks: Value = daemon.get(api::TASKS_PATH).await.ok()?;
    Some(Seen::of_daemon(&pool, &volumes, &tasks))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_who_see_everything_are_told_the_same_bytes_and_others_their_volumes() {
        let volumes = [json!({"name": "shop-a", "size": 1}), json!({"name": "b", "note": "x\ny"})];
        let seen = Seen::of_daemon(&json!({"size": 2}), &volumes, &json!([]));
        let (one, other) = (seen.everything(), seen.everything());
        assert_eq!(one.as_ptr(), other.as_ptr(), "it is written once");
        let all = "event: daemon\ndata: {\"state\":\"up\"}\n\nevent: volumes\n\
                   data: [{\"name\":\"shop-a\",\"size\":1},{\"name\":\"b\",\"note\":\"x\\ny\"}]\n\n\
                   event: pool\ndata: {\"size\":2}\n\nevent: tasks\ndata: []\n\n";
        assert_eq!(one, all);
        let shop = seen.volumes(|it| it.starts_with("shop-"));
        let some = "event: daemon\ndata: {\"state\":\"up\"}\n\nevent: volumes\n\
                    data: [{\"name\":\"shop-a\",\"size\":1}]\n\n";
        assert_eq!(shop, some);
        let down = "event: daemon\ndata: {\"state\":\"down\"}\n\n";
        assert_eq!(Seen::nothing().everything(), down);
        assert_eq!(Seen::nothing().volumes(|_| true), down);
    }
}
