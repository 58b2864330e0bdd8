//! A device that this process serves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use adaptive_polling::SpinPermits;
use block_device::BlockDevice;
use export_kit::{AttachError, Counters, Traffic};
use kernel::{UblkChannel, UblkDevice};

use crate::bounded::until;
use crate::late::{Inbox, LateWork};
use crate::queue_thread::{self, Beginning, Shared, Start, StartSignal};

/// Maximum time for the threads of a device to start, and to stop.
const THREADS_TIME_MAX: Duration = Duration::from_secs(20);

/// Threads of a device, and their shared state.
pub(crate) struct Served {
    id: u32,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    /// Starts to serve all queues of a device. On an error, no queue is served.
    pub(crate) fn start(
        channel: UblkChannel,
        description: UblkDevice,
        device: Arc<dyn BlockDevice>,
        permits: Arc<SpinPermits>,
    ) -> Result<Self, AttachError> {
        let id = description.id;
        let failed = |error| AttachError::of_call(format!("serve ublk device {id}"), error);
        let queue_count = description.queue_count;
        let inboxes = (0..queue_count).map(|_| Inbox::new()).collect::<io::Result<Arc<[Inbox]>>>();
        let inboxes = inboxes.map_err(failed)?;
        let shared = Arc::new(Shared {
            late: LateWork::new(Arc::clone(&device), Arc::clone(&inboxes)),
            counters: (0..queue_count).map(|_| Counters::default()).collect(),
            device,
            inboxes,
            permits,
            is_left: AtomicBool::new(false),
        });
        let mut served = Self { id, shared, threads: Vec::new() };
        match served.start_threads(Arc::new(channel), queue_count) {
            Ok(()) => Ok(served),
            Err(error) => {
                served.leave();
                Err(failed(error))
            }
        }
    }

    fn start_threads(&mut self, channel: Arc<UblkChannel>, queue_count: u16) -> io::Result<()> {
        let start = Arc::new(StartSignal::default());
        let (told, heard) = mpsc::sync_channel(2 * usize::from(queue_count));
        for number in 0..queue_count {
            let beginning = Beginning { told: told.clone(), start: Arc::clone(&start) };
            let (channel, shared) = (Arc::clone(&channel), Arc::clone(&self.shared));
            let work = move || {
                queue_thread::run(&channel, number, &shared, &beginning);
                // The last reference to the channel must be dropped before the thread is considered
                // finished.
                drop(channel);
            };
            let name = format!("ublk{}-{number}", self.id);
            match thread::Builder::new().name(name).spawn(work) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    start.get_or_init(|| Start::Abandon);
                    return Err(error);
                }
            }
        }
        let prepared = hear_all(&heard, queue_count);
        start.get_or_init(|| if prepared.is_ok() { Start::Serve } else { Start::Abandon });
        prepared?;
        hear_all(&heard, queue_count)
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.shared.device
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.shared.counters.iter().map(Counters::traffic).sum()
    }

    /// Asks the threads to leave the device to its next server, without waiting. The kernel keeps
    /// unanswered requests.
    pub(crate) fn begin_to_leave(&self) {
        // PAIRS-WITH: QueueThread::serve, "the device is left".
        self.shared.is_left.store(true, Ordering::Release);
        self.shared.inboxes.iter().for_each(|inbox| inbox.waker().wake());
    }

    /// Leaves the device to its next server, and waits for the threads.
    pub(crate) fn leave(mut self) {
        self.begin_to_leave();
        self.end();
    }

    /// Ends the threads of a device that the driver has stopped.
    pub(crate) fn finish(mut self) {
        self.end();
    }

    /// Waits for the threads. Those that wait for a disk are abandoned, because they may never
    /// return.
    fn end(&mut self) {
        let are_done = || self.threads.iter().all(JoinHandle::is_finished).then_some(());
        if until(THREADS_TIME_MAX, are_done).is_none() {
            tracing::error!(id = self.id, "abandoning threads of a ublk device that do not stop");
        }
        self.shared.late.close();
    }
}

/// Receives the reports of this number of threads.
fn hear_all(heard: &Receiver<io::Result<()>>, count: u16) -> io::Result<()> {
    (0..count).try_for_each(|_| match heard.recv_timeout(THREADS_TIME_MAX) {
        Ok(result) => result,
        Err(_) => {
            let text = "its queue threads did not start in time";
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    })
}
