//! Periodic messages: keep-alive messages to the service manager while the threads that serve
//! clients make progress, and warnings of certificates that expire.

use std::sync::Arc;
use std::time::Duration;

use crate::access_rules::AccessRules;
use crate::clock::unix_seconds;

/// Interval between warnings of certificates.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of messages per watchdog interval.
const LOOKS: u32 = 4;

/// Sends all periodic messages, until it is dropped.
pub(crate) async fn send_notices(rules: Arc<AccessRules>) {
    tokio::join!(keep_alive(), warn_of_certificates(rules));
}

/// Sends messages periodically on the runtime that serves clients, if the service manager has a
/// watchdog. If all threads are blocked on the storage, no message is sent.
async fn keep_alive() {
    let Some(time_max) = service_manager::watchdog_time() else { return };
    loop {
        service_manager::alive();
        tokio::time::sleep(time_max / LOOKS).await;
    }
}

/// Warns once a day of certificates that have expired or expire soon.
async fn warn_of_certificates(rules: Arc<AccessRules>) {
    loop {
        rules.warn_of_certificates(unix_seconds());
        tokio::time::sleep(WARNING_INTERVAL).await;
    }
}
