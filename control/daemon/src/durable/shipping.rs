//! Thread that ships the journal to the image store, for a standby.
//!
//! Saving images does not depend on it. Mirrored flushes wake it and wait for it; other flushes do
//! not.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::{MirrorStatus, ShippingStatus};
use durable_set::{DurableError, MirrorPolicy, MirrorState, Shipped, Shipper};

use crate::durable::state::{Durable, Shipping, causes};
use crate::error_text;
use crate::ticker::Ticker;

/// Maximum delay before a failed store is retried. The delay starts at the interval and doubles.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Maximum and first delay of retries while flushes may be waiting.
const MIRROR_WAIT_MAX: Duration = Duration::from_secs(1);
const MIRROR_WAIT_MIN: Duration = Duration::from_millis(50);

/// Default interval at which the journal is shipped while no flush waits.
const MIRROR_IDLE: Duration = Duration::from_secs(1);

/// Waiting time of flushes above which the store is reported as slow.
const MIRROR_LATE_MIN: Duration = Duration::from_secs(2);

/// Maximum time that a flush waits for the store while the daemon stops.
const MIRROR_STOP_MAX: Duration = Duration::from_secs(2);

/// Maximum time that a stop waits for the mirroring thread.
const MIRROR_END_MAX: Duration = Duration::from_secs(5);

/// Starts the shipping thread, if shipping is configured.
pub(super) fn ship(durable: &Arc<Durable>) -> io::Result<Option<Ticker>> {
    if durable.images_config.mirror.policy != MirrorPolicy::Off {
        return mirror(durable).map(|()| None);
    }
    let Some(every) = durable.images_config.ship_every else { return Ok(None) };
    let shipper = Shipper::new(Arc::clone(&durable.set));
    let mut shipped = ShippingLoop { durable: Arc::clone(durable), shipper, every, wait: every };
    Ticker::start("shipping", every, move || shipped.turn()).map(Some)
}

/// Starts the mirroring thread, which ships the journal when flushes wait for it. It outlives the
/// exports, whose last flushes need it.
fn mirror(durable: &Arc<Durable>) -> io::Result<()> {
    let every = durable.images_config.ship_every.unwrap_or(MIRROR_IDLE);
    let mut shipped = ShippingLoop {
        durable: Arc::clone(durable),
        shipper: Shipper::new(Arc::clone(&durable.set)),
        every,
        wait: MIRROR_WAIT_MIN,
    };
    let mirror = Arc::clone(durable.set.mirror());
    mirror.begin_rounds(move || shipped.mirror_turn());
    let (end, ended) = mpsc::channel();
    let work = move || {
        // Dropped last, after everything else that the thread uses.
        let _end: mpsc::Sender<()> = end;
        let is_on = |rest: Duration| rest.is_zero() || mirror.rest(rest);
        while mirror.wait_for_work(every) {
            while mirror.ship().is_some_and(is_on) {}
        }
        mirror.end_rounds();
    };
    std::thread::Builder::new().name("mirroring".to_owned()).spawn(work)?;
    *durable.mirroring.lock().expect("no thread panics with this lock") = Some(ended);
    Ok(())
}

struct ShippingLoop {
    durable: Arc<Durable>,
    shipper: Shipper,
    every: Duration,
    wait: Duration,
}

impl ShippingLoop {
    /// Ships the journal. Returns the delay until the next attempt, or `None` if all is shipped.
    fn mirror_turn(&mut self) -> Option<Duration> {
        let shipped = self.ship();
        match shipped {
            Ok(Shipped::Some { .. }) => return Some(Duration::ZERO),
            Ok(Shipped::All { .. }) => {
                self.wait = MIRROR_WAIT_MIN;
                return None;
            }
            // A fenced writer stays fenced, and its flushes fail without this thread.
            Err(error) if error.is_fenced() => return Some(WAIT_MAX),
            Ok(Shipped::NeedsImage) | Err(_) => {}
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(MIRROR_WAIT_MAX);
        Some(wait)
    }

    fn ship(&mut self) -> Result<Shipped, DurableError> {
        let shipped = self.shipper.ship(unix_micros());
        let failure = match &shipped {
            Ok(Shipped::NeedsImage) => {
                // The keeper saves an image.
                self.durable.known().is_wanted = true;
                None
            }
            Ok(_) => None,
            Err(error) => Some(causes(error)),
        };
        self.note(failure);
        shipped
    }

    /// Ships new journal records. Returns the delay until the next turn.
    fn turn(&mut self) -> Duration {
        if !self.durable.set.has_journaled_volumes() {
            return self.every;
        }
        match self.ship() {
            Ok(Shipped::Some { .. }) => Duration::ZERO,
            Ok(_) => {
                self.wait = self.every;
                self.every
            }
            // A fenced writer stays fenced.
            Err(error) if error.is_fenced() => WAIT_MAX.max(self.every),
            Err(_) => {
                let wait = self.wait;
                self.wait = (wait * 2).min(WAIT_MAX).max(self.every);
                wait
            }
        }
    }

    /// Records the outcome of a turn, and reports when the store begins and stops failing.
    fn note(&self, failure: Option<String>) {
        let events = &self.durable.events;
        let (lag, now) = (self.shipper.lag(), (unix_micros(), Instant::now()));
        let mut known = self.durable.shipping();
        let fresh = known.after_turn(lag, failure.clone(), now);
        let before = std::mem::replace(&mut *known, fresh).failure;
        drop(known);
        match (before, failure) {
            (None, Some(cause)) => {
                let failed =
                    error_text::failed("cannot ship the journal to the image store", &cause);
                let message = format!("{failed}; until it succeeds, a standby lacks new flushes");
                events.error("shipping_failing", None, message);
            }
            (Some(_), None) => {
                let message = "the journal is shipped to the image store again".to_owned();
                events.info("shipping_resumed", None, message);
            }
            _ => {}
        }
    }
}

impl Durable {
    pub(super) fn shipping_status(&self) -> Option<ShippingStatus> {
        let is_mirrored = self.images_config.mirror.policy != MirrorPolicy::Off;
        if self.images_config.ship_every.is_none() && !is_mirrored {
            return None;
        }
        let shipping = self.shipping().clone();
        Some(ShippingStatus {
            lag_seconds: shipping.age_at(Instant::now()).map(|age| age.as_secs_f64()),
            lag_bytes: shipping.lag.map_or(0, |lag| lag.bytes),
            failure: shipping.failure,
        })
    }

    pub(super) fn mirror_status(&self) -> Option<MirrorStatus> {
        let status = self.set.mirror().status();
        let policy = match status.policy {
            MirrorPolicy::Off => return None,
            MirrorPolicy::Wait => api::MirrorPolicy::Wait,
            MirrorPolicy::Fail => api::MirrorPolicy::Fail,
            MirrorPolicy::Alone => api::MirrorPolicy::Alone,
        };
        let waited = status.waited.filter(|&waited| waited >= MIRROR_LATE_MIN);
        let (state, cause) = match status.state {
            MirrorState::TakenOver(by) => (api::MirrorState::TakenOver, Some(by)),
            MirrorState::Alone => (api::MirrorState::Alone, self.shipping().failure.clone()),
            MirrorState::CatchingUp => (api::MirrorState::CatchingUp, None),
            MirrorState::InSync => match waited {
                None => (api::MirrorState::InSync, None),
                Some(time) => {
                    let failure = self.shipping().failure.clone().or(self.known().failure.clone());
                    let late =
                        || format!("the store has not answered for {:.0} s", time.as_secs_f64());
                    (api::MirrorState::Waiting, Some(failure.unwrap_or_else(late)))
                }
            },
        };
        Some(MirrorStatus {
            policy,
            state,
            cause,
            waiting: status.waiting as u64,
            failed: status.failed,
            acknowledged_alone: status.alone,
        })
    }

    /// Limits how long flushes wait for the store from now on, because the exports stop.
    pub(super) fn limit_mirroring(&self) {
        self.set.mirror().limit_waits(MIRROR_STOP_MAX);
    }

    /// Ends the thread that mirrors flushes. If the store does not answer, it is abandoned.
    pub(super) fn end_mirroring(&self) {
        self.set.mirror().stop();
        let ended = self.mirroring.lock().expect("no thread panics with this lock").take();
        if let Some(ended) = ended
            && ended.recv_timeout(MIRROR_END_MAX) == Err(mpsc::RecvTimeoutError::Timeout)
        {
            tracing::warn!("abandoning the image store, which does not answer a flush");
        }
    }

    pub(super) fn shipping(&self) -> std::sync::MutexGuard<'_, Shipping> {
        self.shipping.lock().expect("no thread panics with this lock")
    }
}

fn unix_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
