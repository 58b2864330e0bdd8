//! Connections: accepted whatever the system lacks, and bounded in number and in time.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::sync::Semaphore;

/// How long to pause after the system had no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Waits for the next connection. When `next` fails, such as for want of a descriptor, it is asked
/// again after a pause. The log calls the connection `name`.
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

/// Serves each connection that `next` gives in a task of its own, `count_max` of them at once:
/// others wait to be accepted. It ends when it is dropped, and its connections go on.
pub async fn serve_all<C, E, N, S>(
    name: &'static str,
    count_max: usize,
    next: impl Fn() -> N,
    serve: impl Fn(C) -> S,
) where
    E: Display,
    N: Future<Output = io::Result<C>>,
    S: Future<Output = Result<(), E>> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(count_max));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let serving = serve(accept(name, &next).await);
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "{name} ended");
            }
            drop(permit);
        });
    }
}

/// HTTP/1.1 of which a connection may take so long to send the head of its next request: idle ones
/// are closed.
pub fn http1_limited(head_time_max: Duration) -> http1::Builder {
    let mut http1 = http1::Builder::new();
    http1.timer(TokioTimer::new()).header_read_timeout(head_time_max);
    http1
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
        let accepted = Cell::new(0);
        let next = || {
            accepted.set(accepted.get() + 1);
            std::future::ready(Ok(accepted.get()))
        };
        let (end, ended) = mpsc::channel::<()>(1);
        let (begun, mut begins) = mpsc::unbounded_channel();
        let ended = Arc::new(tokio::sync::Mutex::new(ended));
        let serve = |number: u32| {
            let (begun, ended) = (begun.clone(), Arc::clone(&ended));
            async move {
                begun.send(number).expect("the test listens");
                ended.lock().await.recv().await.ok_or("the test is over")
            }
        };
        let checking = async {
            assert_eq!((begins.recv().await, begins.recv().await), (Some(1), Some(2)));
            assert_eq!(accepted.get(), 2);
            end.send(()).await.expect("one waits");
            assert_eq!(begins.recv().await, Some(3));
            assert_eq!(accepted.get(), 3);
        };
        tokio::select! {
            () = serve_all("connection", 2, next, serve) => {}
            () = checking => {}
        }
    }
}
