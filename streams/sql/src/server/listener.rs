//! Takes connections in, as many as the limit allows. Whoever comes when there are as many takes
//! the place of one whose client is not known yet.

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

/// After an error of the listener, such as no free descriptors, it pauses.
const PAUSE: Duration = Duration::from_millis(100);

/// When the server stops, connections have so long to tell their clients.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(3);

/// Connections beyond the limit that are told so at a time, and how long that may take. Others are
/// closed at once.
const REFUSED_COUNT_MAX: usize = 64;
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves clients until `stop` says so and all connections have ended.
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
                tracing::warn!(%error, "cannot take a connection for SQL");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some((seat, end)) = seats.try_enter() else {
            Counters::count(&server.counters.connections_refused);
            tracing::warn!(%address, "refused: there are as many SQL connections as allowed");
            if let Ok(seat) = Arc::clone(&refused).try_acquire_owned() {
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    let _seat = seat;
                    let told = startup::refuse(&server, stream);
                    // Whoever does not listen is not told.
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
                // What a connection has is its own, and goes with it.
                ended = contain_future(serving) => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%address, %error, "SQL connection ended"),
                    Err(panic) => {
                        Counters::count(&server.counters.faults);
                        let fault = text_of(&panic);
                        tracing::error!(%address, fault, "SQL connection ended by a fault");
                    }
                },
                _end = end => {
                    Counters::count(&server.counters.connections_refused);
                    tracing::warn!(
                        %address,
                        "ended before its client was known: there are as many SQL connections as \
                         allowed"
                    );
                }
                () = drained(stops) => tracing::debug!(%address, "SQL connection given up"),
            }
            Counters::count(&server.counters.connections_ended);
            drop(alive);
        });
    }
    drop((listener, alive));
    // Nothing is ever sent: this ends with the last connection.
    let _none = ended.recv().await;
}

/// Waits until the server stops, and then as long as connections may take to end.
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
