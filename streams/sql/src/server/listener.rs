//! Accepts connections up to the limit. At the limit, a new connection replaces one that is not
//! authenticated yet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::owner_at;
use program::{Seat, Seats};
use service_manager::{contain_future, text_of};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};

use super::counters::Counters;
use super::shared::{Server, stopped};
use super::startup;

/// Pause after an error of the listener, such as no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Time limit for connections to notify their clients at shutdown.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(3);

/// Maximum number of connections beyond the limit that receive an error message at once, and the
/// time limit for that. Further ones are closed immediately.
const REFUSED_COUNT_MAX: usize = 64;
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves clients until `stop` is set and all connections have ended.
pub async fn serve(server: Arc<Server>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let seats = Seats::new(server.limits.connection_count);
    let refused = Arc::new(Semaphore::new(REFUSED_COUNT_MAX));
    let stops = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a SQL connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some((seat, end)) = seats.try_enter() else {
            Counters::count(&server.counters.connections_refused);
            tracing::warn!(%address, "rejected a SQL connection: too many SQL connections");
            if let Ok(seat) = Arc::clone(&refused).try_acquire_owned() {
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    let _seat = seat;
                    let told = startup::refuse(&server, stream);
                    // Clients that do not read in time are disconnected without the message.
                    drop(tokio::time::timeout(REFUSAL_TIME_MAX, told).await);
                });
            }
            continue;
        };
        seat.spare(owner_at(address.ip()));
        let (server, stops, alive) = (Arc::clone(&server), stops.clone(), alive.clone());
        tokio::spawn(async move {
            Counters::count(&server.counters.connections_accepted);
            let serving = serve_one(&server, stream, (address, seat), stops.clone());
            tokio::select! {
                // A connection's state is private and is dropped after a panic.
                ended = contain_future(serving) => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%address, %error, "SQL connection closed"),
                    Err(panic) => {
                        Counters::count(&server.counters.faults);
                        let fault = text_of(&panic);
                        tracing::error!(%address, fault, "SQL connection closed by a panic");
                    }
                },
                _end = end => {
                    Counters::count(&server.counters.connections_refused);
                    tracing::warn!(
                        %address,
                        "closed a SQL connection before authentication: too many SQL connections"
                    );
                }
                () = drained(stops) => tracing::debug!(%address, "SQL connection closed: shutdown"),
            }
            Counters::count(&server.counters.connections_ended);
            drop(alive);
        });
    }
    drop((listener, alive));
    // Nothing is ever sent: the channel closes when the last connection ends.
    let _none = ended.recv().await;
}

/// Waits for shutdown, and then for the time limit of open connections.
async fn drained(mut stops: watch::Receiver<bool>) {
    stopped(&mut stops).await;
    tokio::time::sleep(DRAIN_TIME_MAX).await;
}

async fn serve_one(
    server: &Arc<Server>,
    stream: TcpStream,
    seat: (SocketAddr, Arc<Seat>),
    stops: watch::Receiver<bool>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    startup::serve(server, stream, seat, stops).await
}
