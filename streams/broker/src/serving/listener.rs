//! Takes connections in, as many as the limit allows. Whoever comes when there are as many takes
//! the place of one whose client is not known yet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{QuotaError, owner_at};
use anyhow::Context;
use program::{Seat, Seats};
use tls::ClientCertificate;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::client::Client;
use super::connection;
use crate::broker::Broker;
use crate::operation::Counters;

/// After an error of the listener, such as no free descriptors, it pauses.
const PAUSE: Duration = Duration::from_millis(100);

/// A client has so long for the handshake of TLS.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// When the broker stops, connections have so long to send the answers that are in flight. One
/// whose answer waits for others, as a group's member does, has none to send.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(3);

/// Serves clients until the broker stops and all connections have ended.
pub(crate) async fn listen(broker: Arc<Broker>, listener: TcpListener) {
    let mut stop = broker.stops.clone();
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let seats = Seats::new(broker.limits.connection_count);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stops| *stops) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some((seat, end)) = seats.try_enter() else {
            Counters::count(&broker.counters.connections_refused);
            tracing::warn!(%address, "connection refused: the limit on connections is reached");
            continue;
        };
        // Here, so that the oldest is who came first, whenever its task begins.
        seat.spare(owner_at(address.ip()));
        let broker = Arc::clone(&broker);
        let alive = alive.clone();
        tokio::spawn(async move {
            Counters::count(&broker.counters.connections_accepted);
            tokio::select! {
                served = serve(Arc::clone(&broker), stream, (address, seat)) => {
                    if let Err(ending) = served {
                        let error = format!("{ending:#}");
                        match ending.is::<QuotaError>() {
                            true => {
                                Counters::count(&broker.counters.connections_refused);
                                tracing::warn!(%address, error, "connection refused");
                            }
                            false => tracing::debug!(%address, error, "connection ended"),
                        }
                    }
                }
                _end = end => {
                    Counters::count(&broker.counters.connections_refused);
                    tracing::warn!(
                        %address,
                        "connection closed before authentication: the limit on connections is \
                         reached"
                    );
                }
                () = drained(&broker) => tracing::debug!(%address, "connection given up"),
            }
            Counters::count(&broker.counters.connections_ended);
            drop(broker);
            drop(alive);
        });
    }
    drop((listener, alive));
    // Nothing is ever sent: this ends with the last connection.
    let _none = ended.recv().await;
}

/// Waits until the broker stops, and then as long as connections may take to end.
async fn drained(broker: &Broker) {
    let mut stops = broker.stops.clone();
    // A broker whose stop can no longer be said has ended.
    drop(stops.wait_for(|stops| *stops).await);
    tokio::time::sleep(DRAIN_TIME_MAX).await;
}

/// Encrypts the connection if clients are served so, and finds out who the client is.
async fn serve(
    broker: Arc<Broker>,
    stream: TcpStream,
    (address, seat): (SocketAddr, Arc<Seat>),
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let client = Client::new(address, seat);
    let Some(acceptor) = broker.rules.tls() else {
        identify(&broker, &client, None)?;
        return Ok(connection::serve(broker, client, stream).await?);
    };
    let accepted = tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream)).await;
    let stream = accepted.context("timed out waiting for the TLS handshake")??;
    let certificate = ClientCertificate::of(stream.get_ref().1);
    identify(&broker, &client, certificate.as_ref())?;
    Ok(connection::serve(broker, client, stream).await?)
}

/// A client that does not log in is known by its certificate, or is anonymous.
fn identify(
    broker: &Broker,
    client: &Client,
    certificate: Option<&ClientCertificate>,
) -> anyhow::Result<()> {
    if let Some(principal) = broker.rules.policy.principal(certificate)? {
        client.identify(broker, principal)?;
    }
    Ok(())
}
