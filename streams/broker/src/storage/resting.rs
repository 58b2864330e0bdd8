//! Connections to idle volumes are closed: the daemon accepts a few hundred per user, but a broker
//! may have thousands of topics.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::ring_volume::RingVolume;

/// Number of volumes up to which all stay connected.
const CONNECTED_MAX: usize = 128;

/// Number of opened volumes after which idle ones are looked for.
const OPENED_MAX: usize = 32;

/// Number of connections in use above which all without a request in progress are closed, so that
/// connections rotate and no volume waits long for one.
const USED_MAX: usize = 192;

/// Interval of checks otherwise.
const INTERVAL: Duration = Duration::from_millis(250);

const NO_PANIC: &str = "no thread panics with this lock";

/// All volumes. While there are many, idle ones are disconnected.
#[derive(Clone, Debug)]
pub(super) struct Resting {
    volumes: Arc<Mutex<Volumes>>,
    /// Ends the thread when the last one is dropped.
    _stop: Sender<()>,
}

#[derive(Debug, Default)]
struct Volumes {
    all: Vec<Weak<RingVolume>>,
    opened_count: usize,
}

impl Resting {
    pub(super) fn start() -> std::io::Result<Self> {
        let volumes = Arc::<Mutex<Volumes>>::default();
        let looked = Arc::clone(&volumes);
        let (stop, stopped) = channel();
        let look = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                looked.lock().expect(NO_PANIC).rest();
            }
        };
        std::thread::Builder::new().name("ring-rest".to_owned()).spawn(look)?;
        Ok(Self { volumes, _stop: stop })
    }

    pub(super) fn add(&self, volume: &Arc<RingVolume>) {
        let mut volumes = self.volumes.lock().expect(NO_PANIC);
        volumes.all.push(Arc::downgrade(volume));
        volumes.opened_count += 1;
        if volumes.opened_count >= OPENED_MAX {
            volumes.rest();
        }
    }
}

impl Volumes {
    fn rest(&mut self) {
        self.opened_count = 0;
        self.all.retain(|it| it.strong_count() > 0);
        if self.all.len() <= CONNECTED_MAX {
            return;
        }
        let mut used: Vec<_> = self.all.iter().filter_map(Weak::upgrade).collect();
        used.retain(|it| !it.rests());
        if used.len() > USED_MAX {
            used.retain(|it| !it.rests());
        }
    }
}
