//! One front end, from its connection to its disconnection.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adaptive_polling::Waiter;
use vhost::vhost_user::message::FrontendReq;
use vhost::vhost_user::{BackendReqHandler, Error, VhostUserProtocolFeatures};

use crate::channel::{self, Header};
use crate::front::Front;
use crate::ring_set::RingSet;
use crate::shared::Shared;
use crate::silence::Probation;
use crate::threads::spawn;
use crate::worker::Worker;

/// Interval of attempts to free workers that block because the front end does not read its call
/// eventfds.
const FREE_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) struct Connection {
    socket: UnixStream,
    probation: Probation,
    handler: BackendReqHandler<Mutex<Front>>,
    front: Arc<Mutex<Front>>,
    ring_sets: Vec<Arc<RingSet>>,
    /// Carries no messages. Disconnects when the last worker has ended.
    workers: Receiver<()>,
}

impl Connection {
    /// Starts the workers.
    pub(crate) fn start(shared: &Shared, socket: UnixStream) -> io::Result<Self> {
        let worker_count = shared.worker_counters.len();
        let slot_count = usize::from(shared.queue_count).div_ceil(worker_count);
        let ring_sets = (0..worker_count).map(|_| RingSet::new(slot_count).map(Arc::new));
        let ring_sets = ring_sets.collect::<io::Result<Vec<_>>>()?;
        let (alive, workers) = mpsc::channel();
        let [of_control, ..] = &shared.other_counters;
        let front = Arc::new(Mutex::new(Front::new(
            Arc::clone(&shared.device),
            ring_sets.clone(),
            shared.queue_count,
            Arc::clone(of_control),
            Arc::clone(&shared.log),
        )));
        let handler = BackendReqHandler::from_stream(socket.try_clone()?, Arc::clone(&front));
        let probation = Probation::begin(&socket)?;
        let connection = Self { socket, probation, handler, front, ring_sets, workers };
        for (rings, counters) in connection.ring_sets.iter().zip(&shared.worker_counters) {
            let worker = Worker {
                rings: Arc::clone(rings),
                late: Arc::clone(&shared.late),
                server: shared.server(counters),
                waiter: Waiter::new(Arc::clone(&shared.spin_permits), shared.spin_max),
            };
            if let Err(error) = spawn("vhost-serve", &alive, move || worker.run()) {
                connection.ring_sets.iter().for_each(|rings| rings.end());
                return Err(error);
            }
        }
        Ok(connection)
    }

    /// Serves messages until the front end disconnects, then ends the workers and waits until no
    /// late work of this front end can change data.
    pub(crate) fn serve(mut self, shared: &Shared, listener: BorrowedFd<'_>) {
        tracing::debug!("vhost-user front end connected");
        let ended = loop {
            match self.serve_message(shared, listener) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
        };
        match ended {
            Some(error) if !shared.stop.is_given() => {
                if let Some(left_out) = shared.log.admit() {
                    tracing::warn!(%error, left_out, "closed a vhost-user connection");
                }
            }
            _ => tracing::debug!("vhost-user front end disconnected"),
        }
        self.ring_sets.iter().for_each(|rings| rings.end());
        while self.workers.recv_timeout(FREE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.ring_sets.iter().for_each(|rings| rings.free_worker());
        }
        shared.late.forget();
    }

    /// Waits for one message and serves it. Returns `false` if the front end has disconnected.
    fn serve_message(&mut self, shared: &Shared, listener: BorrowedFd<'_>) -> Result<bool, Error> {
        self.probation.wait(&self.socket, listener).map_err(Error::SocketError)?;
        let Some(header) = channel::look_at_header(&self.socket).map_err(Error::SocketError)?
        else {
            return Ok(false);
        };
        if self.serve_status(header).map_err(Error::SocketError)? {
            return Ok(true);
        }
        let changes = match header.is(FrontendReq::SET_BACKEND_REQ_FD) {
            true => channel::look_at_descriptor(&self.socket).map_err(Error::SocketError)?,
            false => None,
        };
        match self.handler.handle_request() {
            Ok(()) => {}
            // The library has replied with the error if the front end asked for replies.
            Err(Error::ReqHandlerError(_)) => return Ok(true),
            Err(Error::Disconnected) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.probation.note(header, &self.socket).map_err(Error::SocketError)?;
        // The library has checked that the descriptor is a socket.
        changes.into_iter().for_each(|changes| shared.set_changes(UnixStream::from(changes)));
        Ok(true)
    }

    /// Serves `SET_STATUS` and `GET_STATUS`, which the library does not support.
    fn serve_status(&self, header: Header) -> io::Result<bool> {
        let (sets, gets) = (header.is(FrontendReq::SET_STATUS), header.is(FrontendReq::GET_STATUS));
        if !(sets || gets) || !self.front().has_agreed_to(VhostUserProtocolFeatures::STATUS) {
            return Ok(false);
        }
        let number = channel::receive_number(&self.socket, header)?;
        if gets {
            let status = self.front().status();
            channel::send_number(&self.socket, header, status)?;
        } else {
            self.front().set_status(number);
            if header.needs_reply() {
                channel::send_number(&self.socket, header, 0)?;
            }
        }
        Ok(true)
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().expect("messages are served by one thread, which does not panic")
    }
}
