//! Keep-alive messages to the service manager while the threads that serve clients make progress.

/// Number of messages per watchdog interval.
const LOOKS: u32 = 4;

/// Sends messages periodically on the runtime that serves clients, if the service manager has a
/// watchdog. If all threads are blocked on the storage, no message is sent.
pub(crate) async fn keep_alive() {
    let Some(time_max) = service_manager::watchdog_time() else { return };
    loop {
        service_manager::alive();
        tokio::time::sleep(time_max / LOOKS).await;
    }
}
