//! Tells the service manager that the threads that serve clients get on with their work.

/// Looks within the time that the service manager waits.
const LOOKS: u32 = 4;

/// Says so again and again, on the runtime that serves clients, if the service manager wants to
/// know. Threads that all wait for the storage say nothing.
pub(crate) async fn keep_alive() {
    let Some(time_max) = service_manager::watchdog_time() else { return };
    loop {
        service_manager::alive();
        tokio::time::sleep(time_max / LOOKS).await;
    }
}
