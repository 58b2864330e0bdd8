//! Connections: the accept loop, with a limit on their number.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::seats::{Seat, Seats};

/// Pause after the system had no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Waits for the next connection. If `next` fails, for example because no descriptor is free, it is
/// called again after a pause. The log calls the connection `name`.
pub async fn accept<C, N>(name: &str, next: impl Fn() -> N) -> C
where
    N: Future<Output = io::Result<C>>,
{
    loop {
        match next().await {
            Ok(connection) => return connection,
            Err(error) => {
                tracing::warn!(%error, "cannot accept {name}s; retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves each connection from `next` in its own task, at most `count_max` concurrently. Beyond
/// that limit, a new connection replaces the oldest idle one, or waits to be accepted until there
/// is one. Dropping the future stops accepting; accepted connections continue.
pub async fn serve_all<C, E, N, S>(
    name: &'static str,
    count_max: usize,
    next: impl Fn() -> N,
    serve: impl Fn(C, Arc<Seat>) -> S,
) where
    E: Display,
    N: Future<Output = io::Result<C>>,
    S: Future<Output = Result<(), E>> + Send + 'static,
{
    let seats = Seats::new(count_max);
    loop {
        let connection = accept(name, &next).await;
        let (seat, end) = seats.enter().await;
        let serving = serve(connection, seat);
        tokio::spawn(async move {
            tokio::select! {
                served = serving => {
                    if let Err(error) = served {
                        tracing::debug!(%error, "{name} ended");
                    }
                }
                _end = end => tracing::debug!("{name} replaced by a newer one"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_failure_to_accept_is_no_end() {
        let tries = Cell::new(0);
        let next = || {
            tries.set(tries.get() + 1);
            let tried = tries.get();
            async move { if tried < 3 { Err(io::ErrorKind::Other.into()) } else { Ok(tried) } }
        };
        assert_eq!(accept("connection", next).await, 3);
    }

    #[tokio::test]
    async fn so_many_connections_are_served_at_once_and_the_next_one_after_one_has_ended() {
        let next = || std::future::ready(Ok(()));
        let (end, ended) = mpsc::channel::<()>(1);
        let (begun, mut begins) = mpsc::unbounded_channel();
        let ended = Arc::new(tokio::sync::Mutex::new(ended));
        let serve = |(), seat: Arc<Seat>| {
            let (begun, ended) = (begun.clone(), Arc::clone(&ended));
            async move {
                begun.send(()).expect("the test listens");
                let ended = ended.lock().await.recv().await;
                drop(seat);
                ended.ok_or("the test is over")
            }
        };
        let checking = async {
            assert_eq!((begins.recv().await, begins.recv().await), (Some(()), Some(())));
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(begins.try_recv().is_err(), "two are served");
            end.send(()).await.expect("one waits");
            assert_eq!(begins.recv().await, Some(()));
        };
        tokio::select! {
            () = serve_all("connection", 2, next, serve) => {}
            () = checking => {}
        }
    }
}
