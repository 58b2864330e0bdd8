//! State of a device in one process: its connection, and the lanes that its threads use.
//!
//! Lock order: a lane, then the connection. While a thread waits for the restart of the daemon, it
//! holds only the lock of its lane.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use adaptive_polling::{Machine, SpinPermits, ThisMachine, Waiter};
use shared_ring::{ClientLane, LANES_MAX};

use crate::error::ClientError;
use crate::fork;
use crate::link::{Link, LinkError};
use crate::origin::Origin;
use crate::patience::Patience;

/// Maximum time for which a thread spins for its answer before it sleeps.
const SPIN_MAX: Duration = Duration::from_micros(100);

/// Connection of one process to a device.
pub(crate) struct Process {
    origin: Origin,
    /// Fork count of the process.
    pub(crate) forks: u64,
    /// Generation of the connection, incremented for each new one.
    generation: AtomicU64,
    lane_count: AtomicUsize,
    lanes: [Mutex<LaneState>; LANES_MAX],
    current: Mutex<Current>,
    changed: Condvar,
}

/// The current connection, if there is one.
struct Current {
    link: Option<Arc<Link>>,
    is_connecting: bool,
    /// Generation, and number of requests on the lanes, at the last call of [`Process::rest`].
    looked_at: (u64, u64),
}

/// A lane while a thread uses it.
pub(crate) struct LaneState {
    index: usize,
    generation: u64,
    open: Option<OpenLane>,
    pub(crate) waiter: Waiter<ClientMachine>,
}

/// A lane of a connection.
pub(crate) struct OpenLane {
    pub(crate) link: Arc<Link>,
    pub(crate) lane: ClientLane,
    /// [`ClientOptions::around_waits`](crate::ClientOptions::around_waits).
    pub(crate) around_waits: fn(&mut dyn FnMut()),
}

/// Runs a wait that may take long in the program's wrapper.
pub(crate) fn run_around<T>(around: fn(&mut dyn FnMut()), mut wait: impl FnMut() -> T) -> T {
    let mut result = None;
    around(&mut || result = Some(wait()));
    result.expect("the program calls it, as the option says")
}

/// The host. Threads are not migrated between cores, because they belong to the program.
#[derive(Debug)]
pub(crate) struct ClientMachine(ThisMachine);

impl Machine for ClientMachine {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn offer_core(&self) {
        self.0.offer_core();
    }

    fn change_core(&self) {}
}

/// Creates a waiter for a thread of this process.
pub(crate) fn waiter(permits: &Arc<SpinPermits>) -> Waiter<ClientMachine> {
    Waiter::on_machine(ClientMachine(ThisMachine::new()), Arc::clone(permits), SPIN_MAX)
}

impl Process {
    /// Creates the state, with a connection, or without one in a child that connects on demand.
    pub(crate) fn new(origin: Origin, link: Option<Arc<Link>>) -> Self {
        let permits = Arc::new(SpinPermits::for_this_machine());
        let lane_count = link.as_ref().map_or(1, |link| link.ring.lane_count());
        let lane = |index| {
            let waiter = waiter(&permits);
            Mutex::new(LaneState { index, generation: 0, open: None, waiter })
        };
        Self {
            origin,
            forks: fork::count(),
            generation: AtomicU64::new(u64::from(link.is_some())),
            lane_count: AtomicUsize::new(lane_count),
            lanes: std::array::from_fn(lane),
            current: Mutex::new(Current { link, is_connecting: false, looked_at: (0, 0) }),
            changed: Condvar::new(),
        }
    }

    /// Locks a lane for the calling thread, usually the one that it used before.
    pub(crate) fn lane(&self) -> MutexGuard<'_, LaneState> {
        thread_local! {
            static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        static NEXT_HINT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: any distribution of threads over lanes is correct.
        let lane_count = self.lane_count.load(Ordering::Relaxed);
        let hint = HINT.with(|hint| {
            if hint.get() == usize::MAX {
                hint.set(NEXT_HINT.fetch_add(1, Ordering::Relaxed) % LANES_MAX);
            }
            hint.get()
        });
        for index in (hint..hint + lane_count).map(|index| index % lane_count) {
            match self.lanes[index].try_lock() {
                Ok(lane) => return lane,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.wait_around(|| {
            self.lanes[hint % lane_count].lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Returns the connection, or creates one. Waits for the daemon.
    pub(crate) fn link(&self) -> Result<Arc<Link>, ClientError> {
        let (link, _) = self.connect(None)?;
        Ok(link)
    }

    /// Closes the connection if no request was made since the last call. Returns whether it is
    /// closed.
    pub(crate) fn rest(&self) -> bool {
        {
            let current = self.current();
            if current.link.is_none() {
                return !current.is_connecting;
            }
        }
        let mut lanes = Vec::with_capacity(LANES_MAX);
        let mut made = 0;
        for lane in &self.lanes {
            let lane = match lane.try_lock() {
                Ok(lane) => lane,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            made += lane.open.as_ref().map_or(0, |it| it.lane.submitted());
            lanes.push(lane);
        }
        let mut current = self.current();
        let seen = (self.generation.load(Ordering::Relaxed), made);
        if current.is_connecting || std::mem::replace(&mut current.looked_at, seen) != seen {
            return false;
        }
        lanes.iter_mut().for_each(|lane| lane.open = None);
        current.link = None;
        true
    }

    /// Opens the lane on the current connection.
    #[inline]
    pub(crate) fn prepare<'lane>(
        &self,
        state: &'lane mut LaneState,
    ) -> Result<(&'lane mut OpenLane, &'lane mut Waiter<ClientMachine>), ClientError> {
        // Acquire: the connection of the generation is there; the lock around it orders the rest.
        if state.open.is_none() || state.generation != self.generation.load(Ordering::Acquire) {
            self.reopen(state, None)?;
        }
        Ok((state.open.as_mut().expect("it was just opened"), &mut state.waiter))
    }

    /// Replaces the lane's lost connection. Waits for the daemon.
    #[cold]
    pub(crate) fn recover(&self, state: &mut LaneState) -> Result<(), ClientError> {
        let lost = state.generation;
        self.reopen(state, Some(lost))
    }

    #[cold]
    fn reopen(&self, state: &mut LaneState, lost: Option<u64>) -> Result<(), ClientError> {
        state.open = None;
        let (link, generation) = self.wait_around(|| self.connect(lost))?;
        // A daemon of another version may provide fewer lanes than this thread's.
        if state.index >= link.ring.lane_count() {
            let message = "the restarted daemon has fewer lanes; open the volume again";
            return Err(ClientError::new(libc::EIO, message));
        }
        let lane = ClientLane::new(Arc::clone(&link.ring), state.index);
        state.generation = generation;
        let around_waits = self.origin.options.around_waits;
        state.open = Some(OpenLane { link, lane, around_waits });
        Ok(())
    }

    #[cold]
    fn wait_around<T>(&self, wait: impl FnMut() -> T) -> T {
        run_around(self.origin.options.around_waits, wait)
    }

    /// Returns a connection other than the `lost` one, and its generation. One thread connects and
    /// the others wait for it, each with its own timeout.
    fn connect(&self, lost: Option<u64>) -> Result<(Arc<Link>, u64), ClientError> {
        let mut patience = Patience::new(self.origin.options.patience);
        let mut current = self.current();
        loop {
            let generation = self.generation.load(Ordering::Relaxed);
            if let Some(link) = &current.link
                && lost != Some(generation)
            {
                return Ok((Arc::clone(link), generation));
            }
            if !current.is_connecting {
                break;
            }
            let left = patience.left();
            if left.is_zero() {
                return Err(self.not_back());
            }
            let waited = self.changed.wait_timeout(current, left);
            (current, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if fork::is_guest() {
            // A descriptor that this process opens does not exist in the parent, and one that it
            // closes stays open there.
            return Err(self.not_back());
        }
        current.is_connecting = true;
        current.link = None;
        drop(current);
        let result = self.try_to_connect(&mut patience);
        let mut current = self.current();
        current.is_connecting = false;
        self.changed.notify_all();
        let link = result?;
        self.lane_count.store(link.ring.lane_count(), Ordering::Relaxed);
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        self.generation.store(generation, Ordering::Release);
        current.link = Some(Arc::clone(&link));
        Ok((link, generation))
    }

    fn try_to_connect(&self, patience: &mut Patience) -> Result<Arc<Link>, ClientError> {
        loop {
            let failure = match Link::reopen(&self.origin, LANES_MAX) {
                Ok(link) => return Ok(link),
                Err(LinkError::Absent(_)) => self.not_back(),
                Err(LinkError::NoRoom { message }) => ClientError::new(libc::EIO, message),
                Err(error) => return Err(error.into_client_error(&self.origin.path)),
            };
            if !patience.pause() {
                return Err(failure);
            }
        }
    }

    fn not_back(&self) -> ClientError {
        let message = format!(
            "timed out: the daemon at {}, which serves volume {:?}, did not respond within {:?}",
            self.origin.path.display(),
            self.origin.name,
            self.origin.options.patience
        );
        ClientError::new(libc::EIO, message)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
