//! HTTP/1.1 connections that may be closed in favour of new ones while they have no request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioTimer;
use shares::Owner;

use crate::seats::Seat;

/// HTTP/1.1 with a time limit on the head of the next request, which also closes idle connections.
pub fn http1_limited(head_time_max: Duration) -> http1::Builder {
    let mut http1 = http1::Builder::new();
    http1.timer(TokioTimer::new()).header_read_timeout(head_time_max);
    http1
}

/// Serves a connection with a seat. The seat is held from the end of a request until the response
/// is passed to the connection. At other times it is spare, under the owner `peer`.
pub fn serve_http1<I, S, B>(
    http1: &http1::Builder,
    stream: I,
    service: S,
    (seat, peer): (Arc<Seat>, Owner),
) -> http1::Connection<I, Seated<S>>
where
    I: Read + Write + Unpin,
    S: Service<Request<ArrivingBody>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    seat.spare(peer);
    http1.serve_connection(stream, Seated { service, seat, peer })
}

/// A service that holds the seat of its connection while it serves a request.
#[derive(Debug)]
pub struct Seated<S> {
    service: S,
    seat: Arc<Seat>,
    peer: Owner,
}

/// Body of a request. When the body is complete, the seat is held.
#[derive(Debug)]
pub struct ArrivingBody {
    body: Incoming,
    seat: Arc<Seat>,
}

/// Body of a response. The connection is busy until it is dropped.
#[derive(Debug)]
pub struct SeatedBody<B> {
    body: B,
    _busy: Busy,
}

/// Guard of a busy seat. Dropping it makes the seat spare again.
#[derive(Debug)]
struct Busy {
    seat: Arc<Seat>,
    peer: Owner,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.seat.spare(self.peer);
    }
}

impl<S, B> Service<Request<Incoming>> for Seated<S>
where
    S: Service<Request<ArrivingBody>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<SeatedBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let busy = Busy { seat: Arc::clone(&self.seat), peer: self.peer };
        let request = request.map(|body| ArrivingBody { body, seat: Arc::clone(&self.seat) });
        request.body().hold_if_whole();
        let answering = self.service.call(request);
        Box::pin(async move {
            let answer = answering.await?;
            Ok(answer.map(|body| SeatedBody { body, _busy: busy }))
        })
    }
}

impl ArrivingBody {
    /// If the seat was taken by another connection, this connection is closed.
    fn hold_if_whole(&self) {
        let _is_held = self.body.is_end_stream() && self.seat.hold(Owner::NOBODY);
    }
}

impl Body for ArrivingBody {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        this.hold_if_whole();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body + Unpin> Body for SeatedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;

    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::serve_all;

    /// Effectively no time limit, because the tests do not wait for it.
    const HEAD_TIME_MAX: Duration = Duration::from_secs(1 << 30);
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// A response body that ends when the sender is used.
    struct Awaited(oneshot::Receiver<()>);

    impl Body for Awaited {
        type Data = io::Cursor<&'static [u8]>;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            Pin::new(&mut self.0).poll(context).map(|_| None)
        }
    }

    /// Serves with two seats while `work` connects through the first channel. The second channel
    /// passes the requests that have started.
    async fn with_two_places<W: Future<Output = ()>>(
        work: impl FnOnce(
            mpsc::UnboundedSender<DuplexStream>,
            mpsc::UnboundedReceiver<oneshot::Sender<()>>,
        ) -> W,
    ) {
        let (connect, connecting) = mpsc::unbounded_channel::<DuplexStream>();
        let (begin, begun) = mpsc::unbounded_channel();
        let connecting = Arc::new(tokio::sync::Mutex::new(connecting));
        let next = || {
            let connecting = Arc::clone(&connecting);
            async move { connecting.lock().await.recv().await.ok_or(io::ErrorKind::Other.into()) }
        };
        let serve = |stream, seat| {
            let begin = begin.clone();
            let service = service_fn(move |_: Request<ArrivingBody>| {
                let (end, ended) = oneshot::channel();
                begin.send(end).expect("the test listens");
                std::future::ready(Ok::<_, Infallible>(Response::new(Awaited(ended))))
            });
            let http1 = http1_limited(HEAD_TIME_MAX);
            serve_http1(&http1, TokioIo::new(stream), service, (seat, Owner(1)))
        };
        tokio::select! {
            () = serve_all("connection", 2, next, serve) => {}
            () = work(connect, begun) => {}
        }
    }

    async fn is_closed(stream: &mut DuplexStream) -> bool {
        matches!(stream.read(&mut [0; 256]).await, Ok(0) | Err(_))
    }

    #[tokio::test]
    async fn connections_that_send_no_whole_request_make_room_for_one_that_does() {
        for sent in ["", "GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"] {
            with_two_places(|connect, mut begun| async move {
                let connect = || {
                    let (ours, theirs) = duplex(1 << 10);
                    connect.send(theirs).expect("it is served");
                    ours
                };
                let mut silent = Vec::new();
                for _ in 0..20 {
                    let mut stream = connect();
                    stream.write_all(sent.as_bytes()).await.expect("it fits");
                    silent.push(stream);
                }
                let mut asking = connect();
                asking.write_all(REQUEST).await.expect("it fits");
                let mut answers = Vec::new();
                let mut head = [0; 15];
                tokio::select! {
                    // Requests without their bodies may also start.
                    () = async {
                        while let Some(it) = begun.recv().await {
                            answers.push(it);
                        }
                    } => {}
                    read = asking.read_exact(&mut head) => {
                        read.expect("an answer");
                    }
                }
                assert_eq!(&head, b"HTTP/1.1 200 OK", "after {sent:?}");
            })
            .await;
        }
    }

    #[tokio::test]
    async fn a_connection_that_is_answered_keeps_its_place_until_the_answer_is_over() {
        with_two_places(|connect, mut begun| async move {
            let connect = || {
                let (ours, theirs) = duplex(1 << 10);
                connect.send(theirs).expect("it is served");
                ours
            };
            let (mut first, mut second) = (connect(), connect());
            first.write_all(REQUEST).await.expect("it fits");
            let end_first = begun.recv().await.expect("it begins");
            let mut third = connect();
            third.write_all(REQUEST).await.expect("it fits");
            let _end_third = begun.recv().await.expect("it begins");
            assert!(is_closed(&mut second).await, "it asked for nothing");
            let mut fourth = connect();
            fourth.write_all(REQUEST).await.expect("it fits");
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(begun.try_recv().is_err(), "both places are held");
            drop(end_first);
            assert!(begun.recv().await.is_some(), "the first one is to spare");
        })
        .await;
    }
}
