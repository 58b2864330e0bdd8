//! Accepts connections up to a limit. At the limit, a new connection evicts one whose client is not
//! identified yet.

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

/// Delay after an error of the listener, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum time of a TLS handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Time for connections to send their replies in flight when the broker stops. Replies that wait
/// for other clients, such as members of a group, are not sent.
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
        // Done before the task starts, so that connections are in order of arrival.
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
                () = drained(&broker) => tracing::debug!(%address, "connection closed: shutdown"),
            }
            Counters::count(&broker.counters.connections_ended);
            drop(broker);
            drop(alive);
        });
    }
    drop((listener, alive));
    // Nothing is sent: the channel closes with the last connection.
    let _none = ended.recv().await;
}

/// Waits until the broker stops, and then for the drain time.
async fn drained(broker: &Broker) {
    let mut stops = broker.stops.clone();
    // If the sender is gone, the broker has ended.
    drop(stops.wait_for(|stops| *stops).await);
    tokio::time::sleep(DRAIN_TIME_MAX).await;
}

/// Performs the TLS handshake if enabled, identifies the client, and serves it.
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

/// Identifies a client that need not log in by its certificate, or as anonymous.
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
