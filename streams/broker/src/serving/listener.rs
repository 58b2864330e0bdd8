//! Takes connections in, as many as the limit allows.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::client::Client;
use super::connection;
use crate::broker::Broker;

/// After an error of the listener, such as no free descriptors, it pauses.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves clients until `stop` says so. Connections that there are then end by themselves.
pub(crate) async fn listen(
    broker: Arc<Broker>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(broker.limits.connection_count));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stops| *stops) => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(seat) = Arc::clone(&room).try_acquire_owned() else {
            tracing::warn!(%address, "refused: there are as many connections as allowed");
            continue;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%address, %error, "cannot turn off delays");
        }
        let broker = Arc::clone(&broker);
        let mut stop = stop.clone();
        tokio::spawn(async move {
            let _seat = seat;
            let serving = connection::serve(broker, Client { address }, stream);
            tokio::select! {
                served = serving => {
                    if let Err(ending) = served {
                        tracing::debug!(%address, %ending, "connection ended");
                    }
                }
                _ = stop.wait_for(|stops| *stops) => {}
            }
        });
    }
}
